"""The relay's claims: due rows become ours for a time, as far as the breaker lets them through."""

import time
from functools import partial
from uuid import UUID

from sqlalchemy import Connection

from mustit_pipeline.delivery.charges import Charge, Ended
from mustit_pipeline.delivery.credential import fingerprint
from mustit_pipeline.delivery.endings import settlement
from mustit_pipeline.delivery.product_server import NOT_SENT, event_type
from mustit_pipeline.delivery.sql import breakers
from mustit_pipeline.delivery.sql.breakers import PRODUCT_SERVER
from mustit_pipeline.delivery.sql.settling import settle
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.outbox.sql.outbox import FOR_TRIAL, ClaimedEvent, Wanted
from mustit_pipeline.settings import Settings

# How often a relay that goes on sending looks for rows whose sender fell silent; leases last for a minute.
SILENT_SENDERS_SECONDS = 1.0


class Claims:
    """What one relay claims, until its time is over."""

    def __init__(self, database: Database, settings: Settings, *, owner: str, ends_at: float) -> None:
        self._database = database
        self._settings = settings
        self._ends_at = ends_at
        self._claim = partial(
            outbox.claim,
            owner=owner,
            limit=settings.relay_batch,
            lease_seconds=settings.relay_lease_seconds,
            breaker=PRODUCT_SERVER,
        )
        self._credential = fingerprint(settings)
        self._look_for_silent_at = 0.0
        # The row that asks whether the server is back.
        self.trial: UUID | None = None
        # Older versions that were claimed, and name their successor instead of being sent.
        self.superseded = 0

    def take(self, wanted: Wanted) -> tuple[list[ClaimedEvent], int]:
        """Claim due rows, and say how many were superseded instead.

        An open breaker lets none through, and one on trial when its cool-down is over.
        """
        if time.monotonic() > self._ends_at:
            return [], 0
        with self._database.transaction() as connection:
            # A relay that waited for another one's claim sees the trial that began with it.
            outbox.lock_claims(connection)
            if time.monotonic() >= self._look_for_silent_at:
                outbox.release_expired(connection)
                self._look_for_silent_at = time.monotonic() + SILENT_SENDERS_SECONDS
            claimed, superseded = self._claim(connection, wanted=wanted)
            if not claimed and not superseded:
                claimed, superseded = self._claim_for_trial(connection)
        self.superseded += superseded
        return claimed, superseded

    def look_for_silent_senders(self) -> None:
        """With the next claim, however short ago the last look was."""
        self._look_for_silent_at = 0.0

    def due_in(self) -> float | None:
        """Seconds until it is worth claiming again; None where nothing waits."""
        with self._database.reading() as connection:
            due_in = outbox.next_due_in(connection)
            trial_in = breakers.find(connection, PRODUCT_SERVER).trial_in_with(self._credential)
        return None if due_in is None else max(due_in, trial_in or 0.0)

    def _claim_for_trial(self, connection: Connection) -> tuple[list[ClaimedEvent], int]:
        """One row asks whether the server is back; those that send nothing need no server, the others wait on."""
        breaker = breakers.find(connection, PRODUCT_SERVER)
        if breaker.trial_in_with(self._credential) != 0.0:
            return [], 0
        claimed, superseded = self._claim(connection, wanted=FOR_TRIAL)
        speaking = [event for event in claimed if event_type(event) is not None]
        if not speaking:
            return claimed, superseded
        refused = breaker.refused_credential is not None
        known = self._settings
        pause = known.product_server_credential_seconds if refused else known.product_server_breaker_seconds
        breakers.begin_trial(connection, PRODUCT_SERVER, cooldown=pause, credential=self._credential)
        asking, *waiting = sorted(speaking, key=lambda event: (event.attempts, event.due_at))
        self.trial = asking.row_id
        unsent = [Ended(event, NOT_SENT) for event in waiting]
        settle(connection, [settlement(one, Charge.UNCHARGED, self._settings) for one in unsent])
        return [event for event in claimed if event is asking or event_type(event) is None], superseded
