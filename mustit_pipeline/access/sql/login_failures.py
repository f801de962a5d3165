"""Failed logins, by account and address: counted for all processes, and with a bounded look."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from mustit_pipeline.domain.access import FailedLogins
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import PerName
from mustit_pipeline.foundation.aging import Aged

AGED = Aged("login_failures", ("seen_at",))

WINDOW = "interval '1 hour'"
# An address from which the account has logged in stays known for so long.
KNOWN = "interval '30 days'"
# The free failures of an account or an address are far fewer: more rows say nothing new.
MOST_ROWS = 50


@dataclass(frozen=True, slots=True)
class Recent:
    """What failed lately: for the account from this address, from all, and from this address for all accounts."""

    pair: FailedLogins
    account: FailedLogins
    address: FailedLogins
    known_address: bool


# The account is always locked before the address, so that no two logins wait in a circle.
_RECENT = text(f"""
    SELECT coalesce(pair.failures, 0) AS pair_failures, pair.failed_at AS pair_at,
           account.failures AS account_failures, account.failed_at AS account_at,
           address.failures AS address_failures, address.failed_at AS address_at,
           EXISTS (SELECT FROM login_failures k WHERE k.account = :account AND k.address = :address
                   AND k.succeeded_at > clock.now - {KNOWN}) AS known_address, clock.now
    FROM (SELECT clock_timestamp() AS now) clock
    LEFT JOIN login_failures pair
           ON pair.account = :account AND pair.address = :address AND pair.failed_at > clock.now - {WINDOW}
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(failures), 0) AS failures, max(failed_at) AS failed_at
        FROM (SELECT failures, failed_at FROM login_failures f
              WHERE f.account = :account AND f.failed_at > clock.now - {WINDOW}
              ORDER BY f.failed_at DESC LIMIT {MOST_ROWS}) newest) account
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(failures), 0) AS failures, max(failed_at) AS failed_at
        FROM (SELECT failures, failed_at FROM login_failures f
              WHERE f.address = :address AND f.failed_at > clock.now - {WINDOW}
              ORDER BY f.failed_at DESC LIMIT {MOST_ROWS}) newest) address
""")

_COUNT = text(f"""
    INSERT INTO login_failures AS known (account, address, failures, failed_at, seen_at)
    VALUES (:account, :address, 1, clock_timestamp(), clock_timestamp())
    ON CONFLICT (account, address) DO UPDATE
    SET failures = CASE WHEN known.failed_at > excluded.failed_at - {WINDOW} THEN known.failures + 1 ELSE 1 END,
        failed_at = excluded.failed_at, seen_at = excluded.seen_at
""")

_TAKE_BACK = text("""
    UPDATE login_failures SET failures = failures - 1, failed_at = CASE WHEN failures > 1 THEN failed_at END
    WHERE account = :account AND address = :address AND failures > 0
""")

_CLEAR = text("""
    UPDATE login_failures SET failures = 0, failed_at = NULL, succeeded_at = now(), seen_at = now()
    WHERE account = :account AND address = :address
""")


def lock(connection: Connection, account: str, address: str) -> None:
    """Let logins of one account, or from one address, be counted one after another until the transaction ends."""
    advisory_locks.lock(connection, PerName.LOGIN_ACCOUNT.of(account))
    advisory_locks.lock(connection, PerName.LOGIN_ADDRESS.of(address))


def recent(connection: Connection, account: str, address: str) -> Recent:
    """What failed within the last hour."""
    row = connection.execute(_RECENT, {"account": account, "address": address}).one()

    def failed(number: int, at: str) -> FailedLogins:
        moment = getattr(row, at)
        return FailedLogins(int(number), 0.0 if moment is None else (row.now - moment).total_seconds())

    return Recent(
        failed(row.pair_failures, "pair_at"),
        failed(row.account_failures, "account_at"),
        failed(row.address_failures, "address_at"),
        row.known_address,
    )


def add(connection: Connection, account: str, address: str) -> None:
    """One more try, which is a failure until it has succeeded."""
    connection.execute(_COUNT, {"account": account, "address": address})


def take_back(connection: Connection, account: str, address: str) -> None:
    """A try that was counted did not come to its password."""
    connection.execute(_TAKE_BACK, {"account": account, "address": address})


def clear(connection: Connection, account: str, address: str) -> None:
    """The account has logged in from the address: what failed there before is forgotten, and the address is known."""
    connection.execute(_CLEAR, {"account": account, "address": address})
