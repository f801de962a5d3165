"""The schema's version: upgrading it, and refusing to work with another one."""

from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from mustit_pipeline.environment_failure import EnvironmentFailure
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import Only


class SchemaMismatch(EnvironmentFailure):
    """The database's schema is not the one that this code was written for."""

    code = "CONFLICT_SCHEMA_VERSION"
    topic = "데이터베이스 스키마 버전이 맞지 않습니다"


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The revision of the database, and the one that this code needs."""

    current: str | None
    expected: str

    @property
    def is_current(self) -> bool:
        return self.current == self.expected


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def expected_revision() -> str:
    """The newest revision that this code knows."""
    head = _scripts().get_current_head()
    if head is None:
        raise SchemaMismatch("this installation holds no migrations: reinstall mustit_pipeline")
    return head


def current_revision(connection: Connection) -> str | None:
    """The database's revision; None without a schema."""
    return MigrationContext.configure(connection).get_current_revision()


def status(connection: Connection) -> SchemaStatus:
    """The database's revision and ours."""
    return SchemaStatus(current_revision(connection), expected_revision())


def upgrade(connection: Connection) -> SchemaStatus:
    """Bring the schema up to date inside the caller's transaction; a second caller waits and finds nothing to do."""
    advisory_locks.lock(connection, Only.SCHEMA_UPGRADE)
    before = status(connection)
    _refuse_unknown(before)
    if not before.is_current:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return before


def require_current(connection: Connection) -> None:
    """Refuse an older, newer or missing schema; the message says what to do."""
    found = status(connection)
    if found.is_current:
        return
    _refuse_unknown(found)
    state = "has no schema yet" if found.current is None else f"has the older schema {found.current}"
    present = "스키마가 없습니다" if found.current is None else f"이전 스키마 {found.current}이(가) 있습니다"
    raise SchemaMismatch(
        f"the database {state}, this code needs {found.expected}: run `mustit db upgrade`",
        korean=f"데이터베이스에 {present}. "
        f"이 코드에는 {found.expected}이(가) 필요합니다: `mustit db upgrade`를 실행하세요",
    )


def _refuse_unknown(found: SchemaStatus) -> None:
    known = {script.revision for script in _scripts().walk_revisions()}
    if found.current is not None and found.current not in known:
        raise SchemaMismatch(
            f"the database has the schema {found.current}, which is newer than this code "
            f"(it knows up to {found.expected}): upgrade mustit_pipeline",
            korean=f"데이터베이스의 스키마 {found.current}이(가) 이 코드가 아는 {found.expected}보다 새롭습니다: "
            "mustit_pipeline을 업그레이드하세요",
        )
