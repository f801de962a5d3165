"""`mustit user`: who may log in, and with which role."""

import sys
from typing import Annotated

import typer

from mustit_pipeline.access import users
from mustit_pipeline.access.sql import users as stored
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.api.answers.users import UserAnswer
from mustit_pipeline.cli.output import Json, local, out, print_json, print_outcome, print_table
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.domain.access import Password, Role, UserName
from mustit_pipeline.foundation.audited import Target

app = typer.Typer(help="People who may log in, and what they may do.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name to log in with; case makes no difference.")]
FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin; else it is asked for.")
]


@app.command("add", epilog="Example: `mustit user add kim --role admin`")
def add(
    name: Name,
    role: Annotated[Role, typer.Option("--role", help="A viewer reads, an admin changes too.")],
    password_stdin: FromStdin = False,
    as_json: Json = False,
) -> None:
    """Add a user; the password has 12 to 256 characters and is never an argument."""
    user_name = UserName(name)
    password = _password(user_name, from_stdin=password_stdin)
    with runtime() as ground:
        user = users.add(ground.audited("user.add", users.target(user_name)), user_name, role, password)
    _say(user, f"Added {user.name} as {user.role}.", as_json)


@app.command("list", epilog="Example: `mustit user list`")
def show_all(as_json: Json = False) -> None:
    """List the users."""
    with runtime() as ground, ground.database.reading() as connection:
        found = stored.all_users(connection)
    if as_json:
        print_json([UserAnswer.document_of(user) for user in found])
    elif not found:
        out.print("There are no users: `mustit user add` adds one.", highlight=False)
    else:
        print_table(
            f"{len(found)} users",
            ["name", "role", "state", "last login", "added"],
            [(user.name, user.role, _state(user), local(user.last_login_at), local(user.created_at)) for user in found],
        )


@app.command("role", epilog="Example: `mustit user role kim viewer`")
def change_role(
    name: Name,
    role: Annotated[Role, typer.Argument(metavar="ROLE", help="admin or viewer.")],
    as_json: Json = False,
) -> None:
    """Give a user another role; access tokens of before are refused at once."""
    user_name = UserName(name)
    with runtime() as ground:
        user = users.change_role(ground.audited("user.role", users.target(user_name)), user_name, role)
    _say(user, f"{user.name} is {user.role} now.", as_json)


@app.command("password", epilog="Example: `mustit user password kim`")
def change_password(name: Name, password_stdin: FromStdin = False, as_json: Json = False) -> None:
    """Give a user another password; access tokens of before are refused at once."""
    user_name = UserName(name)
    password = _password(user_name, from_stdin=password_stdin)
    with runtime() as ground:
        # Nothing of a password may be seen in the log, so that there is nothing to look at.
        audited = ground.audited("user.password", Target(f"user {user_name}"))
        user = users.change_password(audited, user_name, password)
    _say(user, f"{user.name} has another password now.", as_json)


@app.command("disable", epilog="Example: `mustit user disable kim`")
def disable(name: Name, as_json: Json = False) -> None:
    """Let a user in no more; access tokens of before are refused at once."""
    user_name = UserName(name)
    with runtime() as ground:
        user = users.disable(ground.audited("user.disable", users.target(user_name)), user_name)
    _say(user, f"{user.name} is disabled.", as_json)


@app.command("enable", epilog="Example: `mustit user enable kim`")
def enable(name: Name, as_json: Json = False) -> None:
    """Let a disabled user in again."""
    user_name = UserName(name)
    with runtime() as ground:
        user = users.enable(ground.audited("user.enable", users.target(user_name)), user_name)
    _say(user, f"{user.name} is enabled.", as_json)


def _password(name: UserName, *, from_stdin: bool) -> Password:
    if from_stdin:
        return Password(sys.stdin.readline().rstrip("\r\n"), name)
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is no terminal on which to ask for the password: say --password-stdin")
    return Password(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True), name)


def _say(user: User, line: str, as_json: bool) -> None:
    print_outcome(UserAnswer.document_of(user), line, as_json=as_json)


def _state(user: User) -> str:
    if user.is_disabled:
        return "disabled"
    return "enabled" if user.has_password else "no password"
