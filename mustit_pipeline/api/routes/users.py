"""People who may log in, and what they may do."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from mustit_pipeline.access import users
from mustit_pipeline.access.sql import users as stored
from mustit_pipeline.access.users import UserChange
from mustit_pipeline.api.answers.users import UserAnswer
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Body, Pages
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.domain.access import LONGEST_PASSWORD, LONGEST_USER_NAME, SHORTEST_PASSWORD, Role, UserName
from mustit_pipeline.domain.access import Password as GoodPassword

router = APIRouter(prefix="/users", tags=["users"])

_NAME = r"^\w[\w.@+-]*$"
Name = Annotated[
    str, Path(max_length=LONGEST_USER_NAME, pattern=_NAME, description="Case makes no difference", examples=["kim"])
]
Password = Annotated[
    str,
    Field(
        min_length=SHORTEST_PASSWORD,
        max_length=LONGEST_PASSWORD,
        description="Does not contain the user's name",
        examples=["correct horse battery"],
        json_schema_extra={"format": "password"},
    ),
]


class NewUser(Body):
    """A user; without a password only a login link lets the user in."""

    name: Annotated[str, Field(max_length=LONGEST_USER_NAME, pattern=_NAME, examples=["kim"])]
    role: Role
    password: Password | None = None


class ChangedUser(Body):
    """What is changed; the rest stays as it is."""

    role: Role | None = None
    password: Password | None = None
    disabled: Annotated[bool | None, Field(strict=True)] = None


@router.get("")
def list_users(caller: Asking, page: PageNumber = 0, size: Size = 20) -> Pages[UserAnswer]:
    """Users by name."""
    with caller.database.reading() as connection:
        found = stored.all_users(connection)
    shown = found[page * size : (page + 1) * size]
    return pages([UserAnswer.of(user) for user in shown], len(found), page, size)


@router.post("", status_code=201)
def add_user(body: NewUser, caller: Asking) -> UserAnswer:
    """Add a user."""
    name = UserName(body.name)
    password = None if body.password is None else GoodPassword(body.password, name)
    audited = caller.audited("user.add", users.target(name))
    return UserAnswer.of(users.add(audited, name, body.role, password))


@router.patch("/{name}")
def change_user(name: Name, body: ChangedUser, caller: Asking) -> UserAnswer:
    """Give a user another role or password, disable or enable; the user's access tokens are refused from then on.

    The last enabled admin can be neither disabled nor made viewer.
    """
    user_name = UserName(name)
    password = None if body.password is None else GoodPassword(body.password, user_name)
    audited = caller.audited(_action(body), users.target(user_name, password=password is not None))
    return UserAnswer.of(users.change(audited, user_name, UserChange(body.role, password, body.disabled)))


def _action(body: ChangedUser) -> str:
    """As the command line names a single change."""
    actions = {
        "user.role": body.role is not None,
        "user.password": body.password is not None,
        "user.disable": body.disabled is True,
        "user.enable": body.disabled is False,
    }
    given = [action for action, wanted in actions.items() if wanted]
    return given[0] if len(given) == 1 else "user.change"
