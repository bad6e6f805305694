"""The port of a notification channel: send one message, return the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from chimes.model.access import Owner
from chimes.model.ids import DeliveryId
from chimes.model.notification import InboxItem
from chimes.model.recipient import Channel, Recipient
from chimes.notifications.message import NotificationMessage


@dataclass(slots=True)
class Progress:
    """Parts of a message that the receiver has. A sender counts each part at once, so that the
    count survives an attempt that is cut off."""

    parts: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryAttempt:
    """One attempt to send a message."""

    #: The same at every attempt, so that receivers can detect a repeat.
    delivery_id: DeliveryId
    recipient: Recipient
    owner: Owner
    message: NotificationMessage
    #: Store time at which the attempt begins; outgoing timestamps use it.
    now: datetime
    #: Starts with the parts that earlier attempts sent.
    progress: Progress = field(default_factory=Progress)
    #: The named secrets of the owner that the recipient uses, masked in the result by the engine.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    #: The receiver's id of the message.
    receipt: str = ""
    #: Set by the inbox channel only.
    inbox: InboxItem | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """A temporary failure. The receiver may have got the message nevertheless."""

    error: str
    code: str
    #: Minimum wait that the receiver requested.
    after: timedelta | None = None
    #: The receiver is rate limited: this attempt does not count, and nothing else is sent to the
    #: recipient until then.
    rate_limited: bool = False
    #: The digest that takes the delivery over.
    digest: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A permanent failure."""

    error: str
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppressed:
    """Not sent on purpose."""

    error: str
    code: str


Result = Sent | Retry | Refused | Suppressed


class Sender(Protocol):
    channel: Channel
    #: Attempts at once. Each channel has its own capacity, so that a slow one blocks no other.
    capacity: int

    async def open(self) -> None:
        """Opens connection pools; called once, on the engine's event loop."""

    async def close(self) -> None: ...

    async def send(self, attempt: DeliveryAttempt) -> Result:
        """One attempt. Returns failures of the receiver instead of raising them, without secrets
        in their texts. A cancellation must stop it at once."""
