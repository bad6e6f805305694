"""One action on all that a filter finds, or on all that an earlier action was done to: in batches,
for a bounded time, and then as far as it came, so that it can be continued (UX A.2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from chimes.doors.api.paging import cursor_to, position_from
from chimes.doors.dashboard.forms import Form
from chimes.doors.dashboard.views_bulk import UNDOES, Outcome, Outcomes, Progress, Verb
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput, StoreError
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule
from chimes.wording import say

#: A request answers about then, and others of this node have had their turn in between.
SECONDS = 8.0
#: With one transaction, which others of the store wait for.
BATCH = 100
_IDS_AT_ONCE = 1000
#: What is done to a batch; the number is how many were before it.
Work = Callable[[Sequence[Schedule], int], Awaitable[list[Outcome]]]
#: Brings those back that were deleted.
Restore = Callable[[Sequence[ScheduleId]], Awaitable[list[Outcome]]]


def progress_in(form: Form, now: datetime) -> Progress:
    """As the form of a page before carries it on, or the beginning."""
    return Progress(
        total=_count(form, "count"),
        done=_count(form, "done"),
        refused=_count(form, "refused"),
        left_out=_count(form, "left_out"),
        started=_moment(form, "started") or now,
        cursor=form.text("cursor"),
    )


async def on_all_found(
    visit: Visit, verb: Verb, query: ScheduleQuery, before: Progress, work: Work
) -> Outcomes:
    """Oldest first: whatever the action changes, nothing comes twice and nothing is left out."""
    # A position belongs to its filter.
    question = json.dumps([verb, visit.form.text("q")])
    after = position_from(before.cursor or None, question, numbers=True)
    asked = replace(query, sort=ScheduleSort.CREATED_AT, descending=False)
    found: list[Outcome] = []
    ends = visit.door.clock.monotonic() + SECONDS
    while (left := before.left - len(found)) > 0:
        try:
            page = await visit.door.schedules.find(
                visit.actor, replace(asked, after=after, limit=min(BATCH, left))
            )
            found += await work(page.items, before.seen + len(found))
        except StoreError:
            # What was done until then is told, and where to go on.
            if not found:
                raise
            break
        after = page.next
        if after is None or visit.door.clock.monotonic() >= ends:
            break
    more = after is not None and before.left > len(found)
    cursor = cursor_to(after, question) if after is not None and more else ""
    return Outcomes(verb=verb, items=found, before=replace(before, cursor=cursor))


async def on_all_marked(
    visit: Visit, verb: Verb, before: Progress, work: Work, restore: Restore
) -> Outcomes:
    """Takes back what this actor did between two moments, as the audit has it."""
    undone = next((each for each, by in UNDOES.items() if by is verb), None)
    since, until = _moment(visit.form, "since"), _moment(visit.form, "to")
    if undone is None or since is None or until is None:
        raise InvalidInput(say("the form cannot be read"), code="bad_form")
    number = _count(visit.form, "cursor") or None
    found: list[Outcome] = []
    ends = visit.door.clock.monotonic() + SECONDS
    while (left := before.left - len(found)) > 0:
        try:
            ids, following = await visit.door.schedules.done_between(
                visit.actor, undone.value, since, until, before=number, limit=min(BATCH, left)
            )
            if verb is Verb.RESTORE:
                found += await restore(ids)
            else:
                found += await work(await schedules_with(visit, ids), before.seen + len(found))
        except StoreError:
            if not found:
                raise
            break
        number = following
        if number is None or visit.door.clock.monotonic() >= ends:
            break
    cursor = str(number) if number is not None and before.left > len(found) else ""
    return Outcomes(verb=verb, items=found, before=replace(before, cursor=cursor))


async def schedules_with(visit: Visit, ids: Sequence[ScheduleId]) -> list[Schedule]:
    """In this order; where somebody else was faster, without those."""
    found: dict[ScheduleId, Schedule] = {}
    for place in range(0, len(ids), _IDS_AT_ONCE):
        query = ScheduleQuery(ids=tuple(ids[place : place + _IDS_AT_ONCE]), limit=None)
        page = await visit.door.schedules.find(visit.actor, query)
        found |= {each.id: each for each in page.items}
    return [found[each] for each in ids if each in found]


async def in_batches(items: Sequence[Schedule], work: Work) -> list[Outcome]:
    found: list[Outcome] = []
    for place in range(0, len(items), BATCH):
        found += await work(items[place : place + BATCH], place)
        await asyncio.sleep(0)
    return found


def _count(form: Form, name: str) -> int:
    return max(0, form.number(name, 0) or 0)


def _moment(form: Form, name: str) -> datetime | None:
    text = form.text(name)
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        found = None
    return found if found is not None and found.tzinfo is not None else None
