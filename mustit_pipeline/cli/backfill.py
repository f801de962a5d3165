"""`mustit backfill`: fetch many sellers again, or process their stored bodies again."""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mustit_pipeline.cli.crawl import run_crawl
from mustit_pipeline.cli.dagster_ui import BackfillState, DagsterUI, backfill_state, failed_partitions
from mustit_pipeline.cli.output import Json, message_of, out, print_json, print_table
from mustit_pipeline.cli.progress import Step, watched
from mustit_pipeline.cli.runtime import Runtime, dagster_instance, failure_reason, run_quietly, runtime
from mustit_pipeline.cli.stopping import raise_if_stopped
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline.settings import load_settings

if TYPE_CHECKING:
    import dagster as dg

POLL_SECONDS = 2.0
HOST = "127.0.0.1"


class Mode(StrEnum):
    """What is done with each seller."""

    REFETCH = "refetch"
    REPLAY = "replay"


@dataclass(slots=True)
class Outcome:
    """The result of a backfill so far; `backfill_id` if Dagster's daemon works on it."""

    mode: Mode
    sellers: list[str]
    backfill_id: str | None = None
    status: str = "REQUESTED"
    succeeded: int = 0
    failed: dict[str, str] = field(default_factory=dict[str, str])

    def document(self) -> dict[str, Any]:
        """What `backfill --json` prints."""
        return {
            "backfillId": self.backfill_id,
            "mode": self.mode.value,
            "sellers": len(self.sellers),
            "status": self.status,
            "succeeded": self.succeeded,
            "failed": [{"sellerId": seller, "message": why} for seller, why in sorted(self.failed.items())],
        }


def backfill(
    seller_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Registered sellers.")] = None,
    every_seller: Annotated[
        bool, typer.Option("--all", help="Every seller: the ACTIVE ones to refetch, all that were crawled to replay.")
    ] = False,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            case_sensitive=False,
            help="refetch: fetch every product again. replay: process stored bodies again, without any request.",
        ),
    ] = Mode.REFETCH,
    watch: Annotated[bool, typer.Option("--watch", help="Wait until every run of it has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch every product of many sellers again, or process their stored bodies again after a fix.

    While `mustit up` (or another Dagster with its UI on MUSTIT_DAGSTER_PORT) runs, it becomes a backfill there, three
    sellers at a time beside the crawls that are due. Otherwise it is done here and now, seller after seller. If a
    seller is being crawled, the backfill joins that crawl. Exit 1 if a seller failed.

    Example: `mustit backfill --all --mode replay --watch`
    """
    if bool(seller_ids) == every_seller:
        raise typer.BadParameter("name sellers, or say --all")
    if mode is Mode.REFETCH:
        _ = load_settings().marketplace_url
    with runtime() as ground, dagster_instance(ground.settings, runs_here=True) as instance:
        outcome = Outcome(mode, _chosen(ground, seller_ids or [], mode))
        if outcome.sellers:
            _ensure_partitions(instance, outcome.sellers)
            ui = DagsterUI(f"http://{HOST}:{ground.settings.dagster_port}")
            if ui.serves(instance):
                _launch(ui, instance, outcome, watch=watch)
            else:
                _work_here(ground, instance, outcome)
        else:
            outcome.status = "COMPLETED"
    if as_json:
        print_json(outcome.document())
    else:
        _tell(outcome, ground.settings.dagster_port)
    raise typer.Exit(1 if outcome.failed or outcome.status in ("FAILED", "CANCELED") else 0)


def _chosen(ground: Runtime, given: list[str], mode: Mode) -> list[str]:
    """The chosen sellers; an invalid one is refused before the work starts."""
    with ground.database.reading() as connection:
        known = {one.seller_id: one for one in sellers.overview(connection)}
    if not given:
        return [
            seller_id
            for seller_id, one in known.items()
            if (one.last_triggered_at is not None if mode is Mode.REPLAY else one.is_active)
        ]
    wanted = list(dict.fromkeys(SellerId(seller_id).value for seller_id in given))
    with ground.database.reading() as connection:
        for missing in [seller_id for seller_id in wanted if seller_id not in known][:1]:
            sellers.get(connection, SellerId(missing))
    inactive = [seller_id for seller_id in wanted if not known[seller_id].is_active]
    if inactive and mode is Mode.REFETCH:
        names = ", ".join(inactive)
        raise Conflict(
            "CONFLICT_SELLER_INACTIVE",
            korean=f"비활성 셀러는 크롤링하지 않습니다: {names}",
            english=f"INACTIVE and not crawled: {names}; nothing was begun",
        )
    return wanted


def _ensure_partitions(instance: "dg.DagsterInstance", seller_ids: list[str]) -> None:
    from mustit_pipeline.defs.partitions import SELLERS

    known = set(instance.get_dynamic_partitions(SELLERS))
    instance.add_dynamic_partitions(SELLERS, [seller_id for seller_id in seller_ids if seller_id not in known])


def _launch(ui: DagsterUI, instance: "dg.DagsterInstance", outcome: Outcome, *, watch: bool) -> None:
    """A backfill in the running Dagster; followed to its end where asked."""
    from mustit_pipeline.defs.crawl.due import CRAWL_ASSETS

    # A replay needs only stored bodies: the assets that send requests are not in it.
    assets = CRAWL_ASSETS if outcome.mode is Mode.REFETCH else CRAWL_ASSETS[-1:]
    steps = ["minishop_listings", "products"] if outcome.mode is Mode.REFETCH else assets
    outcome.backfill_id = ui.launch_backfill(
        assets, outcome.sellers, config=_config(outcome.mode, *steps), title=f"{outcome.mode} from the command line"
    )
    if not watch:
        return
    state = BackfillState("REQUESTED", backfill_state(instance, outcome.backfill_id).runs)

    def look() -> Step:
        ended = sum(state.runs[name] for name in ("SUCCESS", "FAILURE", "CANCELED"))
        return Step(ended, len(outcome.sellers), "sellers")

    with watched(f"backfill {outcome.backfill_id}", look):
        while not state.has_ended:
            time.sleep(POLL_SECONDS)
            state = backfill_state(instance, outcome.backfill_id)
    outcome.succeeded = state.runs["SUCCESS"]
    outcome.failed = {
        seller: f"look at the run {run_id}"
        for seller, run_id in failed_partitions(instance, outcome.backfill_id).items()
    }
    # A run that wrote everything but had failed tasks is a success for Dagster, but not for its seller.
    outcome.status = "COMPLETED_FAILED" if outcome.failed else state.status


def _work_here(ground: Runtime, instance: "dg.DagsterInstance", outcome: Outcome) -> None:
    """The same without a daemon: seller after seller, in this process; a failure does not stop the others."""
    done, at_work = 0, ""
    with watched(f"{outcome.mode} of sellers", lambda: Step(done, len(outcome.sellers), "sellers", note=at_work)):
        for seller_id in outcome.sellers:
            at_work = seller_id
            replay = outcome.mode is Mode.REPLAY
            problem = _replay(instance, seller_id) if replay else _refetch(ground, instance, seller_id)
            if problem is not None:
                outcome.failed[seller_id] = problem
            done += 1
    outcome.succeeded = done - len(outcome.failed)
    outcome.status = "COMPLETED_FAILED" if outcome.failed else "COMPLETED_SUCCESS"


def _refetch(ground: Runtime, instance: "dg.DagsterInstance", seller_id: str) -> str | None:
    try:
        summary = run_crawl(ground, instance, SellerId(seller_id), full=True, quiet=True)
    except Conflict as error:
        return message_of(error)
    if summary.stopped is not None:
        raise summary.stopped
    execution = summary.stored.execution
    if summary.is_good:
        return None
    return summary.problem or f"{execution.failed_tasks} tasks failed: `mustit execution show {execution.id}`"


def _replay(instance: "dg.DagsterInstance", seller_id: str) -> str | None:
    import dagster as dg

    result = run_quietly(
        instance,
        "crawl_seller",
        _config(Mode.REPLAY, "product_change_sets"),
        partition_key=seller_id,
        asset_selection=[dg.AssetKey("product_change_sets")],
    )
    raise_if_stopped(result)
    return None if result.success else failure_reason(result)


def _config(mode: Mode, *steps: str) -> dict[str, Any]:
    return {"ops": {step: {"config": {"mode": mode.name}} for step in steps}}


def _tell(outcome: Outcome, port: int) -> None:
    many = f"{outcome.mode} of {len(outcome.sellers)} sellers"
    if outcome.backfill_id is not None:
        out.print(f"{many}: http://{HOST}:{port}/runs/b/{outcome.backfill_id}", markup=False, highlight=False)
    if outcome.status == "REQUESTED":
        out.print("Dagster works on it; `--watch` would wait for its end.", highlight=False)
        return
    out.print(f"{many}: {outcome.succeeded} succeeded, {len(outcome.failed)} failed", highlight=False)
    if outcome.failed:
        print_table("Failed", ["seller", "why"], sorted(outcome.failed.items()))
    elif outcome.backfill_id is not None and outcome.mode is Mode.REFETCH:
        out.print("A crawl that is longer than its slice goes on by itself: `mustit execution list`.", highlight=False)
