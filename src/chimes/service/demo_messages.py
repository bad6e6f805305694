"""What the examples are said to have delivered: an inbox to look at (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.model.access import SYSTEM_OWNER
from chimes.model.delivery import InboxItem
from chimes.model.ids import InboxId, declared_id
from chimes.model.run import Run, RunStatus
from chimes.service.demo_history import LABEL, MADE_UP, Story


@dataclass(frozen=True, kw_only=True, slots=True)
class _Message:
    slug: str
    #: The example that it is about.
    about: str
    title: str
    text: str
    #: Of the run that it tells of, or the kind of message.
    status: str
    #: Where no run is told of: so long ago.
    ago: timedelta = timedelta(hours=2)
    read: bool = False


_MESSAGES = (
    _Message(
        slug="failed",
        about="supplier",
        title="Demo: supplier feed (fails): failed",
        text=f"Reason: exception\nError: RuntimeError: {MADE_UP}",
        status=RunStatus.FAILED.value,
    ),
    _Message(
        slug="brief",
        about="brief",
        title="Demo: morning brief by an agent",
        text=f"**Sales yesterday** ({MADE_UP})\n\n"
        "- 214 orders, 6 % more than the week before\n"
        "- Bangkok sold most, Shanghai grew most\n"
        "- 3 orders wait for the supplier, whose feed fails\n",
        status="",
    ),
    _Message(
        slug="report",
        about="report",
        title="Demo: sales report on weekdays",
        text=f"The week so far ({MADE_UP}):\n\n"
        "| Shop | Orders | Revenue |\n|:--|--:|--:|\n"
        "| Bangkok | 612 | 184,300 |\n| New York | 377 | 152,900 |\n| Shanghai | 455 | 141,700 |\n",
        status=RunStatus.SUCCEEDED.value,
        read=True,
    ),
    _Message(
        slug="digest",
        about="web",
        title="Demo: the last day in one message",
        text=f"72 runs of **Demo: is the website up?**, all but one went well ({MADE_UP}).",
        status="digest",
        ago=timedelta(hours=9),
        read=True,
    ),
)


def message_ids(generation: int) -> tuple[InboxId, ...]:
    return tuple(_id(each, generation) for each in _MESSAGES)


def _id(message: _Message, generation: int) -> InboxId:
    return InboxId(declared_id(LABEL, f"message {message.slug}", generation))


def messages_of(
    stories: Mapping[str, Story], generation: int, now: datetime
) -> tuple[InboxItem, ...]:
    """`stories`: by the slug of their example."""
    return tuple(_item(each, stories[each.about], generation, now) for each in _MESSAGES)


def _item(message: _Message, story: Story, generation: int, now: datetime) -> InboxItem:
    run = _told_of(message, story.runs)
    at = now - message.ago if run is None or run.finished_at is None else run.finished_at
    return InboxItem(
        id=_id(message, generation),
        owner=SYSTEM_OWNER,
        run_id=None if run is None else run.id,
        schedule_id=story.schedule.id,
        schedule_name=story.schedule.name,
        title=message.title,
        text=message.text,
        status=message.status,
        created_at=at,
        read_at=at if message.read else None,
    )


def _told_of(message: _Message, runs: Sequence[Run]) -> Run | None:
    """The newest that ended so."""
    return next((run for run in reversed(runs) if run.status.value == message.status), None)
