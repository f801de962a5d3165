"""Addresses of servers, checked when the settings are read; error messages never show the address."""

from typing import Annotated
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import make_conninfo
from pydantic import AfterValidator
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

POSTGRES_SCHEMES = ("postgresql://", "postgresql+psycopg://", "postgres://")
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
ESCAPED = "signs like @ : / ? # in a password are written %40 %3A %2F %3F %23"


def _postgres_url(value: str) -> str:
    form = f"takes a PostgreSQL address: postgresql://user:password@host:5432/database; {ESCAPED}"
    if not value.startswith(POSTGRES_SCHEMES):
        raise ValueError(form)
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        raise ValueError(form) from None
    # SQLAlchemy ends the password at its first @: the rest would become the host and be shown.
    if url.password is not None and "@" in value.partition("://")[2].partition(":")[2].partition("@")[2]:
        raise ValueError(form)
    try:
        make_conninfo(**dict.fromkeys(url.query, ""))
    except psycopg.ProgrammingError:
        raise ValueError("takes after its ? only options that PostgreSQL knows, like sslmode=require") from None
    return value


def _redis_server(value: str, form: str) -> str:
    if not value.startswith(REDIS_SCHEMES):
        raise ValueError(form)
    # Most have no Redis but ours, and importing it takes a while.
    from redis.connection import parse_url  # pyright: ignore[reportUnknownVariableType]

    try:
        parse_url(value)
    except ValueError:
        raise ValueError(form) from None
    parts = urlsplit(value)
    number = "" if parts.scheme == "unix" else parts.path.strip("/")
    if "@" in parts.path + parts.query + parts.fragment or (number and not number.isdecimal()):
        raise ValueError(form)
    return value


def _redis_url(value: str) -> str:
    form = f"takes redis://host:6379/0, rediss://…, unix:///path, or off; {ESCAPED}"
    if value == "off":
        return value
    address = _redis_server(value, form)
    from redis import ConnectionPool, RedisError

    try:
        ConnectionPool.from_url(address).make_connection()  # pyright: ignore[reportUnknownMemberType]
    except (RedisError, TypeError):
        raise ValueError("takes after its ? only options that Redis knows, like db=1") from None
    return value


def _broker_url(value: str) -> str:
    return _redis_server(value, f"takes redis://host:6379/1, rediss://… or unix:///path; {ESCAPED}")


def _path_or_bucket(value: str) -> str:
    if "://" in value and not (value.startswith("s3://") and urlsplit(value).netloc):
        raise ValueError("takes a path or s3://bucket/prefix")
    return value


PostgresUrl = Annotated[str, AfterValidator(_postgres_url)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
BrokerUrl = Annotated[str, AfterValidator(_broker_url)]
PathOrBucket = Annotated[str, AfterValidator(_path_or_bucket)]
