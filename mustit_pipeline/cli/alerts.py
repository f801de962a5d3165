"""`mustit alerts`: open problems, and a test of the notifications."""

from typing import Annotated

import typer
from rich.table import Table

from mustit_pipeline.api.answers.alerts import AlertAnswer
from mustit_pipeline.cli.list_options import Limit, cut, make_table, minute, show_page, status
from mustit_pipeline.cli.output import Json, out, print_json
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.monitoring.channels import Message, channels
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.alerts import Alert
from mustit_pipeline.settings import SettingsError, load_settings

app = typer.Typer(help="Open problems, their notifications, and a test message.", no_args_is_help=True)


@app.command("list", epilog="Example: `mustit alerts list --all --json`")
def show_all(
    everything: Annotated[bool, typer.Option("--all", help="Ended ones too.")] = False,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List open alerts, newest first; they are kept also without MUSTIT_ALERT_URLS."""
    with runtime() as ground, ground.database.reading() as connection:
        found = alerts.newest(connection, everything=everything, limit=limit)
    show_page(found, as_json=as_json, document=AlertAnswer.document_of, table=_table, empty="No alert is open.")


@app.command("test", epilog="Example: `MUSTIT_ALERT_URLS=json://127.0.0.1:9000/ mustit alerts test`")
def send_test(as_json: Json = False) -> None:
    """Send a test message to every address of MUSTIT_ALERT_URLS; exit 1 if one does not accept it."""
    targets = channels(load_settings().alert_addresses())
    if not targets:
        raise SettingsError(
            "MUSTIT_ALERT_URLS is not set: alerts are kept (`mustit alerts list`), but not sent",
            korean="MUSTIT_ALERT_URLS가 설정되지 않아 알림은 저장되지만(`mustit alerts list`) 전송되지 않습니다",
        )
    message = Message("[mustit] Test", "This is a test of `mustit alerts test`. Nothing is wrong.", good_news=True)
    errors = {channel.name: channel.send(message) for channel in targets}
    if as_json:
        print_json([{"address": name, "sent": error is None, "error": error} for name, error in errors.items()])
    else:
        for name, error in errors.items():
            out.print(error or f"{name}: sent", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1 if any(errors.values()) else 0)


def _table(found: list[Alert]) -> Table:
    return make_table(
        ["status", "since", "ended", "notified"],
        ["alert", "detail"],
        [
            (
                status("OPEN" if alert.ended_at is None else "ENDED"),
                minute(alert.opened_at),
                minute(alert.ended_at),
                "failed" if alert.last_error else alert.notices,
                alert.title,
                cut(alert.detail),
            )
            for alert in found
        ],
    )
