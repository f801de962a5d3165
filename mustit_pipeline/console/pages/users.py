"""Users and API keys: who may come in, with which rights."""

from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus

from fastapi import APIRouter, Response

from mustit_pipeline.access import api_keys, login_links, users
from mustit_pipeline.access.sql import api_keys as stored_keys
from mustit_pipeline.access.sql import users as stored_users
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.pages.frame import chosen, framed, unreadable_choice
from mustit_pipeline.console.visits import Undo, Visit, Visiting
from mustit_pipeline.domain.access import KeyName, Role, Scope, UserName
from mustit_pipeline.foundation.audited import Target

DAYS = (30, 90, 365)

router = APIRouter(prefix="/users")


@dataclass(frozen=True, slots=True)
class Shown:
    """A secret that is shown this once."""

    title: str
    hint: str
    secret: str = field(repr=False)


@router.get("")
def list_users(visit: Visiting) -> Response:
    """All users and keys."""
    return _page(visit)


@router.post("")
def add(visit: Visiting, sent: Sending) -> Response:
    """A new user, who sets a password by a login link."""
    name, role = UserName(sent.text("name")), _role(sent.text("role"))
    users.add(visit.audited("user.add", users.target(name)), name, role, None)
    return _page(visit, _link(visit, name), HTTPStatus.CREATED)


@router.post("/link")
def link(visit: Visiting, sent: Sending) -> Response:
    """Another login link for a user, who may have lost the password."""
    return _page(visit, _link(visit, UserName(sent.text("name"))))


@router.post("/role")
def change_role(visit: Visiting, sent: Sending) -> Response:
    """Give a user another role; the user's sessions end."""
    name, role = UserName(sent.text("name")), _role(sent.text("role"))
    users.change_role(visit.audited("user.role", users.target(name)), name, role)
    said = visit.say("The role of %(name)s is changed. Written to the audit log.", name=name)
    before = Role.VIEWER if role is Role.ADMIN else Role.ADMIN
    return visit.done("/users", said, undo=Undo("/users/role", (("name", name.value), ("role", before.value))))


@router.post("/disable")
def disable(visit: Visiting, sent: Sending) -> Response:
    """Let a user in no more, once that is confirmed."""
    name = UserName(sent.text("name"))
    if not sent.is_confirmed:
        return ask(
            visit,
            sent,
            title=visit.say("Disable %(name)s?", name=name),
            text=visit.say("Sessions and access tokens of this user end at once. Enabling undoes it."),
            action=visit.say("Disable"),
            danger=True,
        )
    users.disable(visit.audited("user.disable", users.target(name)), name)
    said = visit.say("%(name)s is disabled. Written to the audit log.", name=name)
    return visit.done("/users", said, undo=Undo("/users/enable", (("name", name.value),)))


@router.post("/enable")
def enable(visit: Visiting, sent: Sending) -> Response:
    """Let a user in again."""
    name = UserName(sent.text("name"))
    users.enable(visit.audited("user.enable", users.target(name)), name)
    said = visit.say("%(name)s is enabled. Written to the audit log.", name=name)
    return visit.done("/users", said, undo=Undo("/users/disable", (("name", name.value),)))


@router.post("/keys")
def create_key(visit: Visiting, sent: Sending) -> Response:
    """A new API key, shown this once."""
    name, scope = KeyName(sent.text("name")), chosen(Scope, sent.text("scope"))
    days = sent.text("days")
    if scope is None or days not in {str(one) for one in DAYS}:
        raise unreadable_choice()
    database = visit.audited("apikey.create", api_keys.target(name.value))
    made = api_keys.create(database, name, {scope}, timedelta(days=int(days)))
    title = visit.say("The API key %(name)s", name=name)
    hint = visit.say("Copy it now: it is shown this once. It goes into the header X-API-Key.")
    return _page(visit, Shown(title, visit.say_logged(hint), made.text), HTTPStatus.CREATED)


@router.post("/keys/revoke")
def revoke_key(visit: Visiting, sent: Sending) -> Response:
    """End a key at once, once that is confirmed."""
    with visit.database.reading() as connection:
        key = stored_keys.get(connection, sent.text("key"))
    if not sent.is_confirmed:
        return ask(
            visit,
            sent,
            title=visit.say("Revoke the API key %(name)s?", name=key.name),
            text=visit.say("Requests with it are refused at once. This cannot be undone."),
            action=visit.say("Revoke"),
            danger=True,
        )
    api_keys.revoke(visit.audited("apikey.revoke", api_keys.target(key.name)), key.id)
    return visit.done("/users", visit.say("The API key is revoked. Written to the audit log."))


def _link(visit: Visit, name: UserName) -> Shown:
    made = login_links.make_link(visit.audited("user.link", Target(f"user {name}")), name)
    minutes = int(login_links.LIFETIME.total_seconds() // 60)
    title = visit.say("A login link for %(name)s", name=name)
    hint = visit.say("Give it to this person: it works once, within %(minutes)s minutes.", minutes=minutes)
    return Shown(title, visit.say_logged(hint), made.path)


def _page(visit: Visit, shown: Shown | None = None, status: int = HTTPStatus.OK) -> Response:
    with visit.database.reading() as connection:
        return framed(
            visit,
            connection,
            "users.html",
            status,
            shown=shown,
            origin=visit.origin,
            users=stored_users.all_users(connection),
            keys=stored_keys.everything(connection),
            roles=list(Role),
            scopes=list(Scope),
            days=DAYS,
        )


def _role(text: str) -> Role:
    role = chosen(Role, text)
    if role is None:
        raise unreadable_choice()
    return role
