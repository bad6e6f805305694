"""One action on the selected schedules, or on all that a filter finds (UX A.2): asked with the
count and the first five names, answered with what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from starlette.responses import Response

from chimes.doors.dashboard import views_bulk
from chimes.doors.dashboard.bulk_work import (
    Restore,
    Work,
    in_batches,
    on_all_found,
    on_all_marked,
    progress_in,
    schedules_with,
)
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import REFUSALS, Refused
from chimes.doors.dashboard.routes_schedule_actions import moment_in
from chimes.doors.dashboard.routes_schedules import HERE, Asked, asked_for
from chimes.doors.dashboard.views_bulk import Edit, Outcome, Outcomes, Verb
from chimes.doors.dashboard.views_definition import as_json, as_yaml, definition_of
from chimes.doors.dashboard.visit import Visit
from chimes.errors import ChimesError, InvalidInput
from chimes.model.ids import ScheduleId
from chimes.model.policy import Overlap
from chimes.model.schedule import Schedule
from chimes.service.schedule_acts import Act, deleting, pausing, resuming
from chimes.wording import say

pages = Pages()
#: In one file.
MOST_EXPORTED = 20_000
#: Ids that a form can carry.
MOST_IDS = 1900
MOST_RUNS = 500
MOST_SPACING = 3600
#: Rows of the answer; what was refused comes first.
MOST_SHOWN = 200
_AT_ONCE = 8
#: Fields of the question, for the requests that go on with it.
CARRIED = frozenset(
    {"which", "q", "reason", "until", "limit", "spacing", "label", "zone", "overlap", "since", "to"}
)


@pages.get("/schedules/export")
async def export(visit: Visit) -> Response:
    """All that the filter finds, as a file."""
    verb = Verb.EXPORT_JSON if visit.query.get("format") == "json" else Verb.EXPORT_YAML
    return await _file(await _exported(visit, visit.query.get("q", "")), verb)


@pages.post("/schedules/bulk")
async def bulk(visit: Visit) -> Response:
    verb = views_bulk.verb_from(visit.form.text("verb"))
    which = visit.form.text("which")
    if which == "marked":
        before = progress_in(visit.form, visit.now)
        restore = _restoring(visit)
        return await _answer(
            visit, await on_all_marked(visit, verb, before, _work(visit, verb), restore)
        )
    if verb is Verb.RESTORE:
        return await _answer(visit, Outcomes(verb=verb, items=await _restoring(visit)(_ids(visit))))
    return await (_all if which == "all" else _selected)(visit, verb)


async def _selected(visit: Visit, verb: Verb) -> Response:
    # As they were ticked.
    found = await schedules_with(visit, _ids(visit))
    if not found:
        return _nothing(visit)
    if verb in views_bulk.EXPORTS:
        return await _file(found, verb)
    names = [each.name for each in found[:5]]
    ids = [each.id for each in found]
    # Somebody else may have been faster.
    same = visit.form.text("count") in ("", str(len(found)))
    if not visit.sure or not same:
        return _ask(visit, verb, names, len(found), ids, changed=visit.sure)
    try:
        work = _work(visit, verb)
    except REFUSALS as error:
        refused = await visit.refused(error)
        return _ask(visit, verb, names, len(found), ids, error=refused)
    return await _answer(visit, Outcomes(verb=verb, items=await in_batches(found, work)))


async def _all(visit: Visit, verb: Verb) -> Response:
    text = visit.form.text("q")
    if verb in views_bulk.EXPORTS:
        return await _file(await _exported(visit, text), verb)
    asked = _meant(visit, text)
    before = progress_in(visit.form, visit.now)
    if before.cursor:
        return await _answer(
            visit, await on_all_found(visit, verb, asked.query, before, _work(visit, verb))
        )
    total = await visit.door.schedules.count(visit.actor, asked.query)
    if not total:
        return _nothing(visit)
    # Between the question and the answer the filter may have found others.
    same = visit.form.text("count") in ("", str(total))
    error: Refused | None = None
    if visit.sure and same:
        try:
            work = _work(visit, verb)
        except REFUSALS as problem:
            error = await visit.refused(problem)
        else:
            begin = replace(before, total=total)
            return await _answer(visit, await on_all_found(visit, verb, asked.query, begin, work))
    page = await visit.door.schedules.find(visit.actor, replace(asked.query, limit=5))
    names = [each.name for each in page.items]
    return _ask(visit, verb, names, total, (), changed=visit.sure and not same, error=error)


def _nothing(visit: Visit) -> Response:
    return visit.done(say("Nothing is selected."), to=visit.back(HERE), kind="warning")


def _ids(visit: Visit) -> list[ScheduleId]:
    return [ScheduleId(each) for each in dict.fromkeys(visit.form.all("id"))]


def _meant(visit: Visit, text: str) -> Asked:
    asked = asked_for(visit, text)
    if asked.filter.wrong:
        # Otherwise it would be done to more than was meant.
        raise InvalidInput(asked.filter.wrong[0], field="q", source="query")
    return asked


async def _exported(visit: Visit, text: str) -> Sequence[Schedule]:
    asked = _meant(visit, text)
    query = replace(asked.query, limit=MOST_EXPORTED + 1)
    found = await visit.door.schedules.find(visit.actor, query)
    if len(found.items) > MOST_EXPORTED:
        raise InvalidInput(
            say("more than {most} schedules match; narrow the filter", most=MOST_EXPORTED),
            field="q",
        )
    return found.items


def _ask(
    visit: Visit,
    verb: Verb,
    names: Sequence[str],
    count: int,
    ids: Sequence[ScheduleId],
    *,
    changed: bool = False,
    error: Refused | None = None,
) -> Response:
    return visit.page_or_part(
        "schedules/bulk.html",
        "part",
        status=200 if error is None else error.status,
        verb=verb.value,
        question=views_bulk.question(verb, count),
        names=names,
        count=count,
        which="selected" if ids else "all",
        ids=ids,
        q=visit.form.text("q"),
        changed=changed,
        error=error,
        given=visit.form,
        overlaps=[each.value for each in Overlap],
        most_runs=MOST_RUNS,
        back=visit.back(HERE),
    )


async def _answer(visit: Visit, outcomes: Outcomes) -> Response:
    """What became of each; how to go on, if that is not all; and how to take it back."""
    progress = outcomes.progress
    named = progress.done == len(outcomes.done) <= MOST_IDS
    return visit.page_or_part(
        "schedules/bulk_done.html",
        "result",
        outcomes=outcomes,
        progress=progress,
        shown=outcomes.worst_first[:MOST_SHOWN],
        kept=[pair for pair in visit.form.items() if pair[0] in CARRIED],
        undo=outcomes.undo if named or progress.started is not None else None,
        named=named,
        since=None if progress.started is None else progress.started.isoformat(),
        to=(await visit.door.store.now()).isoformat(),
        back=visit.back(HERE),
    )


def _work(visit: Visit, verb: Verb) -> Work:
    """What is done to each; InvalidInput, before anything is, if the form does not say what."""
    match verb:
        case Verb.PAUSE:
            return _acting(visit, _pause(visit))
        case Verb.RUN:
            return _running(visit)
        case Verb.LABEL:
            return _editing(visit, views_bulk.labelled(visit.form.text("label")))
        case Verb.ZONE:
            return _editing(visit, views_bulk.in_zone(visit.form.text("zone")))
        case Verb.OVERLAP:
            return _editing(visit, views_bulk.overlapping(visit.form.text("overlap")))
        case Verb.RESUME:
            return _acting(visit, resuming(visit.actor))
        case _:
            return _acting(visit, deleting(visit.actor))


def _acting(visit: Visit, act: Act) -> Work:
    async def same(each: Schedule) -> Act:
        return act

    return _each(visit, same)


def _editing(visit: Visit, edit: Edit) -> Work:
    return _each(visit, lambda each: visit.door.schedules.editing(visit.actor, each, edit))


def _each(visit: Visit, act: Callable[[Schedule], Awaitable[Act]]) -> Work:
    async def work(batch: Sequence[Schedule], place: int) -> list[Outcome]:
        answers = await visit.door.schedules.act_on_each(visit.actor, batch, act)
        return [
            Outcome(
                id=each.id,
                name=each.name,
                error=after.message if isinstance(after, ChimesError) else "",
            )
            for each, after in zip(batch, answers, strict=True)
        ]

    return work


def _pause(visit: Visit) -> Act:
    until, note = moment_in(visit, "until"), visit.form.text("reason")
    if until is not None and until <= visit.now:
        raise InvalidInput(say("until lies in the past"), field="until", code="in_the_past")
    return pausing(visit.actor, note=note, until=until)


def _restoring(visit: Visit) -> Restore:
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(each: ScheduleId) -> Outcome:
        async with free:
            try:
                after = await visit.door.schedules.restore(visit.actor, each)
            except ChimesError as error:
                return Outcome(id=each, name=each, error=error.message)
        return Outcome(id=after.id, name=after.name)

    async def all_of(ids: Sequence[ScheduleId]) -> list[Outcome]:
        return await asyncio.gather(*(one(each) for each in ids))

    return all_of


def _running(visit: Visit) -> Work:
    """At most so many, so far apart: the others are left out."""
    limit = _between(visit, "limit", 1, MOST_RUNS, 10)
    spacing = _between(visit, "spacing", 0, MOST_SPACING, 0)

    async def one(place: int, each: Schedule) -> Outcome:
        if place >= limit:
            return Outcome(id=each.id, name=each.name, left_out=True)
        try:
            run, _ = await visit.door.schedules.run_asked_for(
                visit.actor, each.id, delay=timedelta(seconds=spacing * place)
            )
        except ChimesError as error:
            return Outcome(id=each.id, name=each.name, error=error.message)
        return Outcome(id=each.id, name=each.name, address=f"/ui/runs/{run.id}")

    async def work(batch: Sequence[Schedule], place: int) -> list[Outcome]:
        return [await one(place + offset, each) for offset, each in enumerate(batch)]

    return work


def _between(visit: Visit, field: str, least: int, most: int, usual: int) -> int:
    value = visit.form.number(field, usual)
    if value is None or not least <= value <= most:
        raise InvalidInput(say("between {least} and {most}", least=least, most=most), field=field)
    return value


async def _file(schedules: Sequence[Schedule], verb: Verb) -> Response:
    as_is_json = verb is Verb.EXPORT_JSON
    name = "schedules.json" if as_is_json else "schedules.yaml"
    return Response(
        # Others have their turn: writing thousands takes seconds.
        await asyncio.to_thread(_written, schedules, as_json if as_is_json else as_yaml),
        media_type="application/json" if as_is_json else "application/yaml",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _written(schedules: Sequence[Schedule], write: Callable[[object], str]) -> str:
    return write({"schedules": [definition_of(each) for each in schedules]})
