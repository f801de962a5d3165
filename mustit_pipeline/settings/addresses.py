"""Addresses of servers, checked when the settings are read; error messages never show the address."""

from typing import Annotated
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import make_conninfo
from pydantic import AfterValidator
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from mustit_pipeline.settings.wrong_setting import WrongSetting

POSTGRES_SCHEMES = ("postgresql://", "postgresql+psycopg://", "postgres://")
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
ESCAPED = "signs like @ : / ? # in a password are written %40 %3A %2F %3F %23"
ESCAPED_KOREAN = "비밀번호의 @ : / ? # 문자는 %40 %3A %2F %3F %23으로 씁니다"


def _postgres_url(value: str) -> str:
    example = "postgresql://user:password@host:5432/database"
    form = WrongSetting(
        f"takes a PostgreSQL address: {example}; {ESCAPED}",
        korean=f"PostgreSQL 주소여야 합니다: {example}; {ESCAPED_KOREAN}",
    )
    if not value.startswith(POSTGRES_SCHEMES):
        raise form
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        raise form from None
    # SQLAlchemy ends the password at its first @: the rest would become the host and be shown.
    if url.password is not None and "@" in value.partition("://")[2].partition(":")[2].partition("@")[2]:
        raise form
    try:
        make_conninfo(**dict.fromkeys(url.query, ""))
    except psycopg.ProgrammingError:
        raise WrongSetting(
            "takes after its ? only options that PostgreSQL knows, like sslmode=require",
            korean="? 뒤에는 sslmode=require처럼 PostgreSQL이 아는 옵션만 쓸 수 있습니다",
        ) from None
    return value


def _redis_server(value: str, examples: str) -> str:
    form = WrongSetting(f"takes {examples}; {ESCAPED}", korean=f"다음 형식이어야 합니다: {examples}; {ESCAPED_KOREAN}")
    if not value.startswith(REDIS_SCHEMES):
        raise form
    # Most have no Redis but ours, and importing it takes a while.
    from redis.connection import parse_url  # pyright: ignore[reportUnknownVariableType]

    try:
        parse_url(value)
    except ValueError:
        raise form from None
    parts = urlsplit(value)
    number = "" if parts.scheme == "unix" else parts.path.strip("/")
    if "@" in parts.path + parts.query + parts.fragment or (number and not number.isdecimal()):
        raise form
    return value


def _redis_url(value: str) -> str:
    if value == "off":
        return value
    address = _redis_server(value, "redis://host:6379/0, rediss://…, unix:///path, off")
    from redis import ConnectionPool, RedisError

    try:
        ConnectionPool.from_url(address).make_connection()  # pyright: ignore[reportUnknownMemberType]
    except (RedisError, TypeError):
        raise WrongSetting(
            "takes after its ? only options that Redis knows, like db=1",
            korean="? 뒤에는 db=1처럼 Redis가 아는 옵션만 쓸 수 있습니다",
        ) from None
    return value


def _broker_url(value: str) -> str:
    return _redis_server(value, "redis://host:6379/1, rediss://…, unix:///path")


def _path_or_bucket(value: str) -> str:
    if "://" in value and not (value.startswith("s3://") and urlsplit(value).netloc):
        raise WrongSetting("takes a path or s3://bucket/prefix", korean="경로 또는 s3://bucket/prefix여야 합니다")
    return value


PostgresUrl = Annotated[str, AfterValidator(_postgres_url)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
BrokerUrl = Annotated[str, AfterValidator(_broker_url)]
PathOrBucket = Annotated[str, AfterValidator(_path_or_bucket)]
