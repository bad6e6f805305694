"""The port of a channel: hand one message over, say what came of it."""

from __future__ import annotations

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
    """How far a message has come. A sender counts each part as soon as the other side has it, so
    that what is known survives an attempt that is cut off."""

    parts: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    """One attempt to hand a message over."""

    #: The same at every attempt: receivers can tell a repeat by it.
    delivery_id: DeliveryId
    recipient: Recipient
    owner: Owner
    message: NotificationMessage
    #: Store time at which the attempt begins; outgoing timestamps are made from it (F50).
    now: datetime
    #: Begins with the parts that an earlier attempt got through.
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    #: What the other side calls it.
    receipt: str = ""
    #: Only of the channel that is the inbox itself.
    inbox: InboxItem | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """It may work later. The other side may have got it all the same."""

    error: str
    code: str
    #: At least so long, says the other side.
    after: timedelta | None = None
    #: Too much at once: nothing is wrong with the letter, and nothing else should be sent there
    #: before that time (F75).
    holds_back: bool = False
    #: The digest that is to take it along from now on.
    digest: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """It will not work however often it is tried."""

    error: str
    code: str


Result = Sent | Retry | Refused


class Sender(Protocol):
    channel: Channel
    #: How many letters it has in hand at once; a channel that hangs holds up no other.
    places: int

    async def open(self) -> None:
        """Make pools and the like; called once, on the engine's event loop."""

    async def close(self) -> None: ...

    async def send(self, letter: Letter) -> Result:
        """One attempt. Never raises for what the other side does; being cancelled means: stop
        now. No text of a result holds a secret."""
