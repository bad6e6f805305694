"""Bulk actions on schedules, with undo; export of schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from starlette.responses import Response

from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import _, counted
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.listing import Page, Position, ScheduleQuery, ScheduleSort
from chimes.model.policy import Overlap
from chimes.model.schedule import Schedule
from chimes.services.schedules.service import (
    ScheduleChange,
    delete_change,
    pause_change,
    resume_change,
)
from chimes.triggers import trigger_from_dict
from chimes.triggers.zones import parse_zone
from chimes.web.dashboard.core import bulk
from chimes.web.dashboard.core.bulk import BulkAction, Fetch, Outcome, Work
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    ConfirmDialog,
    Form,
    PageRequest,
    PageRouter,
)
from chimes.web.dashboard.schedule.actions import parse_local_time
from chimes.web.dashboard.schedule.definition import as_json, as_yaml, definition_of
from chimes.web.dashboard.schedules.routes import LIST_PAGE, parse_query

router = PageRouter()
EXPORTS = ("export_yaml", "export_json")
MAX_EXPORTED = 20_000
#: Ids in the hidden fields of a form.
MAX_IDS = 1900
MAX_RUNS = 500
MAX_SPACING = 3600
#: Rows of the result page; failures come first.
MAX_ROWS = 200
_IDS_PER_QUERY = 1000
#: Inputs of the confirm dialogs.
_INPUTS = ("reason", "until", "limit", "spacing", "label", "zone", "overlap")
Edit = Callable[[Schedule], Schedule]
#: The schedules of an action (their ids, if they are deleted), their number and first names.
Selection = tuple[Fetch[Any], int, Sequence[str]]


# --- actions --------------------------------------------------------------------------------------
def _outcome(schedule: Schedule) -> Outcome:
    return Outcome(id=schedule.id, name=schedule.name)


def _change_each(
    request: PageRequest, prepare: Callable[[Schedule], Awaitable[ScheduleChange]]
) -> Work[Schedule]:
    async def work(batch: Sequence[Schedule], place: int) -> list[Outcome]:
        answers = await request.context.schedules.change_each(request.actor, batch, prepare)
        return [
            _outcome(each).failed(after) if isinstance(after, ChimesError) else _outcome(each)
            for each, after in zip(batch, answers, strict=True)
        ]

    return work


def _change_all(request: PageRequest, change: ScheduleChange) -> Work[Schedule]:
    async def prepare(each: Schedule) -> ScheduleChange:
        return change

    return _change_each(request, prepare)


def _edit_all(request: PageRequest, edit: Edit) -> Work[Schedule]:
    service = request.context.schedules
    return _change_each(request, lambda each: service.prepare_change(request.actor, each, edit))


def _pause(request: PageRequest) -> Work[Schedule]:
    until, note = parse_local_time(request, "until"), request.form.text("reason")
    if until is not None and until <= request.now:
        raise InvalidInput(_("must be in the future"), field="until", code="in_the_past")
    return _change_all(request, pause_change(request.actor, note=note, until=until))


def _run(request: PageRequest) -> Work[Schedule]:
    """Requests at most `limit` runs with `spacing` seconds in between."""
    limit = _number_between(request, "limit", 1, MAX_RUNS, 10)
    spacing = _number_between(request, "spacing", 0, MAX_SPACING, 0)

    async def run(each: Schedule, place: int) -> Outcome:
        if place >= limit:
            return replace(_outcome(each), over_limit=True)
        run, _created = await request.context.manual_runs.run_now_or_get(
            request.actor, each.id, delay=timedelta(seconds=spacing * place)
        )
        return replace(_outcome(each), address=f"/ui/runs/{run.id}")

    return bulk.one_by_one(run, _outcome)


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


def _restore(request: PageRequest) -> Work[ScheduleId]:
    async def restore(each: ScheduleId, place: int) -> Outcome:
        return _outcome(await request.context.schedules.restore(request.actor, each))

    return bulk.one_by_one(restore, lambda each: Outcome(id=each, name=each))


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
        if before.trigger.on_event:
            raise InvalidInput(_("an event does not depend on the time zone"))
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


ACTIONS: Mapping[str, BulkAction[Any]] = {
    "pause": BulkAction(
        title=lambda n: counted("Pause {count} schedule?", "Pause {count} schedules?", n),
        button=_("Pause"),
        prepare=_pause,
        undo="resume",
    ),
    "resume": BulkAction(
        title=lambda n: counted("Resume {count} schedule?", "Resume {count} schedules?", n),
        button=_("Resume"),
        prepare=lambda request: _change_all(request, resume_change(request.actor)),
        undo="pause",
    ),
    "run": BulkAction(
        title=lambda n: counted("Run {count} schedule now?", "Run {count} schedules now?", n),
        button=_("Run now"),
        prepare=_run,
    ),
    "label": BulkAction(
        title=lambda n: counted("Label {count} schedule?", "Label {count} schedules?", n),
        prepare=lambda request: _edit_all(request, add_label(request.form.text("label"))),
    ),
    "zone": BulkAction(
        title=lambda n: counted(
            "Change the time zone of {count} schedule?",
            "Change the time zone of {count} schedules?",
            n,
        ),
        prepare=lambda request: _edit_all(request, set_zone(request.form.text("zone"))),
    ),
    "overlap": BulkAction(
        title=lambda n: counted(
            "Change the overlap policy of {count} schedule?",
            "Change the overlap policy of {count} schedules?",
            n,
        ),
        prepare=lambda request: _edit_all(request, set_overlap(request.form.text("overlap"))),
    ),
    "delete": BulkAction(
        title=lambda n: counted("Delete {count} schedule?", "Delete {count} schedules?", n),
        button=_("Delete"),
        prepare=lambda request: _change_all(request, delete_change(request.actor)),
        dangerous=True,
        undo="restore",
    ),
    # Undo of the deletion.
    "restore": BulkAction(
        title=lambda n: counted("Restore {count} schedule?", "Restore {count} schedules?", n),
        prepare=_restore,
    ),
}


# --- requests -------------------------------------------------------------------------------------
@router.post("/schedules/bulk")
async def bulk_action(request: PageRequest) -> Response:
    form = request.form
    verb, which = form.text("verb"), form.text("which")
    if verb not in (*ACTIONS, *EXPORTS):
        known = ", ".join((*ACTIONS, *EXPORTS))
        raise InvalidInput(_("must be one of {known}", known=known), field="verb")
    if verb in EXPORTS and which == "all":
        return await _export_file(await _all_matching(request, form.text("q")), verb)
    progress = _parse_progress(form, request.now)
    if which == "marked":
        return await _process(request, verb, _fetch_changed(request, verb), progress)
    fetch, total, names = await (_matching if which == "all" else _selected)(request, verb)
    if not total and not progress.cursor:
        return request.redirect_with_toast(
            _("No schedules selected."), to=request.back_url(LIST_PAGE), kind="warning"
        )
    if verb in EXPORTS:
        return await _export_file((await fetch("", len(form.all("id"))))[0], verb)
    if not progress.cursor:
        if (dialog := await _ask(request, verb, total, names)) is not None:
            return dialog
        progress = replace(progress, count=total)
    return await _process(request, verb, fetch, progress)


async def _selected(request: PageRequest, verb: str) -> Selection:
    ids = [ScheduleId(each) for each in dict.fromkeys(request.form.all("id"))]
    if verb == "restore":
        return bulk.fetch_selected(ids, _same), len(ids), ids
    found = await _schedules_with(request, ids)
    fetch = bulk.fetch_selected(ids, partial(_schedules_with, request))
    return fetch, len(found), [each.name for each in found]


async def _same(ids: Sequence[ScheduleId]) -> Sequence[ScheduleId]:
    return ids


async def _schedules_with(request: PageRequest, ids: Sequence[ScheduleId]) -> list[Schedule]:
    """In this order, without schedules that were deleted meanwhile."""
    found: dict[ScheduleId, Schedule] = {}
    for place in range(0, len(ids), _IDS_PER_QUERY):
        query = ScheduleQuery(ids=tuple(ids[place : place + _IDS_PER_QUERY]), limit=None)
        page = await request.context.schedules.find(request.actor, query)
        found |= {each.id: each for each in page.items}
    return [found[each] for each in ids if each in found]


async def _matching(request: PageRequest, verb: str) -> Selection:
    query, service = _checked_query(request, request.form.text("q")), request.context.schedules
    # Oldest first, so that changes made by the action itself neither repeat nor omit a schedule.
    oldest_first = replace(query, sort=ScheduleSort.CREATED_AT, descending=False)

    async def find(after: Position | None, limit: int) -> Page[Schedule]:
        return await service.find(request.actor, replace(oldest_first, after=after, limit=limit))

    total = await service.count(request.actor, query)
    shown = await service.find(request.actor, replace(query, limit=5))
    return bulk.fetch_pages(request, find), total, [each.name for each in shown.items]


def _checked_query(request: PageRequest, text: str) -> ScheduleQuery:
    filtered = parse_query(request, text)
    filtered.filter.require_valid()
    return filtered.query


def _fetch_changed(request: PageRequest, undo: str) -> Fetch[Any]:
    """Fetches what this actor changed between two times, according to the audit log, to undo it."""
    verb = next((name for name, action in ACTIONS.items() if action.undo == undo), None)
    since, until = _parse_time(request.form, "since"), _parse_time(request.form, "to")
    if verb is None or since is None or until is None:
        raise InvalidInput(_("the form cannot be read"), code="bad_form")

    async def fetch(cursor: str, size: int) -> tuple[Sequence[Any], str]:
        before = bulk.offset_of(cursor) or None
        ids, following = await request.context.schedules.list_changed(
            request.actor, verb, since, until, before=before, limit=size
        )
        found = ids if undo == "restore" else await _schedules_with(request, ids)
        return found, "" if following is None else str(following)

    return fetch


async def _ask(
    request: PageRequest, verb: str, total: int, names: Sequence[str]
) -> Response | None:
    """The confirm dialog; None if the user has confirmed it and the form is complete."""
    action, error = ACTIONS[verb], None
    changed = request.is_confirmed and request.form.text("count") not in ("", str(total))
    if request.is_confirmed and not changed:
        try:
            action.prepare(request)
        except FORM_ERRORS as problem:
            error = await request.form_error(problem)
        else:
            return None
    warning = _("The matching schedules have changed. Please check again.") if changed else ""
    return request.confirm(
        ConfirmDialog(
            title=action.title(total),
            button=action.button,
            warning=warning,
            names=names,
            total=total,
            dangerous=action.dangerous,
            inputs="schedules/bulk.html",
            fields=[*request.form.repeated("count", *_INPUTS), ("count", str(total))],
        ),
        error,
        verb=verb,
        overlaps=[each.value for each in Overlap],
        max_runs=MAX_RUNS,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress over the requests of one action; the names are those of the form fields."""

    #: Schedules to process.
    count: int
    done: int
    refused: int
    #: Not run because of the limit.
    left_out: int
    #: Start of the first request.
    started: str
    #: Where the next request continues; empty: nothing is left.
    cursor: str

    @property
    def processed(self) -> int:
        return self.done + self.refused + self.left_out

    def after(self, outcomes: Sequence[Outcome], cursor: str) -> Progress:
        refused = self.refused + sum(bool(each.error) for each in outcomes)
        left_out = self.left_out + sum(each.over_limit for each in outcomes)
        processed = self.processed + len(outcomes)
        done = processed - refused - left_out
        # More may match than the user was asked about.
        cursor = cursor if processed < self.count else ""
        return replace(self, done=done, refused=refused, left_out=left_out, cursor=cursor)


def _parse_progress(form: Form, now: datetime) -> Progress:
    """From the fields of the previous result page."""
    names = ("count", "done", "refused", "left_out")
    counts = {name: max(0, form.number(name, 0) or 0) for name in names}
    started = _parse_time(form, "started") or now
    return Progress(**counts, started=started.isoformat(), cursor=form.text("cursor"))


def _parse_time(form: Form, name: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(form.text(name))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


async def _process(
    request: PageRequest, verb: str, fetch: Fetch[Any], before: Progress
) -> Response:
    """Processes what one request can; the result page has the forms to continue and to undo."""
    action = ACTIONS[verb]
    outcomes, cursor = await bulk.process(
        request,
        fetch,
        action.prepare(request),
        limit=before.count - before.processed,
        cursor=before.cursor,
        done=before.processed,
    )
    progress = before.after(outcomes, cursor)
    return request.render_page_or_block(
        "schedules/bulk_done.html",
        "result",
        progress=progress,
        count=len(outcomes),
        shown=worst_first(outcomes)[:MAX_ROWS],
        next_fields=bulk.next_fields(request, **asdict(progress)) if progress.cursor else (),
        undo_fields=_undo_fields(action, outcomes, progress, await request.context.now()),
        back=request.back_url(LIST_PAGE),
    )


def worst_first(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return sorted(outcomes, key=lambda each: (not each.error, each.over_limit))


def _undo_fields(
    action: BulkAction[Any], outcomes: Sequence[Outcome], progress: Progress, now: datetime
) -> list[tuple[str, str]]:
    """The ids of the changed schedules; the time of the action if these are too many."""
    if not action.undo or not progress.done:
        return []
    done = [each.id for each in outcomes if not each.error and not each.over_limit]
    which = {"which": "marked", "since": progress.started, "to": now.isoformat()}
    fields = [*which.items(), ("count", str(progress.done))]
    if progress.done == len(done) <= MAX_IDS:
        fields = [("which", "selected"), *(("id", each) for each in done)]
    return [("verb", action.undo), ("sure", "yes"), *fields]


# --- export ---------------------------------------------------------------------------------------
@router.get("/schedules/export")
async def export(request: PageRequest) -> Response:
    """All matching schedules as a file."""
    verb = "export_json" if request.query.get("format") == "json" else "export_yaml"
    return await _export_file(await _all_matching(request, request.query.get("q", "")), verb)


async def _all_matching(request: PageRequest, text: str) -> Sequence[Schedule]:
    query = replace(_checked_query(request, text), limit=MAX_EXPORTED + 1)
    found = await request.context.schedules.find(request.actor, query)
    if len(found.items) > MAX_EXPORTED:
        raise InvalidInput(
            _("more than {limit} schedules match; narrow the filter", limit=MAX_EXPORTED),
            field="q",
        )
    return found.items


async def _export_file(schedules: Sequence[Schedule], verb: str) -> Response:
    is_json = verb == "export_json"
    name = "schedules.json" if is_json else "schedules.yaml"
    return Response(
        # In a thread, because serialising thousands of schedules takes seconds.
        await asyncio.to_thread(_serialize, schedules, as_json if is_json else as_yaml),
        media_type="application/json" if is_json else "application/yaml",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _serialize(schedules: Sequence[Schedule], write: Callable[[object], str]) -> str:
    return write({"schedules": [definition_of(each) for each in schedules]})
