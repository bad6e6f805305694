"""One run: what it is doing or did, its log, and why it failed (UX A.6)."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from pydantic import ValidationError
from starlette.responses import Response, StreamingResponse

from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.audit import AuditEntry
from chimes.model.ids import DeliveryId, RunId
from chimes.model.insights import BAD, ERROR_ROOM, lag_of
from chimes.model.listing import AuditQuery, DeliveryQuery, RunQuery, RunSort
from chimes.model.notification import Delivery
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.notifications.message import CHANNELS
from chimes.retelling import retold_line
from chimes.services.attention import Known, KnownFailures, fingerprint
from chimes.services.insights import InsightService
from chimes.services.run_requests import Asker, RunRequest, askers_of
from chimes.triggers.moment import format_moment
from chimes.web.api.schemas import TargetPatch
from chimes.web.api.streams import STREAM, Followers, LogTail, resumed_after
from chimes.web.api.translate import patched_target, target_out
from chimes.web.dashboard.core.assets import accepts_gzip
from chimes.web.dashboard.core.auth import Reception, still_welcome
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import REFUSALS, Question
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import Pages
from chimes.web.dashboard.run.views import (
    LAST_ENTRIES,
    TABS,
    curl_of,
    events_of,
    exchange_of,
    failure_of,
    in_the_way,
    input_of,
    line_out,
    log_words,
    output_of,
    plain_line,
    pretty,
    stretches_of,
    trace_of,
    tree_of,
    usage_of,
    waterfall_of,
)
from chimes.web.dashboard.runs.views import duration_bar, duration_of, node_of, run_shown, visible
from chimes.web.dashboard.schedule.fire_log import why_of
from chimes.web.dashboard.system.views import Change, changes_of
from chimes.web.requests import sentence

# @@ What can be done with one run: once more, with changes, or stop it.

pages = Pages()
#: Characters of a target that somebody types.
_LONGEST = 500_000


def page_of(run_id: str) -> str:
    return f"/ui/runs/{run_id}"


async def _found(visit: PageRequest) -> Run:
    return await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))


@pages.post("/runs/{id}/cancel")
async def cancel(visit: PageRequest) -> Response:
    run = await _found(visit)
    if not visit.sure:
        question = Question(
            title=_("Cancel this run?"),
            text=_("What it has done so far stays done."),
            button=_("Cancel the run"),
            names=[run.schedule_name or run.id],
        )
        return visit.ask(question)
    after = await visit.door.runs.cancel(visit.actor, run.id)
    ended = after.status.terminal
    text = _("The run was canceled.") if ended else _("The run was asked to stop.")
    return visit.done(text, to=visit.back(page_of(run.id)))


@pages.post("/runs/{id}/retry")
async def retry(visit: PageRequest) -> Response:
    run = await _found(visit)
    again, created = await visit.door.runs.retry(visit.actor, run.id)
    return _on_to(visit, again, created=created)


@pages.get("/runs/{id}/again")
async def again_form(visit: PageRequest) -> Response:
    """The same with changes: a form with what it was."""
    run = await _found(visit)
    target = json.dumps(target_out(run.target), ensure_ascii=False, indent=2)
    return visit.page("run/again.html", run=run, name=run.schedule_name, target=target, error=None)


@pages.post("/runs/{id}/again")
async def again(visit: PageRequest) -> Response:
    """An order like any other, only that hidden secrets are those of the run."""
    run = await _found(visit)
    if not visit.actor.may_create(run.owner):
        # Before secrets of the run go into anything.
        raise NotAllowed()
    name, text = visit.form.text("name"), visit.form.raw("target")
    try:
        order = RunRequest(
            target=patched_target(_target_in(text), run.target),
            policy=run.policy,
            name=name,
            namespace=run.namespace,
            priority=run.priority,
            owner=run.owner,
        )
        new, created = await visit.door.schedules.asked_for(visit.actor, order)
    except REFUSALS as error:
        why = await visit.refused(error)
        return visit.page(
            "run/again.html", status=why.status, run=run, name=name, target=text, error=why
        )
    return _on_to(visit, new, created=created)


@pages.post("/runs/{id}/known")
async def mark_known(visit: PageRequest) -> Response:
    """Somebody has looked at it: it needs no attention again for the same error."""
    run = await _found(visit)
    question = Question(
        title=_("Mark this failure as known?"),
        text=_(
            "Its schedule no longer needs attention for this error, "
            "until it fails in another way or works again. The reason stands beside it."
        ),
        button=_("Mark as known"),
        names=[run.schedule_name],
        dangerous=False,
        reason=True,
    )
    if not visit.sure:
        return visit.ask(question)
    try:
        await KnownFailures(visit.door.store).mark(visit.actor, run, visit.form.text("reason"))
    except REFUSALS as error:
        return visit.ask(question, await visit.refused(error))
    return visit.done(
        _("The failure is known."),
        to=visit.back(page_of(run.id)),
        undo=Undo(action=f"{page_of(run.id)}/unknown"),
    )


@pages.post("/runs/{id}/unknown")
async def forget_known(visit: PageRequest) -> Response:
    run = await _found(visit)
    await KnownFailures(visit.door.store).forget(visit.actor, run)
    return visit.done(_("The failure counts again."), to=visit.back(page_of(run.id)))


@pages.post("/runs/{id}/deliveries/{delivery}/retry")
async def tell_again(visit: PageRequest) -> Response:
    run = await _found(visit)
    await visit.door.messages.retry(visit.actor, DeliveryId(visit.path["delivery"]))
    return visit.done(_("The message is sent again."), to=f"{page_of(run.id)}?tab=deliveries")


def _on_to(visit: PageRequest, run: Run, *, created: bool) -> Response:
    if created:
        return visit.done(_("Its run was asked for."), to=page_of(run.id))
    text = _("It is under way already: this is that run.")
    return visit.done(text, to=page_of(run.id), kind="warning")


def _target_in(text: str) -> TargetPatch:
    if len(text) > _LONGEST:
        raise InvalidInput(
            _("at most {most} characters", most=_LONGEST), field="target", code="too_long"
        )
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(_("This is not JSON"), field="target", code="bad_json") from None
    try:
        return TargetPatch.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(["target", *(str(each) for each in first["loc"])])
        message = sentence(first["type"], first.get("ctx", {}))
        raise InvalidInput(message, field=place, code="bad_target") from None


# @@ What is known around a run: who asked for it, what came of it, and since when it has failed.

#: What is on record about a schedule and changes nothing about it.
_NO_CHANGE = frozenset({"run", "snooze", "wake"})
#: Entries and failures that are looked at.
_ENTRIES, _FAILURES = 100, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """A change of the schedule between the last good run and this one."""

    entry: AuditEntry
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Since when, and what was different before."""

    #: The newest good run before this one; None: there was none.
    last_good: Run | None
    #: The first since then with the same error.
    first_seen: Run
    #: How many since then have it, this one included; `more`: and perhaps others.
    count: int
    more: bool
    edits: tuple[Edit, ...]


async def schedule_of(visit: PageRequest, run: Run) -> Schedule | None:
    """None: it has none, or it has been forgotten."""
    if run.schedule_id is None:
        return None
    try:
        return await visit.door.schedules.get(visit.actor, run.schedule_id)
    except NotFound:
        return None


async def asked_by(visit: PageRequest, run: Run) -> Asker | None:
    """Who wanted it; None: the schedule, or nobody knows any more."""
    return (await askers_of(visit.door.store, [run])).get(run.id)


async def retries_of(visit: PageRequest, run: Run) -> tuple[RunId, ...]:
    """The runs that repeated this one by hand, oldest first."""
    if not run.status.terminal:
        return ()
    entries = await visit.door.store.list_audit(
        AuditQuery(object_id=run.id, verb="retry", owner=str(run.owner), limit=_ENTRIES)
    )
    found = (entry.changes.get("run_id") for entry in reversed(entries))
    return tuple(RunId(str(each)) for each in found if each)


async def entries_about(visit: PageRequest, run: Run) -> tuple[AuditEntry, ...]:
    """What people did with it; from where they called is for those who see everything."""
    query = AuditQuery(object_id=run.id, owner=str(run.owner), limit=_ENTRIES)
    return tuple(await visit.door.store.list_audit(query))


async def end_of_log(visit: PageRequest, run: Run) -> tuple[LogEntry, ...]:
    """Its last entries; nothing of a run in which nothing went wrong."""
    if not run.error:
        return ()
    last = (await visit.door.store.last_logs([run.id])).get(run.id)
    if last is None:
        return ()
    after = max(0, last.number - LAST_ENTRIES)
    return await visit.door.runs.logs(visit.actor, run.id, after=after, limit=LAST_ENTRIES)


async def failed_step(visit: PageRequest, run: Run) -> Run | None:
    """Of a flow that failed: the step because of which, as its error names it, or else the first
    that did. What it raised is in the log of that step."""
    if run.target.kind != "flow" or not run.error:
        return None
    query = RunQuery(
        parent_id=run.id,
        statuses=tuple(sorted(BAD)),
        sort=RunSort.CREATED_AT,
        descending=False,
        limit=_FAILURES,
    )
    found = (await visit.door.runs.find(visit.actor, query)).items
    named = (each for each in found if each.step and repr(each.step) in run.error)
    return next(named, found[0] if found else None)


async def known_of(visit: PageRequest, run: Run, schedule: Schedule | None) -> Known | None:
    """Who has looked at this failure, while that holds."""
    if schedule is None or run.status not in BAD:
        return None
    known = await KnownFailures(visit.door.store).of(schedule)
    return known if known is not None and known.error == fingerprint(run.error) else None


async def trouble_of(visit: PageRequest, run: Run) -> Trouble | None:
    """None: it has not failed, or there is nothing to compare it with."""
    if run.status not in BAD or run.schedule_id is None:
        return None
    earlier = RunQuery(schedule_id=run.schedule_id, created_until=run.created_at)
    good = await visit.door.runs.find(
        visit.actor, replace(earlier, statuses=(RunStatus.SUCCEEDED,), limit=1)
    )
    last_good = good.items[0] if good.items else None
    failures = await visit.door.runs.find(
        visit.actor,
        replace(
            earlier,
            statuses=tuple(sorted(BAD)),
            created_since=last_good.created_at if last_good else None,
            descending=False,
            limit=_FAILURES,
        ),
    )
    same = [each for each in failures.items if each.error[:ERROR_ROOM] == run.error[:ERROR_ROOM]]
    return Trouble(
        last_good=last_good,
        first_seen=same[0] if same else run,
        count=max(1, len(same)),
        more=failures.next is not None,
        edits=await _edits(visit, last_good, run) if last_good else (),
    )


async def _edits(visit: PageRequest, good: Run, run: Run) -> tuple[Edit, ...]:
    """From the audit, oldest first: what the schedule was told between the two."""
    entries = await visit.door.store.list_audit(
        AuditQuery(object_id=run.schedule_id, owner=str(run.owner), limit=_ENTRIES)
    )
    between = [
        Edit(entry=entry, changes=changes_of(entry))
        for entry in reversed(entries)
        if good.created_at < entry.at <= run.created_at
        and entry.object_kind == "schedule"
        and entry.allowed
        and entry.verb not in _NO_CHANGE
    ]
    return tuple(between)


#: Of a flow: steps that the picture shows.
MOST_STEPS = 100
#: Lines on one page, for readers without scripts.
PAGE_OF_LINES = 200


@pages.get("/runs/{id}")
async def run(visit: PageRequest) -> Response:
    found = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    if visit.partial and visit.query.get("part") == "bar":
        return visit.part("run/page.html", "bar", run=found)
    deliveries = await _deliveries(visit, found)
    values = await _head(visit, found, deliveries)
    if visit.partial and visit.query.get("part") == "head":
        return visit.part("run/page.html", "head", status=200, **values)
    tab = visit.query.get("tab", "log")
    values |= {"tab": tab if tab in TABS else "log", **await _tab(visit, found, tab, deliveries)}
    if visit.partial:
        return visit.part("run/page.html", "tab_body", status=200, **values)
    return visit.page("run/page.html", status=200, **values)


async def _head(
    visit: PageRequest, run: Run, deliveries: tuple[Delivery, ...]
) -> dict[str, object]:
    insights = InsightService(visit.door.store)
    schedule = await schedule_of(visit, run)
    zone = schedule.trigger.zone if schedule is not None else None
    medians = (
        await insights.expected_durations(visit.actor, [run.schedule_id]) if run.schedule_id else {}
    )
    median = medians.get(run.schedule_id) if run.schedule_id else None
    children: tuple[Run, ...] = ()
    if run.target.kind == "flow":
        query = RunQuery(
            parent_id=run.id, sort=RunSort.CREATED_AT, descending=False, limit=MOST_STEPS
        )
        children = (await visit.door.runs.find(visit.actor, query)).items
    stretches = stretches_of(run, children, deliveries, visit.now, visit.look.language)
    duration = duration_of(run, visit.now)
    url = str(visit.request.base_url).rstrip("/")
    return {
        "run": run,
        "visible": visible,
        "schedule": schedule,
        "zone": zone,
        "lag": lag_of(run),
        "duration": duration,
        "median": median,
        "bar": duration_bar(duration, median),
        "node": node_of(run),
        "asked_by": await asked_by(visit, run),
        "retries": await retries_of(visit, run),
        "waterfall": waterfall_of(stretches, visit.look, zone, visit.now),
        "usage": usage_of(run),
        "trace": trace_of(run),
        "why": why_of(run),
        "in_the_way": in_the_way(run),
        "known": await known_of(visit, run, schedule),
        "may_know": schedule is not None
        and run.status in BAD
        and visit.actor.may_operate(schedule.owner),
        "deliveries": deliveries,
        "may_operate": visit.actor.may_operate(run.owner),
        "may_create": visit.actor.may_create(run.owner),
        "link": f"{url}/ui/runs/{run.id}",
        "curl": curl_of(run, url),
    }


async def _deliveries(visit: PageRequest, run: Run) -> tuple[Delivery, ...]:
    page = await visit.door.messages.deliveries(visit.actor, DeliveryQuery(run_id=run.id))
    return tuple(reversed(page.items))


async def _tab(
    visit: PageRequest, run: Run, tab: str, deliveries: tuple[Delivery, ...]
) -> dict[str, object]:
    match tab:
        case "exchange":
            return {"exchange": exchange_of(run)}
        case "data":
            given, left = input_of(run), output_of(run)
            return {
                "input": pretty(given),
                "input_tree": tree_of(given),
                "output": "" if left is None else pretty(left),
                "output_tree": tree_of(left),
            }
        case "error":
            step = await failed_step(visit, run)
            return {
                "failed_step": step,
                "failure": failure_of(run, await end_of_log(visit, step or run)),
                "trouble": await trouble_of(visit, run),
            }
        case "events":
            entries = await entries_about(visit, run)
            return {"events": events_of(run, deliveries, entries)}
        case "deliveries":
            return {"channels": CHANNELS}
        case "attempts":
            return {}
        case "raw":
            shown = run_shown(run, visit.look.language)
            return {"raw": pretty(shown), "hides": shown["result"] != run.result}
        case _:
            return await _log(visit, run)


async def _log(visit: PageRequest, run: Run) -> dict[str, object]:
    """A page of lines, for readers without scripts; the script asks for the rest itself."""
    text = visit.query.get("after", "")
    after = int(text) if text.isdigit() and len(text) < 16 else 0
    entries = await visit.door.runs.logs(visit.actor, run.id, after=after, limit=PAGE_OF_LINES + 1)
    shown = entries[:PAGE_OF_LINES]
    more = ""
    if len(entries) > PAGE_OF_LINES:
        more = f"/ui/runs/{run.id}?tab=log&after={shown[-1].number}"
    return {
        "lines": [(entry, plain_line(entry.message)) for entry in shown],
        "more_lines": more,
        "log_words": log_words(visit.look.language),
    }


# @@ The log of a run: for the page's script, as it is written, and as a file.

#: Of one answer: lines, and characters after which it ends.
_LINES, _CHARACTERS = 5000, 2_000_000
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@pages.get("/runs/{id}/log.json")
async def lines(visit: PageRequest) -> Response:
    """Many lines at once, so that a long log is there before anybody scrolls."""
    run = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    found = await visit.door.runs.logs(visit.actor, run.id, after=_after(visit), limit=_LINES)
    shown: list[list[object]] = []
    room = _CHARACTERS
    for entry in found:
        shown.append(line_out(_retold(entry, visit)))
        room -= len(entry.message)
        if room < 0:
            break
    whole = len(shown) == len(found) < _LINES
    content = json.dumps(
        {
            "lines": shown,
            "next": None if whole else found[len(shown) - 1].number,
            "ended": run.status.terminal,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    headers = {"Vary": "Accept-Encoding"}
    if accepts_gzip(visit.request):
        content = gzip.compress(content, 3, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type="application/json", headers=headers)


@pages.get("/runs/{id}/log/stream")
async def stream(visit: PageRequest) -> Response:
    """The API's tail, for somebody with a session."""
    run = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    followers: Followers = visit.request.app.state.followers
    followers.check_room()
    reception = Reception(
        door=visit.door,
        users=visit.users,
        sign_ins=visit.sign_ins,
        clock_watch=visit.clock_watch,
    )

    async def welcome() -> bool:
        return await still_welcome(reception, visit.request)

    tail = LogTail(
        visit.door,
        visit.actor,
        run.id,
        followers,
        allowed=welcome,
        lang=visit.look.language,
    )
    after = resumed_after(visit.request, _after(visit))
    if visit.request.scope["state"].get("head"):
        return Response(media_type=STREAM, headers=_STREAM_HEADERS)
    return StreamingResponse(tail.events(after), media_type=STREAM, headers=_STREAM_HEADERS)


@pages.get("/runs/{id}/log.txt")
async def download(visit: PageRequest) -> Response:
    run = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    name = "".join(sign for sign in run.id if sign.isalnum() or sign in "-_")
    return StreamingResponse(
        _text(visit, run.id),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="run-{name}.log"'},
    )


async def _text(visit: PageRequest, run_id: RunId) -> AsyncIterator[str]:
    after = 0
    while True:
        found = await visit.door.runs.logs(visit.actor, run_id, after=after, limit=1000)
        if found:
            after = found[-1].number
            yield "".join(_line(_retold(entry, visit)) for entry in found)
        if len(found) < 1000:
            return


def _line(entry: LogEntry) -> str:
    return f"{format_moment(entry.at)} {entry.level.upper():<8} {entry.message}\n"


def _retold(entry: LogEntry, visit: PageRequest) -> LogEntry:
    return replace(entry, message=retold_line(entry.message, visit.look.language))


def _after(visit: PageRequest) -> int:
    text = visit.query.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(field="after", code="bad_number", source="query")
    return int(text)
