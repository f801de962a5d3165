"""The way to people: one message to one address, through whatever service apprise knows it by."""

import hashlib
import logging
from dataclasses import dataclass
from typing import Any, cast

import apprise

# It writes addresses into its log lines, and addresses carry tokens.
logging.getLogger("apprise").disabled = True


@dataclass(frozen=True, slots=True)
class Message:
    """What a person reads."""

    title: str
    body: str
    good_news: bool = False


@dataclass(frozen=True, slots=True)
class Channel:
    """One address; all that is ever shown of it is its number and its service."""

    number: int
    url: str

    def __repr__(self) -> str:
        return f"Channel({self.name})"

    @property
    def name(self) -> str:
        """The address as people may see it."""
        return f"address {self.number} ({self.url.split('://', 1)[0]})"

    @property
    def key(self) -> str:
        """The address as it is remembered: by its hash."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def send(self, message: Message) -> str | None:
        """Send a message; says what went wrong, or nothing."""
        kind = apprise.NotifyType.SUCCESS if message.good_news else apprise.NotifyType.WARNING
        try:
            service = cast("Any", apprise.Apprise).instantiate(self.url, suppress_exceptions=True)
            if service is None:
                return f"{self.name}: apprise knows no such address"
            sent = service.notify(title=message.title, body=message.body, notify_type=kind)
        except Exception as error:
            # A service's own error may hold the address.
            return f"{self.name}: {type(error).__name__}"
        return None if sent else f"{self.name}: the service did not take the message"


def channels(addresses: list[str]) -> list[Channel]:
    """The addresses that are set, each once."""
    return [Channel(number, url) for number, url in enumerate(dict.fromkeys(addresses), start=1)]
