"""What a product server can do to the relay; afterwards each version took effect once, and in order."""

import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import text

from mustit_pipeline.delivery.relay import RelayReport, relay
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.backlog import fill, replay_failed
from mustit_pipeline_tests.faults.scenarios import LONG, SELLER, Numbers, Size
from mustit_pipeline_tests.faults.world import World
from mustit_pipeline_tests.integration.crawls import crawl, differences, register

PATIENCE_SECONDS = 10.0
COOLDOWN_SECONDS = 0.3
LONGEST_SECONDS = 600.0


def every_third_call_fails(world: World, size: Size) -> Numbers:
    """A third of all calls is answered 503 beside good ones: a row has five tries, and few need a replay by hand."""
    rows = 20_000 if size == LONG else 1_500
    settings = world.with_settings(relay_longest_backoff_seconds=0.5)
    fill(world.database, "flaky", range(1, rows + 1))
    world.receiver.fault("status", "events", share=1 / 3, status=503, retryAfter=None)
    _deliver(world, settings)
    calls = _calls(world)
    world.receiver.clear_faults()
    failed = replay_failed(world.database)
    _deliver(world, settings)
    if (effects := _check(world)) != rows:
        raise AssertionError(f"{effects} effects of {rows} events")
    return {"events": rows, "calls": calls, "failed five times": failed}


def server_behind_a_balancer(world: World, size: Size) -> Numbers:
    """503 for 120 cool-downs, then 429 with Retry-After, then an expired token: few calls, no try, nothing FAILED."""
    cooldowns = 120 if size == LONG else 10
    # The scaled clock: as many credential pauses as cool-downs, and a Retry-After of a second as the longest.
    settings = world.with_settings(product_server_credential_seconds=COOLDOWN_SECONDS)
    rows = size.products * 10
    numbers: Numbers = {"events": 3 * rows}
    answers: dict[str, dict[str, Any]] = {
        "503": {"status": 503, "retryAfter": None},
        "429": {"status": 429, "retryAfter": "1"},
        "401": {"status": 401},
    }
    for name, answer in answers.items():
        fill(world.database, f"behind-{name}", range(1, rows + 1))
        world.receiver.reset_audit()
        fault = world.receiver.fault("status", "events", **answer)
        end = time.monotonic() + cooldowns * COOLDOWN_SECONDS
        while time.monotonic() < end:
            _relay(world, settings)
        calls = _calls(world)
        pause = 1.0 if name == "429" else COOLDOWN_SECONDS
        allowed = settings.product_server_breaker_failures + settings.relay_concurrent_sends
        allowed += 1 + round(cooldowns * COOLDOWN_SECONDS / pause)
        if not 2 <= calls <= allowed:
            raise AssertionError(f"{calls} calls while the server answered {name}, {allowed} may be")
        charged = _one(world, "SELECT count(*) FROM product_outbox WHERE status = 'FAILED' OR retry_count > 0")
        if charged:
            raise AssertionError(f"{name} was held against {charged} events")
        world.receiver.clear_faults(fault)
        _deliver(world, settings)
        numbers[f"calls while {name}"] = calls
    if (effects := _check(world)) != 3 * rows:
        raise AssertionError(f"{effects} effects of {3 * rows} events")
    return numbers


def one_event_of_a_hundred_meets_503(world: World, size: Size) -> Numbers:
    """It ends FAILED after five tries, alone; everything else goes out, before an outage and after it."""
    rows = 10_000 if size == LONG else 100
    settings = world.with_settings(relay_longest_backoff_seconds=0.5, product_server_breaker_seconds=COOLDOWN_SECONDS)
    fill(world.database, "hundred", range(1, rows + 1))
    for item in range(50, rows + 1, 100):
        world.receiver.fault("status", "events", status=503, retryAfter=None, sellerId="hundred", itemNo=item)
    outage = world.receiver.fault("status", "events", status=503, retryAfter=None)
    for _ in range(10):
        _relay(world, settings)
    if charged := _one(world, "SELECT count(*) FROM product_outbox WHERE retry_count > 0"):
        raise AssertionError(f"the outage was held against {charged} events")
    world.receiver.clear_faults(outage)
    hopeless = rows // 100
    # Others go by while it is tried again: where no other row is served, it cannot be told from an outage.
    for passer_by in range(1, 60):
        fill(world.database, f"passer-by-{passer_by}", [1, 2])
        relay(world.database, settings, patience_seconds=2)
        if not _one(world, "SELECT count(*) FROM product_outbox WHERE status = 'WAITING'"):
            break
    failed = _one(
        world,
        "SELECT count(*) FROM product_outbox WHERE status = 'FAILED' AND retry_count = 5 AND item_no % 100 = 50",
    )
    others = _one(world, "SELECT count(*) FROM product_outbox WHERE status <> 'COMPLETED'") - failed
    if (failed, others) != (hopeless, 0):
        raise AssertionError(f"{failed} of {hopeless} hopeless events are FAILED after five tries, and {others} others")
    return {"events": rows, "hopeless": hopeless, "calls": _calls(world)}


def answers_lost_after_applying(world: World, size: Size) -> Numbers:
    """The event is applied, and then nothing is heard: every repetition finds it done."""
    return _through(world, size, "timeout_after", share=1 / 4, product_server_read_seconds=0.3)


def connections_dropped_after_applying(world: World, size: Size) -> Numbers:
    """The event is applied, and then the connection breaks."""
    return _through(world, size, "drop_after", share=1 / 3)


def answers_out_of_order(world: World, size: Size) -> Numbers:
    """Every call takes another time: effects and answers overtake each other."""
    return _through(world, size, "shuffled", seconds=0.4)


def server_down_for_an_hour(world: World, size: Size) -> Numbers:
    """No server listens for 120 cool-downs: few calls are made, no try is spent, and then everything goes out."""
    cooldowns = 120 if size == LONG else 15
    settings = world.with_settings(product_server_breaker_seconds=COOLDOWN_SECONDS)
    rows = size.products * 10
    fill(world.database, "patient", range(1, rows + 1))
    world.receiver.fault("down", "events")
    end = time.monotonic() + cooldowns * COOLDOWN_SECONDS
    while time.monotonic() < end:
        relay(world.database, settings, patience_seconds=COOLDOWN_SECONDS)
    calls = _calls(world)
    allowed = settings.product_server_breaker_failures + settings.relay_concurrent_sends + cooldowns
    if not cooldowns / 3 <= calls <= allowed:
        raise AssertionError(f"{calls} calls to a server that is down, {allowed} may be")
    burnt = _one(world, "SELECT count(*) FROM product_outbox WHERE status <> 'WAITING' OR failing_since IS NOT NULL")
    if burnt:
        raise AssertionError(f"the outage was held against {burnt} events")
    world.receiver.clear_faults()
    _deliver(world, settings)
    if (effects := _check(world)) != rows:
        raise AssertionError(f"{effects} effects of {rows} events")
    return {"events": rows, "calls while down": calls, "allowed": allowed}


def hopeless_events_delay_no_others(world: World, size: Size) -> Numbers:
    """One event in a hundred is never taken, and they stand first; then more of them, and each hangs."""
    return _refused_events(world, size) | _hanging_events(world, size)


def _refused_events(world: World, size: Size) -> Numbers:
    """The good ones go out before the hopeless ones are tried a second time."""
    rows = 100_000 if size == LONG else 2_000
    hopeless = rows // 100
    fill(world.database, "hopeless", range(1, hopeless + 1))
    fill(world.database, "good", range(1, rows - hopeless + 1))
    world.receiver.fault("status", "events", status=500, sellerId="hopeless")
    settings = world.with_settings()
    calls_by_then: list[int] = []

    def look(report: RelayReport) -> None:
        if not calls_by_then and report.sent >= rows - hopeless:
            calls_by_then.append(_calls(world))

    started = time.monotonic()
    report = relay(world.database, settings, patience_seconds=60, progress=look)
    seconds = time.monotonic() - started
    allowed = rows + settings.relay_batch + 2 * settings.relay_concurrent_sends
    if not calls_by_then or calls_by_then[0] > allowed:
        raise AssertionError(f"the last good event was call {calls_by_then}, at most {allowed} were due before it")
    if (report.sent, report.failed, report.waiting) != (rows - hopeless, hopeless, 0):
        raise AssertionError(f"sent {report.sent}, failed {report.failed}, waiting {report.waiting}")
    five = _one(world, "SELECT count(*) FROM product_outbox WHERE status = 'FAILED' AND attempts = 5")
    if five != hopeless:
        raise AssertionError(f"{five} of {hopeless} hopeless events ended after five tries")
    return {"events": rows, "hopeless": hopeless, "calls until the last good one": calls_by_then[0]} | {
        "events per second": round(report.sent / seconds)
    }


def _hanging_events(world: World, size: Size) -> Numbers:
    """However many wait before the good ones, few have been tried when the first of those goes out."""
    hanging, good, read_seconds = (1_000, 20_000, 1.0) if size == LONG else (100, 300, 0.4)
    fill(world.database, "silent", range(1, hanging + 1))
    fill(world.database, "patient", range(1, good + 1))
    world.receiver.fault("timeout_before", "events", seconds=30, sellerId="silent")
    settings = world.with_settings(product_server_read_seconds=read_seconds, outbox_max_retries=1)
    hung_by_then: list[int] = []

    def look(report: RelayReport) -> None:
        if not hung_by_then and report.sent >= good // 10:
            hung_by_then.append(world.receiver.audit()["faults"].get("timeout_before", 0))

    report = relay(world.database, settings, patience_seconds=60, progress=look)
    allowed = hanging // 2
    if not hung_by_then or hung_by_then[0] > allowed:
        raise AssertionError(f"{hung_by_then} events had hung when good ones went out, at most {allowed} may have")
    if (report.sent, report.failed, report.waiting) != (good, hanging, 0):
        raise AssertionError(f"sent {report.sent}, failed {report.failed}, waiting {report.waiting}")
    return {"hanging": hanging, "hung when good ones went out": hung_by_then[0]}


def _through(world: World, size: Size, kind: str, **options: Any) -> Numbers:
    """Two relays at once while the server misbehaves, a crawl with changes in between; then it must be right."""
    changed = {name: options.pop(name) for name in list(options) if name in Settings.model_fields}
    settings = world.with_settings(relay_longest_backoff_seconds=0.5, **changed)
    world.market.add_seller(SELLER, size.products)
    register(world.database, SELLER)
    world.receiver.fault(kind, "events", **options)
    for _ in range(2):
        crawl(world.database, world.settings, SELLER)
        relays = [threading.Thread(target=_relay, args=(world, settings)) for _ in range(2)]
        for thread in relays:
            thread.start()
        for thread in relays:
            thread.join()
        world.market.random_changes(SELLER, size.products // 3)
    crawl(world.database, world.settings, SELLER)
    _relay(world, settings)
    hit = world.receiver.audit()["faults"].get(kind, 0)
    if not hit:
        raise AssertionError(f"{kind} never struck: this proves nothing")
    world.receiver.clear_faults()
    replay_failed(world.database)
    _deliver(world, settings)
    found = differences(world.market, world.receiver, SELLER)
    if found:
        raise AssertionError(f"{len(found)} products differ, such as {next(iter(found.items()))}")
    audit = world.receiver.audit()
    if audit["maxInFlightPerProduct"] > 1 and kind != "timeout_after":
        raise AssertionError("two versions of one product were under way at once")
    return {"effects": _check(world), "struck": hit, "repeated": audit["repeated"]}


def _with_short_trials(settings: Settings) -> Settings:
    return settings.model_copy(update={"product_server_breaker_seconds": COOLDOWN_SECONDS})


def _relay(world: World, settings: Settings) -> None:
    relay(world.database, _with_short_trials(settings), patience_seconds=COOLDOWN_SECONDS)


def _deliver(world: World, settings: Settings) -> None:
    """Send until nothing waits."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while relay(world.database, _with_short_trials(settings), patience_seconds=PATIENCE_SECONDS).waiting:
        if time.monotonic() > deadline:
            raise AssertionError(f"events still wait after {LONGEST_SECONDS:.0f} s")


def _check(world: World) -> int:
    """Each version took effect once, versions only grew, nothing is FAILED, nothing was malformed."""
    with world.database.reading() as connection:
        counts = outbox.counts(connection)
    if counts.failed or counts.waiting or counts.sending:
        raise AssertionError(f"not everything is COMPLETED: {counts}")
    audit = world.receiver.audit()
    if audit["rejected"] or audit["repeatsWithOtherContent"] or audit["updatesOfUnknown"]:
        raise AssertionError(f"the server was told nonsense: {audit}")
    newest: dict[tuple[str, int], int] = {}
    log = world.receiver.log()
    for effect in log:
        key = (effect.seller_id, effect.item_no)
        if effect.version <= newest.get(key, 0):
            raise AssertionError(f"{key}: version {effect.version} after {newest[key]}")
        newest[key] = effect.version
    return len(log)


def _calls(world: World) -> int:
    return world.receiver.audit()["requests"].get("events", 0)


def _one(world: World, query: str) -> int:
    with world.database.reading() as connection:
        return connection.execute(text(query)).scalar_one()


DELIVERY_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    every_third_call_fails,
    server_behind_a_balancer,
    one_event_of_a_hundred_meets_503,
    answers_lost_after_applying,
    connections_dropped_after_applying,
    answers_out_of_order,
    server_down_for_an_hour,
    hopeless_events_delay_no_others,
)
