"""One action on the selected schedules, or on all that a filter finds (UX A.2): asked with the
count and the first five names, answered with what became of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from starlette.responses import Response

from chimes.errors import ChimesError, InvalidInput, StoreError
from chimes.i18n import Message, _, counted
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.policy import Overlap
from chimes.model.schedule import Schedule
from chimes.services.schedule_editor import (
    ScheduleChange,
    delete_change,
    pause_change,
    resume_change,
)
from chimes.triggers import trigger_from_dict
from chimes.triggers.zones import parse_zone
from chimes.web.api.paging import encode_cursor, decode_cursor
from chimes.web.dashboard.core.forms import FORM_ERRORS, Form, FormError
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.schedule.actions import moment_in
from chimes.web.dashboard.schedule.definition import as_json, as_yaml, definition_of
from chimes.web.dashboard.schedules.routes import HERE, Asked, asked_for

# @@ One action on many schedules: what is asked, and what became of each.

Edit = Callable[[Schedule], Schedule]


class Verb(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    RUN = "run"
    LABEL = "label"
    ZONE = "zone"
    OVERLAP = "overlap"
    EXPORT_YAML = "export_yaml"
    EXPORT_JSON = "export_json"
    DELETE = "delete"
    #: Undoes a deletion.
    RESTORE = "restore"


EXPORTS = (Verb.EXPORT_YAML, Verb.EXPORT_JSON)
#: What takes back what; the others cannot be taken back at once.
UNDOES: Mapping[Verb, Verb] = {
    Verb.PAUSE: Verb.RESUME,
    Verb.RESUME: Verb.PAUSE,
    Verb.DELETE: Verb.RESTORE,
}


def verb_from(text: str) -> Verb:
    if text not in set(Verb):
        raise InvalidInput(_("one of {known}", known=", ".join(Verb)), field="verb")
    return Verb(text)


def question(verb: Verb, count: int) -> Message:
    match verb:
        case Verb.PAUSE:
            return counted("Pause {count} schedule?", "Pause {count} schedules?", count)
        case Verb.RESUME:
            return counted("Resume {count} schedule?", "Resume {count} schedules?", count)
        case Verb.RUN:
            return counted("Run {count} schedule now?", "Run {count} schedules now?", count)
        case Verb.LABEL:
            return counted("Label {count} schedule?", "Label {count} schedules?", count)
        case Verb.ZONE:
            return counted(
                "Change the time zone of {count} schedule?",
                "Change the time zone of {count} schedules?",
                count,
            )
        case Verb.OVERLAP:
            return counted(
                "Change what overlaps do in {count} schedule?",
                "Change what overlaps do in {count} schedules?",
                count,
            )
        case Verb.RESTORE:
            return counted("Bring {count} schedule back?", "Bring {count} schedules back?", count)
        case _:
            return counted("Delete {count} schedule?", "Delete {count} schedules?", count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one of them."""

    id: ScheduleId
    name: str
    #: Empty: it was done.
    error: str = ""
    #: What it led to, where that has a page.
    address: str = ""
    #: Nothing was done, and that is as it should be.
    left_out: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far an action on many had come with the requests before."""

    #: Of how many; 0: it is all done with one request.
    total: int = 0
    done: int = 0
    refused: int = 0
    left_out: int = 0
    #: Since when; None: nobody has to know.
    started: datetime | None = None
    #: Where it goes on; empty: nothing is left.
    cursor: str = ""

    @property
    def seen(self) -> int:
        return self.done + self.refused + self.left_out

    @property
    def left(self) -> int:
        return self.total - self.seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    verb: Verb
    items: Sequence[Outcome]
    #: Its cursor is where it goes on after these.
    before: Progress = Progress()

    @property
    def done(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.items if not each.error and not each.left_out)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.items if each.error)

    @property
    def progress(self) -> Progress:
        """With these."""
        done, refused = len(self.done), len(self.failed)
        return replace(
            self.before,
            done=self.before.done + done,
            refused=self.before.refused + refused,
            left_out=self.before.left_out + len(self.items) - done - refused,
        )

    @property
    def undo(self) -> Verb | None:
        return UNDOES.get(self.verb) if self.progress.done else None

    @property
    def worst_first(self) -> tuple[Outcome, ...]:
        return tuple(sorted(self.items, key=lambda each: (not each.error, each.left_out)))


def labelled(text: str) -> Edit:
    """`name` or `name=value`."""
    name, equals, value = text.strip().partition("=")
    if not name.strip():
        raise InvalidInput(_("a label is written as name or name=value"), field="label")
    return lambda before: replace(
        before, labels={**before.labels, name.strip(): value.strip() if equals else None}
    )


def with_zone(text: str) -> Edit:
    zone = parse_zone(text.strip(), field="zone").name

    def edit(before: Schedule) -> Schedule:
        plain = before.trigger.to_dict()
        if plain["kind"] == "every":
            raise InvalidInput(_("an interval is the same in every time zone"))
        after = trigger_from_dict({**plain, "timezone": zone})
        if after.zone != zone:
            raise InvalidInput(_("its expression names a time zone itself; edit it there"))
        return replace(before, trigger=after)

    return edit


def overlapping(text: str) -> Edit:
    if text not in set(Overlap):
        raise InvalidInput(_("one of {known}", known=", ".join(Overlap)), field="overlap")
    return lambda before: replace(before, policy=replace(before.policy, overlap=Overlap(text)))


# @@ One action on all that a filter finds, or on all that an earlier action was done to: in
# batches, for a bounded time, and then as far as it came, so that it can be continued (UX A.2).

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
    request: PageRequest, verb: Verb, query: ScheduleQuery, before: Progress, work: Work
) -> Outcomes:
    """Oldest first: whatever the action changes, nothing comes twice and nothing is left out."""
    # A position belongs to its filter.
    question = json.dumps([verb, request.form.text("q")])
    after = decode_cursor(before.cursor or None, question, numbers=True)
    asked = replace(query, sort=ScheduleSort.CREATED_AT, descending=False)
    found: list[Outcome] = []
    ends = request.context.clock.monotonic() + SECONDS
    while (left := before.left - len(found)) > 0:
        try:
            page = await request.context.schedules.find(
                request.actor, replace(asked, after=after, limit=min(BATCH, left))
            )
            found += await work(page.items, before.seen + len(found))
        except StoreError:
            # What was done until then is told, and where to go on.
            if not found:
                raise
            break
        after = page.next
        if after is None or request.context.clock.monotonic() >= ends:
            break
    more = after is not None and before.left > len(found)
    cursor = encode_cursor(after, question) if after is not None and more else ""
    return Outcomes(verb=verb, items=found, before=replace(before, cursor=cursor))


async def on_all_marked(
    request: PageRequest, verb: Verb, before: Progress, work: Work, restore: Restore
) -> Outcomes:
    """Takes back what this actor did between two moments, as the audit has it."""
    undone = next((each for each, by in UNDOES.items() if by is verb), None)
    since, until = _moment(request.form, "since"), _moment(request.form, "to")
    if undone is None or since is None or until is None:
        raise InvalidInput(_("the form cannot be read"), code="bad_form")
    number = _count(request.form, "cursor") or None
    found: list[Outcome] = []
    ends = request.context.clock.monotonic() + SECONDS
    while (left := before.left - len(found)) > 0:
        try:
            ids, following = await request.context.schedules.list_changed(
                request.actor, undone.value, since, until, before=number, limit=min(BATCH, left)
            )
            if verb is Verb.RESTORE:
                found += await restore(ids)
            else:
                found += await work(await schedules_with(request, ids), before.seen + len(found))
        except StoreError:
            if not found:
                raise
            break
        number = following
        if number is None or request.context.clock.monotonic() >= ends:
            break
    cursor = str(number) if number is not None and before.left > len(found) else ""
    return Outcomes(verb=verb, items=found, before=replace(before, cursor=cursor))


async def schedules_with(request: PageRequest, ids: Sequence[ScheduleId]) -> list[Schedule]:
    """In this order; where somebody else was faster, without those."""
    found: dict[ScheduleId, Schedule] = {}
    for place in range(0, len(ids), _IDS_AT_ONCE):
        query = ScheduleQuery(ids=tuple(ids[place : place + _IDS_AT_ONCE]), limit=None)
        page = await request.context.schedules.find(request.actor, query)
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


router = PageRouter()
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


@router.get("/schedules/export")
async def export(request: PageRequest) -> Response:
    """All that the filter finds, as a file."""
    verb = Verb.EXPORT_JSON if request.query.get("format") == "json" else Verb.EXPORT_YAML
    return await _file(await _exported(request, request.query.get("q", "")), verb)


@router.post("/schedules/bulk")
async def bulk(request: PageRequest) -> Response:
    verb = verb_from(request.form.text("verb"))
    which = request.form.text("which")
    if which == "marked":
        before = progress_in(request.form, request.now)
        restore = _restoring(request)
        return await _answer(
            request, await on_all_marked(request, verb, before, _work(request, verb), restore)
        )
    if verb is Verb.RESTORE:
        return await _answer(
            request, Outcomes(verb=verb, items=await _restoring(request)(_ids(request)))
        )
    return await (_all if which == "all" else _selected)(request, verb)


async def _selected(request: PageRequest, verb: Verb) -> Response:
    # As they were ticked.
    found = await schedules_with(request, _ids(request))
    if not found:
        return _nothing(request)
    if verb in EXPORTS:
        return await _file(found, verb)
    names = [each.name for each in found[:5]]
    ids = [each.id for each in found]
    # Somebody else may have been faster.
    same = request.form.text("count") in ("", str(len(found)))
    if not request.is_confirmed or not same:
        return _ask(request, verb, names, len(found), ids, changed=request.is_confirmed)
    try:
        work = _work(request, verb)
    except FORM_ERRORS as error:
        refused = await request.form_error(error)
        return _ask(request, verb, names, len(found), ids, error=refused)
    return await _answer(request, Outcomes(verb=verb, items=await in_batches(found, work)))


async def _all(request: PageRequest, verb: Verb) -> Response:
    text = request.form.text("q")
    if verb in EXPORTS:
        return await _file(await _exported(request, text), verb)
    asked = _meant(request, text)
    before = progress_in(request.form, request.now)
    if before.cursor:
        return await _answer(
            request, await on_all_found(request, verb, asked.query, before, _work(request, verb))
        )
    total = await request.context.schedules.count(request.actor, asked.query)
    if not total:
        return _nothing(request)
    # Between the question and the answer the filter may have found others.
    same = request.form.text("count") in ("", str(total))
    error: FormError | None = None
    if request.is_confirmed and same:
        try:
            work = _work(request, verb)
        except FORM_ERRORS as problem:
            error = await request.form_error(problem)
        else:
            begin = replace(before, total=total)
            return await _answer(
                request, await on_all_found(request, verb, asked.query, begin, work)
            )
    page = await request.context.schedules.find(request.actor, replace(asked.query, limit=5))
    names = [each.name for each in page.items]
    return _ask(
        request, verb, names, total, (), changed=request.is_confirmed and not same, error=error
    )


def _nothing(request: PageRequest) -> Response:
    return request.redirect_with_toast(
        _("Nothing is selected."), to=request.back_url(HERE), kind="warning"
    )


def _ids(request: PageRequest) -> list[ScheduleId]:
    return [ScheduleId(each) for each in dict.fromkeys(request.form.all("id"))]


def _meant(request: PageRequest, text: str) -> Asked:
    asked = asked_for(request, text)
    if asked.filter.errors:
        # Otherwise it would be done to more than was meant.
        raise InvalidInput(asked.filter.errors[0], field="q", source="query")
    return asked


async def _exported(request: PageRequest, text: str) -> Sequence[Schedule]:
    asked = _meant(request, text)
    query = replace(asked.query, limit=MOST_EXPORTED + 1)
    found = await request.context.schedules.find(request.actor, query)
    if len(found.items) > MOST_EXPORTED:
        raise InvalidInput(
            _("more than {most} schedules match; narrow the filter", most=MOST_EXPORTED),
            field="q",
        )
    return found.items


def _ask(
    request: PageRequest,
    verb: Verb,
    names: Sequence[str],
    count: int,
    ids: Sequence[ScheduleId],
    *,
    changed: bool = False,
    error: FormError | None = None,
) -> Response:
    return request.render_page_or_block(
        "schedules/bulk.html",
        "part",
        status=200 if error is None else error.status,
        verb=verb.value,
        question=question(verb, count),
        names=names,
        count=count,
        which="selected" if ids else "all",
        ids=ids,
        q=request.form.text("q"),
        changed=changed,
        error=error,
        given=request.form,
        overlaps=[each.value for each in Overlap],
        most_runs=MOST_RUNS,
        back=request.back_url(HERE),
    )


async def _answer(request: PageRequest, outcomes: Outcomes) -> Response:
    """What became of each; how to go on, if that is not all; and how to take it back."""
    progress = outcomes.progress
    named = progress.done == len(outcomes.done) <= MOST_IDS
    return request.render_page_or_block(
        "schedules/bulk_done.html",
        "result",
        outcomes=outcomes,
        progress=progress,
        shown=outcomes.worst_first[:MOST_SHOWN],
        kept=[pair for pair in request.form.items() if pair[0] in CARRIED],
        undo=outcomes.undo if named or progress.started is not None else None,
        named=named,
        since=None if progress.started is None else progress.started.isoformat(),
        to=(await request.context.now()).isoformat(),
        back=request.back_url(HERE),
    )


def _work(request: PageRequest, verb: Verb) -> Work:
    """What is done to each; InvalidInput, before anything is, if the form does not say what."""
    match verb:
        case Verb.PAUSE:
            return _acting(request, _pause(request))
        case Verb.RUN:
            return _running(request)
        case Verb.LABEL:
            return _editing(request, labelled(request.form.text("label")))
        case Verb.ZONE:
            return _editing(request, with_zone(request.form.text("zone")))
        case Verb.OVERLAP:
            return _editing(request, overlapping(request.form.text("overlap")))
        case Verb.RESUME:
            return _acting(request, resume_change(request.actor))
        case _:
            return _acting(request, delete_change(request.actor))


def _acting(request: PageRequest, act: ScheduleChange) -> Work:
    async def same(each: Schedule) -> ScheduleChange:
        return act

    return _each(request, same)


def _editing(request: PageRequest, edit: Edit) -> Work:
    return _each(
        request, lambda each: request.context.schedules.prepare_change(request.actor, each, edit)
    )


def _each(request: PageRequest, act: Callable[[Schedule], Awaitable[ScheduleChange]]) -> Work:
    async def work(batch: Sequence[Schedule], place: int) -> list[Outcome]:
        answers = await request.context.schedules.change_each(request.actor, batch, act)
        return [
            Outcome(
                id=each.id,
                name=each.name,
                error=after.message if isinstance(after, ChimesError) else "",
            )
            for each, after in zip(batch, answers, strict=True)
        ]

    return work


def _pause(request: PageRequest) -> ScheduleChange:
    until, note = moment_in(request, "until"), request.form.text("reason")
    if until is not None and until <= request.now:
        raise InvalidInput(_("until lies in the past"), field="until", code="in_the_past")
    return pause_change(request.actor, note=note, until=until)


def _restoring(request: PageRequest) -> Restore:
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(each: ScheduleId) -> Outcome:
        async with free:
            try:
                after = await request.context.schedules.restore(request.actor, each)
            except ChimesError as error:
                return Outcome(id=each, name=each, error=error.message)
        return Outcome(id=after.id, name=after.name)

    async def all_of(ids: Sequence[ScheduleId]) -> list[Outcome]:
        return await asyncio.gather(*(one(each) for each in ids))

    return all_of


def _running(request: PageRequest) -> Work:
    """At most so many, so far apart: the others are left out."""
    limit = _between(request, "limit", 1, MOST_RUNS, 10)
    spacing = _between(request, "spacing", 0, MOST_SPACING, 0)

    async def one(place: int, each: Schedule) -> Outcome:
        if place >= limit:
            return Outcome(id=each.id, name=each.name, left_out=True)
        try:
            run, _unused = await request.context.manual_runs.run_now_or_get(
                request.actor, each.id, delay=timedelta(seconds=spacing * place)
            )
        except ChimesError as error:
            return Outcome(id=each.id, name=each.name, error=error.message)
        return Outcome(id=each.id, name=each.name, address=f"/ui/runs/{run.id}")

    async def work(batch: Sequence[Schedule], place: int) -> list[Outcome]:
        return [await one(place + offset, each) for offset, each in enumerate(batch)]

    return work


def _between(request: PageRequest, field: str, least: int, most: int, usual: int) -> int:
    value = request.form.number(field, usual)
    if value is None or not least <= value <= most:
        raise InvalidInput(_("between {least} and {most}", least=least, most=most), field=field)
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
