"""What can be done with a message of the inbox (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from chimes.model.change import replace
from chimes.model.delivery import InboxItem


@dataclass(frozen=True, kw_only=True, slots=True)
class Wake:
    """Ends a snooze."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxChange:
    """None: that stays as it is."""

    read: bool | None = None
    starred: bool | None = None
    archived: bool | None = None
    snoozed_until: datetime | Wake | None = None


READ = InboxChange(read=True)


def inbox_changed(item: InboxItem, change: InboxChange, now: datetime) -> InboxItem:
    """What is marked again keeps the time of the first mark."""
    if change.read is not None:
        item = replace(item, read_at=_since(item.read_at, change.read, now))
    if change.starred is not None:
        item = replace(item, starred=change.starred)
    if change.archived is not None:
        item = replace(item, archived_at=_since(item.archived_at, change.archived, now))
    if isinstance(change.snoozed_until, Wake):
        item = replace(item, snoozed_until=None)
    elif change.snoozed_until is not None:
        item = replace(item, snoozed_until=change.snoozed_until)
    return item


def _since(before: datetime | None, marked: bool, now: datetime) -> datetime | None:
    return (before or now) if marked else None
