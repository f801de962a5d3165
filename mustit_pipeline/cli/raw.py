"""`mustit raw`: the state of fetched bodies, and failed ones processed again."""

from collections import Counter
from typing import Annotated, Any

import typer
from rich.table import Table

from mustit_pipeline.catalog.processing import ProcessingReport
from mustit_pipeline.catalog.publishing import belief_rules
from mustit_pipeline.catalog.reading import reading_rules
from mustit_pipeline.catalog.replay import Replay, Replaying, replay_failed
from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.catalog.sql.raw import RawEntry
from mustit_pipeline.cli.list_options import (
    Limit,
    Seller,
    Since,
    cut,
    iso,
    known_seller,
    make_table,
    minute,
    show_page,
    since_when,
    status,
)
from mustit_pipeline.cli.output import Json, err, out, print_json
from mustit_pipeline.cli.progress import Step, watched
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.domain.states import LifeCycle, RawStatus
from mustit_pipeline.foundation.clock import utc_now

app = typer.Typer(help="Fetched bodies: their state, and failed ones processed again.", no_args_is_help=True)


@app.command("list", epilog="Example: `mustit raw list --status FAILED`")
def show_all(
    wanted: Annotated[
        RawStatus | None,
        typer.Option("--status", case_sensitive=False, metavar="STATUS", help="PENDING, PROCESSED or FAILED."),
    ] = None,
    seller: Seller = None,
    since: Since = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List fetched bodies, newest first, with the reason if one could not be processed."""
    after = since_when(since, utc_now())
    with runtime() as ground, ground.database.reading() as connection:
        seller_id = known_seller(connection, seller)
        found = raw.newest(connection, status=wanted, seller_id=seller_id, since=after, limit=limit)
    what = "No body" if wanted is None else f"No body is {wanted}"
    show_page(
        found,
        as_json=as_json,
        document=_document,
        table=_table,
        empty=f"{what}{'' if seller is None else f' of {seller}'}"
        f"{'' if wanted else ' has been fetched'}{'' if since is None else f' since {minute(after)}'}.",
    )


@app.command("replay", epilog="Example: `mustit raw replay --seller dmont --since 3d --until 1d`")
def replay(
    seller: Seller = None,
    since: Since = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="T", help="Only those fetched before then, written as for --since.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Process FAILED bodies again, whatever their attempts, without any request to the marketplace.

    For use after a fix. A body is left alone if a newer one of the same call exists. Exit 1 if bodies fail again.
    """
    after, before = since_when(since, utc_now()), since_when(until, utc_now())
    state = Replaying(0, 0)

    def follow(now: Replaying) -> None:
        nonlocal state
        state = now

    with runtime() as ground:
        with ground.database.reading() as connection:
            seller_id = known_seller(connection, seller)
        with watched("replaying", lambda: Step(state.bodies, state.total or None, "bodies")):
            done = replay_failed(
                ground.database,
                seller_id=seller_id,
                since=after,
                until=before,
                now=utc_now,
                rules=belief_rules(ground.settings),
                reading_rules=reading_rules(ground.database, ground.settings),
                progress=follow,
            )
    total = _sum(done)
    if as_json:
        print_json(_replay_document(done, total))
    else:
        _tell(done, total)
    raise typer.Exit(1 if total.failed_bodies else 0)


def _tell(done: Replay, total: ProcessingReport) -> None:
    if done.reports:
        out.print(
            make_table(
                ["bodies", "failed again", "versions"],
                ["seller", "changes"],
                [
                    (
                        report.bodies,
                        report.failed_bodies,
                        sum(report.versions.values()),
                        seller,
                        ", ".join(f"{name} {n}" for name, n in sorted(_changes(report).items())) or "none",
                    )
                    for seller, report in done.reports.items()
                ],
            )
        )
        out.print(
            f"Replayed {done.reopened} failed bodies; made {sum(total.versions.values())} versions.", highlight=False
        )
    else:
        out.print("There is no failed body to replay.", highlight=False)
    if done.outdated:
        out.print(f"{done.outdated} stay as they are: a newer body of the same call is in already.", highlight=False)
    for seller, report in done.reports.items():
        if report.held is not None:
            err.print(
                f"Changes of {seller} are held back: `mustit holds list` says why.", markup=False, highlight=False
            )
    if total.failed_bodies:
        err.print(f"{total.failed_bodies} failed again: `mustit raw list --status FAILED` says why.", highlight=False)


def _changes(report: ProcessingReport) -> Counter[str]:
    """The same counts as for a crawl: life cycle steps of products, and changed fields by type."""
    steps = {step.value: number for step, number in report.versions.items() if step is not LifeCycle.UPDATED}
    return Counter(steps) + report.changes


def _sum(done: Replay) -> ProcessingReport:
    total = ProcessingReport()
    for report in done.reports.values():
        total.bodies += report.bodies
        total.failed_bodies += report.failed_bodies
        total.versions += report.versions
        total.changes += report.changes
    return total


def _replay_document(done: Replay, total: ProcessingReport) -> dict[str, Any]:
    return {
        "replayed": done.reopened,
        "outdated": done.outdated,
        **_report_document(total),
        "sellers": [{"sellerId": seller, **_report_document(report)} for seller, report in done.reports.items()],
    }


def _report_document(report: ProcessingReport) -> dict[str, Any]:
    return {
        "bodies": report.bodies,
        "failedBodies": report.failed_bodies,
        "versions": sum(report.versions.values()),
        "changes": dict(sorted(_changes(report).items())),
        "held": report.held is not None,
    }


def _table(found: list[RawEntry]) -> Table:
    return make_table(
        ["id", "fetched", "status", "source", "of"],
        ["seller", "reason"],
        [
            (
                one.raw_id,
                minute(one.fetched_at),
                status(one.status),
                one.source.removeprefix("PRODUCT_"),
                f"page {one.page_no}" if one.item_no is None else one.item_no,
                cut(one.seller_id),
                one.error_text or one.error_code,
            )
            for one in found
        ],
    )


def _document(one: RawEntry) -> dict[str, Any]:
    return {
        "rawId": one.raw_id,
        "sellerId": one.seller_id,
        "executionId": str(one.execution_id),
        "source": one.source.value,
        "itemNo": one.item_no,
        "pageNo": one.page_no,
        "status": one.status.value,
        "attempts": one.attempts,
        "bytes": one.size,
        "errorCode": one.error_code,
        "error": one.error_text,
        "fetchedAt": iso(one.fetched_at),
        "processedAt": iso(one.processed_at),
    }
