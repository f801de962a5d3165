"""Users: whatever is changed, an admin who can log in is left."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mustit_pipeline.access import users
from mustit_pipeline.access.sql import users as stored
from mustit_pipeline.access.users import UserChange
from mustit_pipeline.domain.access import Role, UserName
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.foundation.database import Database

ADMINS = [UserName(f"admin{number}") for number in range(6)]


@pytest.mark.parametrize("change", [UserChange(role=Role.VIEWER), UserChange(disabled=True)])
def test_admins_who_are_all_changed_at_once_leave_one_of_them(database: Database, change: UserChange) -> None:
    for name in ADMINS:
        users.add(database, name, Role.ADMIN, None)

    def refusal(name: UserName) -> str | None:
        try:
            users.change(database, name, change)
        except Conflict as error:
            return error.code
        return None

    with ThreadPoolExecutor(len(ADMINS)) as pool:
        refused = [code for code in pool.map(refusal, reversed(ADMINS)) if code is not None]

    assert refused == ["CONFLICT_LAST_ADMIN"]
    with database.reading() as connection:
        left = [user for user in stored.all_users(connection) if user.role is Role.ADMIN and not user.is_disabled]
    assert len(left) == 1


def test_a_refused_change_changes_nothing_of_the_rest(database: Database) -> None:
    users.add(database, ADMINS[0], Role.ADMIN, None)
    users.add(database, ADMINS[1], Role.VIEWER, None)
    with pytest.raises(Conflict, match="enabled already"):
        users.change(database, ADMINS[1], UserChange(role=Role.ADMIN, disabled=False))
    with database.reading() as connection:
        assert stored.get(connection, ADMINS[1]).role is Role.VIEWER


def test_an_admin_who_is_disabled_is_no_last_one(database: Database) -> None:
    for name in ADMINS[:2]:
        users.add(database, name, Role.ADMIN, None)
    users.disable(database, ADMINS[0])
    with pytest.raises(Conflict, match="CONFLICT_LAST_ADMIN"):
        users.change_role(database, ADMINS[1], Role.VIEWER)
    users.change_role(database, ADMINS[0], Role.VIEWER)
