"""Who is told, and what became of the last message to each; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chimes.model.delivery import Delivery
from chimes.model.recipient import Recipient
from chimes.redaction import masked_url


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    recipient: Recipient
    #: Without the secret that an address can have in it; empty: the owner's inbox.
    to: str
    #: The newest message to it, among those that were looked at.
    last: Delivery | None


def destinations_of(
    recipients: Sequence[Recipient], deliveries: Iterable[Delivery]
) -> tuple[Destination, ...]:
    """`deliveries`: newest first."""
    newest: dict[tuple[str, str], Delivery] = {}
    for each in deliveries:
        newest.setdefault(_whose(each.recipient), each)
    return tuple(
        Destination(recipient=each, to=to_shown(each), last=newest.get(_whose(each)))
        for each in recipients
    )


def _whose(recipient: Recipient) -> tuple[str, str]:
    return recipient.channel.value, recipient.to


def to_shown(recipient: Recipient) -> str:
    return masked_url(recipient.to) if "://" in recipient.to else recipient.to
