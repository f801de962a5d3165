"""A user with a password, and what tokens are signed with."""

import pytest

from mustit_pipeline.access import users
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.domain.access import Password, Role, UserName
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings, SigningKeys
from mustit_pipeline_tests.conftest import MakeSettings

KIM = UserName("kim")
PASSWORD = "correct horse battery"


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    return make_settings()


@pytest.fixture
def keys(settings: Settings) -> SigningKeys:
    return settings.signing_keys()


@pytest.fixture
def kim(database: Database) -> User:
    """An admin, and not the last one, who could not be disabled."""
    users.add(database, UserName("park"), Role.ADMIN, None)
    return users.add(database, KIM, Role.ADMIN, Password(PASSWORD, KIM))
