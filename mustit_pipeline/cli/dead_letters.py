"""`mustit dlq`: messages of tasks that failed after all attempts, or that SQS has parked."""

from typing import Annotated, Any

import typer
from rich.table import Table

from mustit_pipeline.access import audit
from mustit_pipeline.cli.actor import cli_actor
from mustit_pipeline.cli.list_options import iso, make_table, minute, short, show_page, status
from mustit_pipeline.cli.output import Json, local, out, print_fields, print_json, print_outcome
from mustit_pipeline.cli.runtime import Runtime, runtime
from mustit_pipeline.crawling.dead_letters import DeadLetter, DeadLetters
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.paging import page
from mustit_pipeline.settings import SettingsError

app = typer.Typer(
    help="Messages of tasks that failed after all attempts, or that no worker ever ended: look, send again, drop.",
    no_args_is_help=True,
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The message's id, or how it begins.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many, oldest first.")]


@app.command("list", epilog="Example: `mustit dlq list --json`")
def show_all(limit: Limit = 100, as_json: Json = False) -> None:
    """List dead letters, oldest first, each with its reason and its task as it is now."""
    with runtime() as ground, _letters(ground).look(limit + 1) as letters:
        show_page(
            page(letters, limit), as_json=as_json, document=_document, table=_table, empty="There is no dead letter."
        )


@app.command("show", epilog="Example: `mustit dlq show 0b6f13c2`")
def show(message_id: Id, as_json: Json = False) -> None:
    """Show one dead letter: its reason, its text, and its task as it is now."""
    with runtime() as ground, _letters(ground).find(message_id) as letter:
        if as_json:
            print_json(_document(letter))
            return
        print_fields(
            {
                "id": letter.id,
                "reason": letter.reason,
                "sent": local(letter.message.sent_at),
                "received": f"{letter.message.receives} times, this time included",
                "group": letter.message.group,
                "task": letter.says and letter.says.task_id,
                "task now": "unknown" if letter.status is None else status(letter.status.value),
                "body": letter.message.body,
            },
            leave_out_empty=True,
        )


@app.command("redrive", epilog="Example: `mustit dlq redrive --all`")
def redrive(
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="The message's id, or how it begins.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter whose task has not succeeded.")] = False,
    as_json: Json = False,
) -> None:
    """Have the calls of dead letters made: open tasks are sent again, failed ones planned anew in another crawl."""
    if (not message_id) is not everything:
        raise typer.BadParameter("give either a message's id or --all")
    with runtime() as ground:
        letters = _letters(ground, "dlq.redrive", f"dead letters {message_id or '(all)'}")
        if message_id:
            with letters.find(message_id) as letter:
                done = {letter.id: letters.redrive(letter)}
        else:
            done = letters.redrive_all()
    redriven = [one for one, what in done.items() if what.is_done]
    if message_id and not redriven:
        [(one, what)] = done.items()
        raise Conflict(
            "CONFLICT_DEAD_LETTER_ENDED",
            korean=f"다시 보낼 작업이 없는 메시지입니다: {one}",
            english=f"{one} is not redriven: {what}. `mustit dlq drop {one}` removes it",
        )
    if as_json:
        left = {one: what.name for one, what in done.items() if one not in redriven}
        print_json({"redriven": redriven, "left": left})
        return
    for one, what in done.items():
        out.print(f"{one}: {what.value}", highlight=False)
    if not done:
        out.print("There is no dead letter.", highlight=False)


@app.command("drop", epilog="Example: `mustit dlq drop 0b6f13c2`")
def drop(message_id: Id, as_json: Json = False) -> None:
    """Remove a dead letter for good. Its task, if it is open, is sent again by recovery and needs no message."""
    with runtime() as ground:
        letters = _letters(ground)
        with letters.find(message_id) as letter:
            with ground.database.transaction() as connection:
                audit.record(connection, cli_actor(), "dlq.drop", f"dead letter {letter.id}", before=None, after=None)
            letters.drop(letter)
    print_outcome({"dropped": letter.id}, f"{letter.id} is dropped.", as_json=as_json)


def _letters(ground: Runtime, action: str | None = None, target: str = "") -> DeadLetters:
    if ground.settings.task_transport != "sqs":
        raise SettingsError(
            "MUSTIT_TASK_TRANSPORT is not sqs: PostgreSQL carries the tasks, and there is no dead-letter queue",
            korean="MUSTIT_TASK_TRANSPORT가 sqs가 아닙니다. PostgreSQL이 작업을 전달하므로 DLQ가 없습니다",
        )
    database = ground.database if action is None else ground.audited(action, Target(target))
    return DeadLetters(database, ground.settings)


def _table(found: list[DeadLetter]) -> Table:
    return make_table(
        ["id", "sent", "task now"],
        ["seller", "type", "reason", "url"],
        [
            (
                short(one.id),
                minute(one.message.sent_at),
                "unknown" if one.status is None else status(one.status.value),
                one.says and one.says.seller_id,
                one.says and one.says.task_type.value,
                one.reason,
                one.says.request_url if one.says else one.message.body,
            )
            for one in found
        ],
    )


def _document(one: DeadLetter) -> dict[str, Any]:
    says = one.says
    return {
        "messageId": one.id,
        "sentAt": iso(one.message.sent_at),
        "receives": one.message.receives,
        "group": one.message.group,
        "body": one.message.body,
        "taskId": says and str(says.task_id),
        "sellerId": says and says.seller_id,
        "taskType": says and says.task_type.value,
        "requestUrl": says and says.request_url,
        "taskStatus": one.status and one.status.value,
        "reason": one.reason,
    }
