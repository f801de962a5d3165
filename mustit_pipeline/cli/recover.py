"""`mustit recover`: recover stuck work, through the same Dagster job that runs each minute."""

from mustit_pipeline.cli.output import Json, out, print_json, print_table
from mustit_pipeline.cli.runtime import RunFailed, dagster_instance, failure_reason, run_quietly, runtime
from mustit_pipeline.cli.stopping import raise_if_stopped

KINDS = {
    "released_tasks": ("releasedTasks", "tasks of silent workers, back in the queue"),
    "completed_executions": ("completedExecutions", "crawls that only had to be ended"),
    "released_events": ("releasedEvents", "product events without a sender, waiting again"),
    "recovered_agents": ("recoveredAgents", "agents whose rest was over"),
    "processed_sellers": ("processedSellers", "sellers with unprocessed fetched changes"),
    "failed_runs": ("failedRuns", "runs whose process is gone"),
}


def recover(as_json: Json = False) -> None:
    """Recover the work of a dead worker, relay or run, now instead of within a minute.

    Example: `mustit recover --json`
    """
    with runtime() as ground, dagster_instance(ground.settings, runs_here=True) as instance:
        result = run_quietly(instance, "recover_stuck_work")
        raise_if_stopped(result)
        if not result.success:
            raise RunFailed(failure_reason(result))
        totals: dict[str, int] = result.output_for_node("recover_what_is_stuck")
    if as_json:
        print_json({name: totals[key] for key, (name, _) in KINDS.items()})
    elif any(totals.values()):
        print_table("Recovered", ["", "what"], [(totals[key], what) for key, (_, what) in KINDS.items() if totals[key]])
    else:
        out.print("nothing was stuck")
