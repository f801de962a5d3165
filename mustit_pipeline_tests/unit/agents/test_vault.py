"""Sessions at rest open only where they were sealed."""

import base64
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mustit_pipeline.agents.sql.agents import SealedSession
from mustit_pipeline.agents.vault import SessionUnreadable, SessionVault
from mustit_pipeline.domain.values import Token
from mustit_pipeline.marketplace.session import Session
from mustit_pipeline.settings import TokenKey

OLD, NEW = (base64.b64encode(bytes([fill]) * 32).decode() for fill in (1, 2))
SESSION = Session(Token("secret-token"), "nid-1", "uid-1", datetime(2026, 11, 16, 3, tzinfo=UTC))
AGENT = uuid4()


def test_a_session_comes_back_as_it_was() -> None:
    vault = SessionVault(TokenKey(f"a:{OLD}"))
    sealed = vault.seal(AGENT, 3, SESSION)
    assert vault.open(AGENT, sealed) == SESSION
    assert sealed.key_id == "a"
    assert b"secret-token" not in sealed.sealed


def test_a_session_that_was_sealed_for_longer_than_a_day_ends_after_one() -> None:
    """A cookie of 400 days kept its key in use for as long: a rotation never ended."""
    vault = SessionVault(TokenKey(OLD))
    issued, year = datetime(2026, 11, 16, 3, tzinfo=UTC), timedelta(days=400)
    opened = vault.open(AGENT, vault.seal(AGENT, 1, Session(Token("t"), "n", "u", issued + year, year)))
    assert (opened.issued_at, opened.expires_at) == (issued, issued + timedelta(days=1))


def test_the_same_session_is_never_sealed_to_the_same_bytes() -> None:
    vault = SessionVault(TokenKey(OLD))
    assert vault.seal(AGENT, 1, SESSION).sealed != vault.seal(AGENT, 1, SESSION).sealed


def test_a_session_moved_to_another_row_or_number_does_not_open() -> None:
    vault = SessionVault(TokenKey(f"a:{OLD}"))
    sealed = vault.seal(AGENT, 3, SESSION)
    with pytest.raises(SessionUnreadable):
        vault.open(uuid4(), sealed)
    with pytest.raises(SessionUnreadable):
        vault.open(AGENT, SealedSession(4, sealed.key_id, sealed.sealed))


@pytest.mark.parametrize("broken", [b"", b"short", bytes(60)])
def test_broken_bytes_do_not_open_and_the_error_shows_nothing(broken: bytes) -> None:
    vault = SessionVault(TokenKey(f"a:{OLD}"))
    with pytest.raises(SessionUnreadable) as error:
        vault.open(AGENT, SealedSession(1, "a", broken))
    assert "secret" not in str(error.value)
    assert OLD not in str(error.value)


def test_a_changed_bit_does_not_open() -> None:
    vault = SessionVault(TokenKey(f"a:{OLD}"))
    sealed = vault.seal(AGENT, 1, SESSION)
    flipped = bytes([*sealed.sealed[:-1], sealed.sealed[-1] ^ 1])
    with pytest.raises(SessionUnreadable):
        vault.open(AGENT, SealedSession(1, "a", flipped))


def test_a_rotated_key_still_opens_and_new_sessions_take_the_new_one() -> None:
    before = SessionVault(TokenKey(f"old:{OLD}"))
    after = SessionVault(TokenKey(f"new:{NEW},old:{OLD}"))
    sealed = before.seal(AGENT, 1, SESSION)
    assert after.open(AGENT, sealed) == SESSION
    assert after.is_outdated(sealed)
    resealed = after.seal(AGENT, 1, SESSION)
    assert resealed.key_id == "new"
    assert not after.is_outdated(resealed)
    with pytest.raises(SessionUnreadable, match="'new'"):
        before.open(AGENT, resealed)
