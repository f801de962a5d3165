"""Every setting in one place, read once from the environment (prefix MUSTIT_)."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mustit_pipeline.environment_failure import EnvironmentFailure
from mustit_pipeline.settings.addresses import PathOrBucket, PostgresUrl, RedisUrl
from mustit_pipeline.settings.agents import AgentSettings
from mustit_pipeline.settings.api import ApiSettings
from mustit_pipeline.settings.aws import AwsSettings
from mustit_pipeline.settings.bearer_token import BearerToken
from mustit_pipeline.settings.checks import CheckSettings
from mustit_pipeline.settings.crawls import CrawlSettings
from mustit_pipeline.settings.delivery import DeliverySettings
from mustit_pipeline.settings.deployment import DeploymentSettings
from mustit_pipeline.settings.http_url import HttpUrl
from mustit_pipeline.settings.logs import LogSettings
from mustit_pipeline.settings.made_secrets import SigningKeys, TokenKey, made_once
from mustit_pipeline.settings.marketplace import MARKETPLACE, MarketplaceCallSettings
from mustit_pipeline.settings.recrawl import RecrawlSettings
from mustit_pipeline.settings.simulated_world import SimulatedWorldSource
from mustit_pipeline.settings.upkeep import UpkeepSettings
from mustit_pipeline.settings.wrong_setting import WrongSetting, korean_of

T = TypeVar("T")
PREFIX = "MUSTIT_"
# Pairs of settings of which the second must not be smaller than the first.
ORDERED = (
    ("database_connections", "database_max_connections"),
    ("raw_unchanged_days", "raw_retention_days"),
    ("truth_window_days", "truth_retention_days"),
)


class SettingsError(EnvironmentFailure):
    """A setting is missing or wrong; the message names the variable and its valid values."""

    code = "VALIDATION_SETTINGS"
    topic = "설정이 잘못되었습니다"


def _same_database(one: str, other: str | None) -> bool:
    """Whether two addresses are the same database, whatever their driver."""
    return other is not None and one.partition("://")[2] == other.partition("://")[2]


class Settings(
    MarketplaceCallSettings,
    CrawlSettings,
    DeliverySettings,
    AgentSettings,
    RecrawlSettings,
    UpkeepSettings,
    DeploymentSettings,
    ApiSettings,
    AwsSettings,
    CheckSettings,
    LogSettings,
):
    """All settings, each with its default and a description."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True, allow_inf_nan=False
    )

    home: Path = Field(Path(".mustit"), description="Where the embedded servers, their data and made secrets live")
    database_url: PostgresUrl | None = Field(None, description="Business database; without it PostgreSQL is embedded")
    dagster_database_url: PostgresUrl | None = Field(None, description="Dagster's own database")
    database_connections: int = Field(10, ge=1, le=1000, description="Connections to the database a process keeps")
    database_max_connections: int = Field(50, ge=1, le=1000, description="And how many it opens when all are in use")
    dagster_port: int = Field(3000, ge=1, le=65535, description="Port of the Dagster UI")
    dagster_viewer_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port of the Dagster UI that can change nothing, the viewers'; `up` takes a free one without it",
    )
    redis_url: RedisUrl | None = Field(
        None, description="Redis; `off` uses PostgreSQL only; without it embedded, or off where DATABASE_URL is set"
    )

    demo: Literal["lively", "calm"] = Field(
        "lively",
        description="Whether the world that `up` simulates goes on by itself: products change, come and go, servers "
        "have bad minutes, and demo sellers are crawled every two minutes; or stays as it is",
    )

    product_server_url: HttpUrl | None = Field(
        None, description="Where product events are sent; `up` and `demo` simulate a server unless this is set"
    )
    product_server_token: BearerToken | None = Field(
        None, description="Bearer token for the product server, if it asks"
    )
    token_key: SecretStr | None = Field(None, description="32 bytes in base64; `kid:key[,kid:key]` for rotation")
    jwt_secret: SecretStr | None = Field(
        None,
        description="Signs access tokens, 32 characters at least; `kid:secret[,kid:secret]` for rotation, first signs",
    )

    lake_uri: PathOrBucket | None = Field(
        None, description="Where Parquet goes: a path or s3://; MUSTIT_HOME/lake without it"
    )

    @field_validator("home")
    @classmethod
    def _home(cls, value: Path) -> Path:
        try:
            return value.expanduser()
        except RuntimeError as error:
            raise WrongSetting(
                "takes a folder; the account after ~ is not known here",
                korean="폴더여야 합니다. ~ 뒤의 계정을 이 호스트에서 찾을 수 없습니다",
            ) from error

    @field_validator("token_key")
    @classmethod
    def _token_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            TokenKey(value.get_secret_value())
        return value

    @field_validator("jwt_secret")
    @classmethod
    def _jwt_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            SigningKeys(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _whole(self) -> "Settings":
        object.__setattr__(self, "home", self.home.absolute())
        if self.database_url is not None:
            missing = [n for n in ("dagster_database_url", "token_key", "jwt_secret") if getattr(self, n) is None]
            if missing:
                names = ", ".join(PREFIX + name.upper() for name in missing)
                raise WrongSetting(
                    f"with {PREFIX}DATABASE_URL set, {names} must be set too",
                    korean=f"{PREFIX}DATABASE_URL을 설정하면 {names}도 설정해야 합니다",
                )
            if _same_database(self.database_url, self.dagster_database_url):
                raise WrongSetting(
                    f"{PREFIX}DAGSTER_DATABASE_URL takes another database than {PREFIX}DATABASE_URL: "
                    "both keep the version of their schema in a table of the same name",
                    korean=f"{PREFIX}DAGSTER_DATABASE_URL은 {PREFIX}DATABASE_URL과 다른 데이터베이스여야 합니다. "
                    "두 스키마의 버전이 같은 이름의 테이블에 저장됩니다",
                )
        elif self.dagster_database_url is not None:
            raise WrongSetting(
                f"{PREFIX}DAGSTER_DATABASE_URL is set but {PREFIX}DATABASE_URL is not: set both or neither",
                korean=f"{PREFIX}DAGSTER_DATABASE_URL만 설정되어 있습니다. "
                f"{PREFIX}DATABASE_URL과 함께 설정하거나 함께 비우세요",
            )
        if self.run_launcher == "celery" and self.broker_url is None and not self.has_redis:
            raise WrongSetting(
                f"{PREFIX}RUN_LAUNCHER is celery, but there is no Redis: set {PREFIX}REDIS_URL or {PREFIX}BROKER_URL",
                korean=f"{PREFIX}RUN_LAUNCHER가 celery이지만 Redis가 없습니다. "
                f"{PREFIX}REDIS_URL 또는 {PREFIX}BROKER_URL을 설정하세요",
            )
        for least, most in ORDERED:
            if getattr(self, least) > getattr(self, most):
                first, second = f"{PREFIX}{least.upper()}", f"{PREFIX}{most.upper()}"
                raise WrongSetting(
                    f"{first} is {getattr(self, least)} and {second} {getattr(self, most)}: "
                    "the second cannot be the smaller one",
                    korean=f"{second}({getattr(self, most)})은(는) "
                    f"{first}({getattr(self, least)})보다 작을 수 없습니다",
                )
        return self

    @property
    def embedded(self) -> bool:
        """Whether the embedded PostgreSQL is used."""
        return self.database_url is None

    @property
    def embedded_redis(self) -> bool:
        """Whether the embedded Redis is used."""
        return self.redis_url is None and self.embedded

    @property
    def has_redis(self) -> bool:
        """Whether a Redis is used, embedded or external."""
        return self.embedded_redis or self.redis_url not in (None, "off")

    @property
    def marketplace_url(self) -> str:
        """The marketplace's address; raises if none is set, so that no command calls the real one by accident."""
        if self.base_url is None:
            raise SettingsError(
                f"{PREFIX}BASE_URL is not set, so that there is no marketplace to call: set it to {MARKETPLACE} for "
                "the real one, or run `mustit up` (which commands of the same home then use) or `mustit demo` for a "
                "simulated one",
                korean=f"{PREFIX}BASE_URL이 설정되지 않아 호출할 마켓플레이스가 없습니다. "
                f"실제 마켓플레이스는 {MARKETPLACE}로 설정하고, 시뮬레이션은 "
                "`mustit up` 또는 `mustit demo`를 실행하세요",
            )
        return self.base_url

    def token_keys(self) -> TokenKey:
        """The keys for tokens at rest, made once under HOME on the embedded default."""
        if self.token_key is not None:
            return TokenKey(self.token_key.get_secret_value())
        return self._made("token_key", TokenKey)

    def signing_keys(self) -> SigningKeys:
        """The keys of access tokens, made once under HOME on the embedded default."""
        if self.jwt_secret is not None:
            return SigningKeys(self.jwt_secret.get_secret_value())
        return self._made("jwt_secret", SigningKeys)

    def make_secrets(self) -> None:
        """Generate missing secrets on the embedded default, so that they can be backed up before they are needed."""
        if self.embedded:
            self.token_keys()
            self.signing_keys()

    def _made(self, name: str, read: Callable[[str], T]) -> T:
        """A secret of 32 bytes in base64 that was generated here once."""
        try:
            return read(made_once(self.home, name))
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"{self.home}/secrets/{name}, made because {PREFIX}{name.upper()} is not set, cannot be used: {error}",
                korean=f"{PREFIX}{name.upper()}이(가) 설정되지 않아 만든 "
                f"{self.home}/secrets/{name}을(를) 사용할 수 없습니다: "
                f"{error.korean if isinstance(error, WrongSetting) else error}",
            ) from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, SimulatedWorldSource(settings_cls)


@lru_cache(maxsize=1)
def load_settings() -> Settings:
    """The settings of this process; a wrong value raises SettingsError with a message for people."""
    try:
        return Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        raise _refused(error) from None


def with_changes(settings: Settings, **changed: object) -> Settings:
    """The settings with other values, checked alike: what a command's options say instead."""
    try:
        return Settings.model_validate(settings.model_dump() | changed)
    except ValidationError as error:
        raise _refused(error) from None


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Variables with our prefix that no setting reads, each with the most similar setting."""
    known = [name.upper() for name in Settings.model_fields]
    # Compared without the prefix, which would make all names similar.
    given = {name: name.upper().removeprefix(PREFIX) for name in environment if name.upper().startswith(PREFIX)}
    likely = {name: get_close_matches(rest, known, 1) for name, rest in sorted(given.items()) if rest not in known}
    return {name: PREFIX + close[0] if close else None for name, close in likely.items()}


def _refused(error: ValidationError) -> SettingsError:
    english: list[str] = []
    korean: list[str] = []
    for problem in error.errors(include_url=False):
        name = "".join(str(part) for part in problem["loc"][:1])
        text = problem["msg"].removeprefix("Value error, ")
        if not name:
            english.append(text)
            korean.append(korean_of(problem))
            continue
        field = Settings.model_fields[name]
        # An address may contain a password.
        private = any(word in name for word in ("secret", "token", "key", "url", "uri"))
        shown = "" if private else f", not {problem['input']!r}"
        given = "" if private else f" (입력값: {problem['input']!r})"
        english.append(f"{PREFIX}{name.upper()}: {text}{shown} ({field.description})")
        korean.append(f"{PREFIX}{name.upper()}: {korean_of(problem)}{given}")
    return SettingsError("\n".join(english), korean="\n".join([f"{SettingsError.topic}:", *korean]))
