"""`mustit token`: access tokens for scripts of an operator."""

from typing import Annotated
from uuid import UUID

import typer

from mustit_pipeline.access import audit, tokens
from mustit_pipeline.cli.actor import cli_actor, operator
from mustit_pipeline.cli.list_options import iso
from mustit_pipeline.cli.output import Json, err, local, out, print_json, print_outcome
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.domain.access import Role
from mustit_pipeline.domain.filters import read_duration
from mustit_pipeline.foundation.clock import utc_now

app = typer.Typer(help="Access tokens of the REST API, without a user.", no_args_is_help=True)


@app.command("issue", epilog="Example: `mustit token issue --role viewer --ttl 15m`")
def issue(
    role: Annotated[Role, typer.Option("--role", help="A viewer reads, an admin changes too.")],
    ttl: Annotated[str, typer.Option("--ttl", metavar="TIME", help="How long it lives: 15m, 2h; 24h at most.")] = "15m",
    as_json: Json = False,
) -> None:
    """Print an access token that speaks for this account of this host; the audit log names who issued it."""
    lifetime = read_duration(ttl)
    with runtime() as ground:
        token = tokens.issue_for_cli(ground.settings.signing_keys(), operator(), role, utc_now(), lifetime)
        after = {"id": str(token.jti), "role": role.value, "expiresAt": iso(token.expires_at)}
        with ground.database.transaction() as connection:
            audit.record(connection, cli_actor(), "token.issue", f"token {token.jti}", before=None, after=after)
    if as_json:
        print_json(
            {
                "accessToken": token.text,
                "role": role.value,
                "expiresAt": iso(token.expires_at),
                "tokenId": str(token.jti),
            }
        )
    else:
        out.print(token.text, markup=False, highlight=False, soft_wrap=True)
        err.print(f"Until {local(token.expires_at)}; end it with: mustit token revoke {token.jti}", highlight=False)


@app.command("revoke", epilog="Example: `mustit token revoke 0d3c1f1e-3f5b-4b2e-9a51-6a0f6f6c2b11`")
def revoke(
    token_id: Annotated[UUID, typer.Argument(metavar="ID", help="The token's id, its `jti`.")], as_json: Json = False
) -> None:
    """End an access token before its time, of any user."""
    with runtime() as ground, ground.database.transaction() as connection:
        tokens.revoke_by_id(connection, token_id, utc_now())
        audit.record(connection, cli_actor(), "token.revoke", f"token {token_id}", before=None, after=None)
    print_outcome({"tokenId": str(token_id), "revoked": True}, f"{token_id} is refused from now on.", as_json=as_json)
