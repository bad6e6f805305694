"""Bulk actions on selected schedules or on all that match a filter, with confirmation and undo."""

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
from chimes.model.definition import Overlap
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule
from chimes.services.schedules.editor import (
    ScheduleChange,
    delete_change,
    pause_change,
    resume_change,
)
from chimes.triggers import trigger_from_dict
from chimes.triggers.zones import parse_zone
from chimes.web.api.paging import decode_cursor, encode_cursor
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    Form,
    FormError,
    PageRequest,
    PageRouter,
)
from chimes.web.dashboard.schedule.actions import parse_local_time
from chimes.web.dashboard.schedule.definition import as_json, as_yaml, definition_of
from chimes.web.dashboard.schedules.routes import LIST_PAGE, FilteredQuery, parse_query

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
    #: Undo of DELETE.
    RESTORE = "restore"


EXPORTS = (Verb.EXPORT_YAML, Verb.EXPORT_JSON)
#: The action that undoes another; other actions have no undo.
UNDO_VERBS: Mapping[Verb, Verb] = {
    Verb.PAUSE: Verb.RESUME,
    Verb.RESUME: Verb.PAUSE,
    Verb.DELETE: Verb.RESTORE,
}


def parse_verb(text: str) -> Verb:
    if text not in set(Verb):
        raise InvalidInput(_("must be one of {known}", known=", ".join(Verb)), field="verb")
    return Verb(text)


def dialog_title(verb: Verb, count: int) -> Message:
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
                "Change the overlap policy of {count} schedule?",
                "Change the overlap policy of {count} schedules?",
                count,
            )
        case Verb.RESTORE:
            return counted("Restore {count} schedule?", "Restore {count} schedules?", count)
        case _:
            return counted("Delete {count} schedule?", "Delete {count} schedules?", count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Result for one schedule."""

    id: ScheduleId
    name: str
    #: Empty: it succeeded.
    error: str = ""
    #: URL of the result, such as the run.
    address: str = ""
    #: Not processed because of the limit.
    over_limit: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress of a bulk action over the requests so far."""

    #: 0: one request does it all.
    total: int = 0
    done: int = 0
    failed_count: int = 0
    over_limit: int = 0
    #: Start of the first request; None if there is only one request.
    started: datetime | None = None
    #: Where the next request continues; empty: nothing is left.
    cursor: str = ""

    @property
    def processed(self) -> int:
        return self.done + self.failed_count + self.over_limit

    @property
    def left(self) -> int:
        return self.total - self.processed


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    verb: Verb
    items: Sequence[Outcome]
    #: Progress before these items; the cursor is the one after them.
    before: Progress = Progress()

    @property
    def done(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.items if not each.error and not each.over_limit)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.items if each.error)

    @property
    def progress(self) -> Progress:
        """Progress including these items."""
        done, failed_count = len(self.done), len(self.failed)
        return replace(
            self.before,
            done=self.before.done + done,
            failed_count=self.before.failed_count + failed_count,
            over_limit=self.before.over_limit + len(self.items) - done - failed_count,
        )

    @property
    def undo(self) -> Verb | None:
        return UNDO_VERBS.get(self.verb) if self.progress.done else None

    @property
    def worst_first(self) -> tuple[Outcome, ...]:
        return tuple(sorted(self.items, key=lambda each: (not each.error, each.over_limit)))


def add_label(text: str) -> Edit:
    """`name` or `name=value`."""
    name, equals, value = text.strip().partition("=")
    if not name.strip():
        raise InvalidInput(_("a label has the form name or name=value"), field="label")
    return lambda before: replace(
        before, labels={**before.labels, name.strip(): value.strip() if equals else None}
    )


def set_zone(text: str) -> Edit:
    zone = parse_zone(text.strip(), field="zone").name

    def edit(before: Schedule) -> Schedule:
        plain = before.trigger.to_dict()
        if plain["kind"] == "every":
            raise InvalidInput(_("an interval does not depend on the time zone"))
        after = trigger_from_dict({**plain, "timezone": zone})
        if after.zone != zone:
            raise InvalidInput(_("the expression contains its own time zone; edit it there"))
        return replace(before, trigger=after)

    return edit


def set_overlap(text: str) -> Edit:
    if text not in set(Overlap):
        raise InvalidInput(_("must be one of {known}", known=", ".join(Overlap)), field="overlap")
    return lambda before: replace(before, policy=replace(before.policy, overlap=Overlap(text)))


#: A request processes batches for about this long; the page continues with the next request.
MAX_SECONDS = 8.0
#: Schedules per transaction.
BATCH_SIZE = 100
_IDS_PER_QUERY = 1000
#: Processes a batch; the number counts the schedules before it.
Work = Callable[[Sequence[Schedule], int], Awaitable[list[Outcome]]]
#: Processes the batch at a cursor: cursor, batch size, number of schedules before it. Returns the
#: outcomes and the next cursor, empty at the end.
Step = Callable[[str, int, int], Awaitable[tuple[list[Outcome], str]]]
Restore = Callable[[Sequence[ScheduleId]], Awaitable[list[Outcome]]]


def parse_progress(form: Form, now: datetime) -> Progress:
    """From the fields of the previous result page."""
    return Progress(
        total=_parse_count(form, "count"),
        done=_parse_count(form, "done"),
        failed_count=_parse_count(form, "refused"),
        over_limit=_parse_count(form, "left_out"),
        started=_parse_time(form, "started") or now,
        cursor=form.text("cursor"),
    )


async def apply_to_matching(
    request: PageRequest, verb: Verb, query: ScheduleQuery, before: Progress, work: Work
) -> Outcomes:
    """Applies the action to all schedules that match a query. Oldest first, so that changes made by
    the action itself neither repeat nor omit a schedule."""
    # A cursor is valid for one action and filter only.
    scope = json.dumps([verb, request.form.text("q")])
    query = replace(query, sort=ScheduleSort.CREATED_AT, descending=False)

    async def step(cursor: str, size: int, done: int) -> tuple[list[Outcome], str]:
        after = decode_cursor(cursor or None, scope, numbers=True)
        page = await request.context.schedules.find(
            request.actor, replace(query, after=after, limit=size)
        )
        following = encode_cursor(page.next, scope) if page.next is not None else ""
        return await work(page.items, done), following

    return await _process_batches(request, verb, before, step)


async def undo_earlier(
    request: PageRequest, verb: Verb, before: Progress, work: Work, restore: Restore
) -> Outcomes:
    """Undoes what this actor did between two times, according to the audit log."""
    undone = next((each for each, by in UNDO_VERBS.items() if by is verb), None)
    since, until = _parse_time(request.form, "since"), _parse_time(request.form, "to")
    if undone is None or since is None or until is None:
        raise InvalidInput(_("the form cannot be read"), code="bad_form")

    async def step(cursor: str, size: int, done: int) -> tuple[list[Outcome], str]:
        ids, following = await request.context.schedules.list_changed(
            request.actor,
            undone.value,
            since,
            until,
            before=int(cursor) if cursor else None,
            limit=size,
        )
        if verb is Verb.RESTORE:
            outcomes = await restore(ids)
        else:
            outcomes = await work(await schedules_with(request, ids), done)
        return outcomes, "" if following is None else str(following)

    number = _parse_count(request.form, "cursor")
    before = replace(before, cursor=str(number) if number else "")
    return await _process_batches(request, verb, before, step)


async def _process_batches(
    request: PageRequest, verb: Verb, before: Progress, step: Step
) -> Outcomes:
    """Processes batches until all are done or the time of the request is used up. After a store
    error the outcomes so far are returned, so that the user can continue."""
    outcomes: list[Outcome] = []
    cursor = before.cursor
    clock = request.context.clock
    deadline = clock.monotonic() + MAX_SECONDS
    while (left := before.left - len(outcomes)) > 0:
        done = before.processed + len(outcomes)
        try:
            batch, cursor = await step(cursor, min(BATCH_SIZE, left), done)
        except StoreError:
            if not outcomes:
                raise
            break
        outcomes += batch
        if not cursor or clock.monotonic() >= deadline:
            break
    if before.left <= len(outcomes):
        cursor = ""
    return Outcomes(verb=verb, items=outcomes, before=replace(before, cursor=cursor))


async def schedules_with(request: PageRequest, ids: Sequence[ScheduleId]) -> list[Schedule]:
    """In this order, without schedules that were deleted meanwhile."""
    found: dict[ScheduleId, Schedule] = {}
    for place in range(0, len(ids), _IDS_PER_QUERY):
        query = ScheduleQuery(ids=tuple(ids[place : place + _IDS_PER_QUERY]), limit=None)
        page = await request.context.schedules.find(request.actor, query)
        found |= {each.id: each for each in page.items}
    return [found[each] for each in ids if each in found]


async def in_batches(items: Sequence[Schedule], work: Work) -> list[Outcome]:
    found: list[Outcome] = []
    for place in range(0, len(items), BATCH_SIZE):
        found += await work(items[place : place + BATCH_SIZE], place)
        await asyncio.sleep(0)
    return found


def _parse_count(form: Form, name: str) -> int:
    return max(0, form.number(name, 0) or 0)


def _parse_time(form: Form, name: str) -> datetime | None:
    text = form.text(name)
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        found = None
    return found if found is not None and found.tzinfo is not None else None


router = PageRouter()
MAX_EXPORTED = 20_000
#: Ids in the hidden fields of a form.
MAX_IDS = 1900
MAX_RUNS = 500
MAX_SPACING = 3600
#: Rows of the result page; failures come first.
MAX_ROWS = 200
_CONCURRENT_RESTORES = 8
#: Fields that the next request of the same action repeats.
REPEATED_FIELDS = frozenset(
    {"which", "q", "reason", "until", "limit", "spacing", "label", "zone", "overlap", "since", "to"}
)


@router.get("/schedules/export")
async def export(request: PageRequest) -> Response:
    """All matching schedules as a file."""
    verb = Verb.EXPORT_JSON if request.query.get("format") == "json" else Verb.EXPORT_YAML
    return await _export_file(await _schedules_to_export(request, request.query.get("q", "")), verb)


@router.post("/schedules/bulk")
async def bulk(request: PageRequest) -> Response:
    verb = parse_verb(request.form.text("verb"))
    which = request.form.text("which")
    if which == "marked":
        before = parse_progress(request.form, request.now)
        restore = _restorer(request)
        return await _render_outcomes(
            request, await undo_earlier(request, verb, before, _work(request, verb), restore)
        )
    if verb is Verb.RESTORE:
        return await _render_outcomes(
            request, Outcomes(verb=verb, items=await _restorer(request)(_ids(request)))
        )
    return await (_apply_to_all if which == "all" else _apply_to_selected)(request, verb)


async def _apply_to_selected(request: PageRequest, verb: Verb) -> Response:
    found = await schedules_with(request, _ids(request))
    if not found:
        return _none_selected(request)
    if verb in EXPORTS:
        return await _export_file(found, verb)
    names = [each.name for each in found[:5]]
    ids = [each.id for each in found]
    # Schedules may have been deleted since the dialog was shown.
    same = request.form.text("count") in ("", str(len(found)))
    if not request.is_confirmed or not same:
        return _render_dialog(request, verb, names, len(found), ids, changed=request.is_confirmed)
    try:
        work = _work(request, verb)
    except FORM_ERRORS as error:
        failed_count = await request.form_error(error)
        return _render_dialog(request, verb, names, len(found), ids, error=failed_count)
    return await _render_outcomes(request, Outcomes(verb=verb, items=await in_batches(found, work)))


async def _apply_to_all(request: PageRequest, verb: Verb) -> Response:
    text = request.form.text("q")
    if verb in EXPORTS:
        return await _export_file(await _schedules_to_export(request, text), verb)
    filtered = _checked_query(request, text)
    before = parse_progress(request.form, request.now)
    if before.cursor:
        return await _render_outcomes(
            request,
            await apply_to_matching(request, verb, filtered.query, before, _work(request, verb)),
        )
    total = await request.context.schedules.count(request.actor, filtered.query)
    if not total:
        return _none_selected(request)
    # The filter may match others than when the dialog was shown.
    same = request.form.text("count") in ("", str(total))
    error: FormError | None = None
    if request.is_confirmed and same:
        try:
            work = _work(request, verb)
        except FORM_ERRORS as problem:
            error = await request.form_error(problem)
        else:
            begin = replace(before, total=total)
            return await _render_outcomes(
                request, await apply_to_matching(request, verb, filtered.query, begin, work)
            )
    page = await request.context.schedules.find(request.actor, replace(filtered.query, limit=5))
    names = [each.name for each in page.items]
    return _render_dialog(
        request, verb, names, total, (), changed=request.is_confirmed and not same, error=error
    )


def _none_selected(request: PageRequest) -> Response:
    return request.redirect_with_toast(
        _("No schedules selected."), to=request.back_url(LIST_PAGE), kind="warning"
    )


def _ids(request: PageRequest) -> list[ScheduleId]:
    return [ScheduleId(each) for each in dict.fromkeys(request.form.all("id"))]


def _checked_query(request: PageRequest, text: str) -> FilteredQuery:
    filtered = parse_query(request, text)
    if filtered.filter.errors:
        # An ignored condition would apply the action to more schedules than intended.
        raise InvalidInput(filtered.filter.errors[0], field="q", source="query")
    return filtered


async def _schedules_to_export(request: PageRequest, text: str) -> Sequence[Schedule]:
    filtered = _checked_query(request, text)
    query = replace(filtered.query, limit=MAX_EXPORTED + 1)
    found = await request.context.schedules.find(request.actor, query)
    if len(found.items) > MAX_EXPORTED:
        raise InvalidInput(
            _("more than {limit} schedules match; narrow the filter", limit=MAX_EXPORTED),
            field="q",
        )
    return found.items


def _render_dialog(
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
        title=dialog_title(verb, count),
        names=names,
        count=count,
        which="selected" if ids else "all",
        ids=ids,
        q=request.form.text("q"),
        changed=changed,
        error=error,
        given=request.form,
        overlaps=[each.value for each in Overlap],
        max_runs=MAX_RUNS,
        back=request.back_url(LIST_PAGE),
    )


async def _render_outcomes(request: PageRequest, outcomes: Outcomes) -> Response:
    """The result page, with the forms to continue and to undo."""
    progress = outcomes.progress
    has_ids = progress.done == len(outcomes.done) <= MAX_IDS
    return request.render_page_or_block(
        "schedules/bulk_done.html",
        "result",
        outcomes=outcomes,
        progress=progress,
        shown=outcomes.worst_first[:MAX_ROWS],
        repeated_fields=[pair for pair in request.form.items() if pair[0] in REPEATED_FIELDS],
        undo=outcomes.undo if has_ids or progress.started is not None else None,
        has_ids=has_ids,
        since=None if progress.started is None else progress.started.isoformat(),
        to=(await request.context.now()).isoformat(),
        back=request.back_url(LIST_PAGE),
    )


def _work(request: PageRequest, verb: Verb) -> Work:
    """InvalidInput, before any schedule is changed, if the form is incomplete."""
    match verb:
        case Verb.PAUSE:
            return _change_all(request, _pause(request))
        case Verb.RUN:
            return _run_all(request)
        case Verb.LABEL:
            return _edit_all(request, add_label(request.form.text("label")))
        case Verb.ZONE:
            return _edit_all(request, set_zone(request.form.text("zone")))
        case Verb.OVERLAP:
            return _edit_all(request, set_overlap(request.form.text("overlap")))
        case Verb.RESUME:
            return _change_all(request, resume_change(request.actor))
        case _:
            return _change_all(request, delete_change(request.actor))


def _change_all(request: PageRequest, act: ScheduleChange) -> Work:
    async def same(each: Schedule) -> ScheduleChange:
        return act

    return _change_each(request, same)


def _edit_all(request: PageRequest, edit: Edit) -> Work:
    return _change_each(
        request, lambda each: request.context.schedules.prepare_change(request.actor, each, edit)
    )


def _change_each(
    request: PageRequest, act: Callable[[Schedule], Awaitable[ScheduleChange]]
) -> Work:
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
    until, note = parse_local_time(request, "until"), request.form.text("reason")
    if until is not None and until <= request.now:
        raise InvalidInput(_("must be in the future"), field="until", code="in_the_past")
    return pause_change(request.actor, note=note, until=until)


def _restorer(request: PageRequest) -> Restore:
    free = asyncio.Semaphore(_CONCURRENT_RESTORES)

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


def _run_all(request: PageRequest) -> Work:
    """Requests at most `limit` runs with `spacing` seconds in between."""
    limit = _number_between(request, "limit", 1, MAX_RUNS, 10)
    spacing = _number_between(request, "spacing", 0, MAX_SPACING, 0)

    async def one(place: int, each: Schedule) -> Outcome:
        if place >= limit:
            return Outcome(id=each.id, name=each.name, over_limit=True)
        try:
            run, _created = await request.context.manual_runs.run_now_or_get(
                request.actor, each.id, delay=timedelta(seconds=spacing * place)
            )
        except ChimesError as error:
            return Outcome(id=each.id, name=each.name, error=error.message)
        return Outcome(id=each.id, name=each.name, address=f"/ui/runs/{run.id}")

    async def work(batch: Sequence[Schedule], place: int) -> list[Outcome]:
        return [await one(place + offset, each) for offset, each in enumerate(batch)]

    return work


def _number_between(
    request: PageRequest, field: str, minimum: int, maximum: int, default: int
) -> int:
    value = request.form.number(field, default)
    if value is None or not minimum <= value <= maximum:
        raise InvalidInput(
            _("must be between {minimum} and {maximum}", minimum=minimum, maximum=maximum),
            field=field,
        )
    return value


async def _export_file(schedules: Sequence[Schedule], verb: Verb) -> Response:
    is_json = verb is Verb.EXPORT_JSON
    name = "schedules.json" if is_json else "schedules.yaml"
    return Response(
        # In a thread, because serialising thousands of schedules takes seconds.
        await asyncio.to_thread(_serialize, schedules, as_json if is_json else as_yaml),
        media_type="application/json" if is_json else "application/yaml",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _serialize(schedules: Sequence[Schedule], write: Callable[[object], str]) -> str:
    return write({"schedules": [definition_of(each) for each in schedules]})
