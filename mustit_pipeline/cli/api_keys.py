"""`mustit apikey`: keys for machines."""

from typing import Annotated

import typer

from mustit_pipeline.access import api_keys
from mustit_pipeline.access.sql import api_keys as stored
from mustit_pipeline.api.answers.api_keys import KeyAnswer
from mustit_pipeline.cli.list_options import iso
from mustit_pipeline.cli.output import Json, err, local, out, print_json, print_outcome, print_table
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.domain.access import KeyName, Scope
from mustit_pipeline.domain.filters import read_duration

app = typer.Typer(help="API keys for machines: trigger crawls, read metrics.", no_args_is_help=True)


@app.command("create", epilog="Example: `mustit apikey create --name scheduler --scope trigger --expires 90d`")
def create(
    name: Annotated[str, typer.Option("--name", help="What it is for; two active keys may share a name.")],
    scope: Annotated[list[Scope] | None, typer.Option("--scope", help="What it opens; may be repeated.")] = None,
    expires: Annotated[str, typer.Option("--expires", metavar="TIME", help="How long it lives: 12h, 90d.")] = "90d",
    as_json: Json = False,
) -> None:
    """Create an API key and show it, this once; without --scope it opens `trigger`."""
    key_name, lifetime = KeyName(name), read_duration(expires)
    with runtime() as ground:
        audited = ground.audited("apikey.create", api_keys.target(key_name.value))
        made = api_keys.create(audited, key_name, set(scope or [Scope.TRIGGER]), lifetime)
    if as_json:
        expires_at = iso(made.key.expires_at)
        print_json({"id": made.key.id, "key": made.text, "scope": made.key.scope, "expiresAt": expires_at})
    else:
        out.print(made.text, markup=False, highlight=False, soft_wrap=True)
        err.print(f"Shown this once, and good until {local(made.key.expires_at)}.", highlight=False)


@app.command("list", epilog="Example: `mustit apikey list --json`")
def show_all(as_json: Json = False) -> None:
    """List the API keys; their secrets are known to their owners alone."""
    with runtime() as ground, ground.database.reading() as connection:
        found = stored.everything(connection)
    if as_json:
        print_json([KeyAnswer.document_of(key) for key in found])
    elif not found:
        out.print("There are no API keys.", highlight=False)
    else:
        print_table(
            f"{len(found)} API keys",
            ["id", "name", "scope", "state", "expires", "last use"],
            [(key.id, key.name, key.scope, key.state, local(key.expires_at), local(key.last_used_at)) for key in found],
        )


@app.command("revoke", epilog="Example: `mustit apikey revoke 3f9c0a7be214`")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `mustit apikey list` shows it.")],
    as_json: Json = False,
) -> None:
    """End an API key at once."""
    with runtime() as ground:
        with ground.database.reading() as connection:
            name = stored.get(connection, key_id).name
        audited = ground.audited("apikey.revoke", api_keys.target(name))
        api_keys.revoke(audited, key_id)
        with ground.database.reading() as connection:
            key = stored.get(connection, key_id)
    print_outcome(KeyAnswer.document_of(key), f"{key.id} of {key.name} is refused from now on.", as_json=as_json)
