"""Channels to people: one message to one address, through a service that apprise supports."""

import hashlib
import logging
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Message:
    """A message for people."""

    title: str
    body: str
    good_news: bool = False


@dataclass(frozen=True, slots=True)
class Channel:
    """One address; only its number and its service are ever shown."""

    number: int
    url: str

    def __repr__(self) -> str:
        return f"Channel({self.name})"

    @property
    def name(self) -> str:
        """The name of the address that may be shown."""
        return f"address {self.number} ({self.url.split('://', 1)[0]})"

    @property
    def key(self) -> str:
        """The hash of the address, for storage."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def send(self, message: Message) -> str | None:
        """Send a message; returns the error, None if it was sent."""
        # It takes a tenth of a second to import, and most processes send nothing.
        import apprise

        # It logs addresses, and addresses contain tokens.
        logging.getLogger("apprise").disabled = True
        kind = apprise.NotifyType.SUCCESS if message.good_news else apprise.NotifyType.WARNING
        try:
            service = cast("Any", apprise.Apprise).instantiate(self.url, suppress_exceptions=True)
            if service is None:
                return f"{self.name}: apprise knows no such address"
            sent = service.notify(title=message.title, body=message.body, notify_type=kind)
        except Exception as error:
            # A service's own error may contain the address.
            return f"{self.name}: {type(error).__name__}"
        return None if sent else f"{self.name}: the service did not take the message"


def channels(addresses: list[str]) -> list[Channel]:
    """The configured addresses, without duplicates."""
    return [Channel(number, url) for number, url in enumerate(dict.fromkeys(addresses), start=1)]
