"""One action on the selected schedules, or on all that a filter finds (UX A.2): asked with the
count and the first five names, answered with what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from starlette.responses import Response

from chimes.doors.dashboard import views_bulk
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import REFUSALS, Refused
from chimes.doors.dashboard.routes_schedule_actions import moment_in
from chimes.doors.dashboard.routes_schedules import HERE, asked_for
from chimes.doors.dashboard.views_bulk import Edit, Outcome, Outcomes, Verb
from chimes.doors.dashboard.views_definition import as_json, as_yaml, definition_of
from chimes.doors.dashboard.visit import Visit
from chimes.errors import ChimesError, InvalidInput
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.policy import Overlap
from chimes.model.schedule import Schedule
from chimes.wording import say

pages = Pages()
#: Of one action; whoever means more narrows the filter and comes again.
MOST = 5000
#: Ids that a form can carry.
MOST_IDS = 1900
MOST_RUNS = 500
MOST_SPACING = 3600
_AT_ONCE = 8
_IDS_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Meant:
    id: ScheduleId
    name: str


@pages.get("/schedules/export")
async def export(visit: Visit) -> Response:
    """All that the filter finds, as a file."""
    verb = Verb.EXPORT_JSON if visit.query.get("format") == "json" else Verb.EXPORT_YAML
    return _file(await _matching(visit, visit.query.get("q", "")), verb)


@pages.post("/schedules/bulk")
async def bulk(visit: Visit) -> Response:
    verb = views_bulk.verb_from(visit.form.text("verb"))
    if verb is Verb.RESTORE:
        gone = [Meant(id=ScheduleId(each), name=each) for each in _ids(visit)]
        return await _carry_out(visit, verb, gone)
    found = await _chosen(visit)
    if not found:
        text = say("Nothing is selected.")
        return visit.done(text, to=visit.back(HERE), kind="warning")
    if verb in views_bulk.EXPORTS:
        return _file(found, verb)
    meant = [Meant(id=each.id, name=each.name) for each in found]
    # Between the question and the answer the filter may have found others.
    counted_before = visit.form.text("count") in ("", str(len(meant)))
    if not visit.sure or not counted_before:
        return _ask(visit, verb, meant, changed=visit.sure)
    try:
        return await _carry_out(visit, verb, meant)
    except REFUSALS as error:
        return _ask(visit, verb, meant, error=await visit.refused(error))


async def _chosen(visit: Visit) -> Sequence[Schedule]:
    if visit.form.text("which") == "all":
        return await _matching(visit, visit.form.text("q"))
    ids = _ids(visit)
    found: dict[ScheduleId, Schedule] = {}
    for place in range(0, len(ids), _IDS_AT_ONCE):
        query = ScheduleQuery(ids=tuple(ids[place : place + _IDS_AT_ONCE]), limit=None)
        page = await visit.door.schedules.find(visit.actor, query)
        found |= {each.id: each for each in page.items}
    # As they were ticked; where somebody else was faster, without those.
    return [found[each] for each in ids if each in found]


def _ids(visit: Visit) -> list[ScheduleId]:
    return [ScheduleId(each) for each in dict.fromkeys(visit.form.all("id"))]


async def _matching(visit: Visit, text: str) -> Sequence[Schedule]:
    asked = asked_for(visit, text)
    if asked.filter.wrong:
        # Otherwise it would be done to more than was meant.
        raise InvalidInput(asked.filter.wrong[0], field="q", source="query")
    found = await visit.door.schedules.find(visit.actor, replace(asked.query, limit=MOST + 1))
    if len(found.items) > MOST:
        raise InvalidInput(
            say("more than {most} schedules match; narrow the filter", most=MOST), field="q"
        )
    return found.items


def _ask(
    visit: Visit,
    verb: Verb,
    meant: Sequence[Meant],
    *,
    changed: bool = False,
    error: Refused | None = None,
) -> Response:
    everything = visit.form.text("which") == "all"
    return visit.page_or_part(
        "schedules/bulk.html",
        "part",
        status=200 if error is None else error.status,
        verb=verb.value,
        question=views_bulk.question(verb, len(meant)),
        names=[each.name for each in meant[:5]],
        count=len(meant),
        which="all" if everything else "selected",
        ids=[] if everything else [each.id for each in meant],
        q=visit.form.text("q"),
        changed=changed,
        error=error,
        given=visit.form,
        overlaps=[each.value for each in Overlap],
        most_runs=MOST_RUNS,
        back=visit.back(HERE),
    )


async def _carry_out(visit: Visit, verb: Verb, meant: Sequence[Meant]) -> Response:
    one = _one(visit, verb)
    free = asyncio.Semaphore(_AT_ONCE)

    async def outcome(place: int, each: Meant) -> Outcome:
        async with free:
            try:
                return await one(place, each)
            except ChimesError as error:
                return Outcome(id=each.id, name=each.name, error=error.message)

    items = await asyncio.gather(*(outcome(place, each) for place, each in enumerate(meant)))
    outcomes = Outcomes(verb=verb, items=items)
    return visit.page(
        "schedules/bulk_done.html",
        outcomes=outcomes,
        undo=outcomes.undo if len(outcomes.done) <= MOST_IDS else None,
        back=visit.back(HERE),
    )


def _one(visit: Visit, verb: Verb) -> Callable[[int, Meant], Awaitable[Outcome]]:
    """What is done to each; InvalidInput, before anything is, if the form does not say what."""
    match verb:
        case Verb.PAUSE:
            return _pausing(visit)
        case Verb.RUN:
            return _running(visit)
        case Verb.LABEL:
            return _editing(visit, views_bulk.labelled(visit.form.text("label")))
        case Verb.ZONE:
            return _editing(visit, views_bulk.in_zone(visit.form.text("zone")))
        case Verb.OVERLAP:
            return _editing(visit, views_bulk.overlapping(visit.form.text("overlap")))
        case Verb.RESUME:
            return _plainly(lambda each: visit.door.schedules.resume(visit.actor, each.id))
        case Verb.RESTORE:
            return _plainly(lambda each: visit.door.schedules.restore(visit.actor, each.id))
        case _:
            return _plainly(lambda each: visit.door.schedules.delete(visit.actor, each.id))


def _plainly(
    act: Callable[[Meant], Awaitable[Schedule]],
) -> Callable[[int, Meant], Awaitable[Outcome]]:
    async def one(place: int, each: Meant) -> Outcome:
        after = await act(each)
        return Outcome(id=after.id, name=after.name)

    return one


def _pausing(visit: Visit) -> Callable[[int, Meant], Awaitable[Outcome]]:
    until, note = moment_in(visit, "until"), visit.form.text("reason")
    if until is not None and until <= visit.now:
        raise InvalidInput(say("until lies in the past"), field="until", code="in_the_past")
    return _plainly(
        lambda each: visit.door.schedules.pause(visit.actor, each.id, note=note, until=until)
    )


def _editing(visit: Visit, edit: Edit) -> Callable[[int, Meant], Awaitable[Outcome]]:
    return _plainly(lambda each: visit.door.schedules.change(visit.actor, each.id, edit))


def _running(visit: Visit) -> Callable[[int, Meant], Awaitable[Outcome]]:
    """At most so many, so far apart: the others are left out."""
    limit = _between(visit, "limit", 1, MOST_RUNS, 10)
    spacing = _between(visit, "spacing", 0, MOST_SPACING, 0)

    async def one(place: int, each: Meant) -> Outcome:
        if place >= limit:
            return Outcome(id=each.id, name=each.name, left_out=True)
        run, _ = await visit.door.schedules.run_asked_for(
            visit.actor, each.id, delay=timedelta(seconds=spacing * place)
        )
        return Outcome(id=each.id, name=each.name, address=f"/ui/runs/{run.id}")

    return one


def _between(visit: Visit, field: str, least: int, most: int, usual: int) -> int:
    value = visit.form.number(field, usual)
    if value is None or not least <= value <= most:
        raise InvalidInput(say("between {least} and {most}", least=least, most=most), field=field)
    return value


def _file(schedules: Sequence[Schedule], verb: Verb) -> Response:
    shown = {"schedules": [definition_of(each) for each in schedules]}
    as_is_json = verb is Verb.EXPORT_JSON
    name = "schedules.json" if as_is_json else "schedules.yaml"
    return Response(
        as_json(shown) if as_is_json else as_yaml(shown),
        media_type="application/json" if as_is_json else "application/yaml",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
