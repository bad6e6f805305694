"""Timeline, tabs, log lines and JSON tree of the run page; no I/O."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from itertools import islice

from chimes.i18n import Message, _, counted, in_language
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.planning import BLOCKING_RUN
from chimes.model.run import FAILED_STATUSES, Attempt, AttemptEnd, LogEntry, Origin, Run, RunStatus
from chimes.model.target import HttpTarget
from chimes.model.wait import is_wait
from chimes.notifications.message import CHANNELS
from chimes.redaction import mask_result, mask_text
from chimes.services.flow_pictures import FlowPicture
from chimes.web.api.translate import target_out
from chimes.web.dashboard.charts.flow_graph import FlowTexts, flow_graph
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.charts.waterfall import Interval, WaterfallTexts, waterfall
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.audit import verb_label
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.runs.views import INVISIBLE, RUNS_PATH, visible

TABS = ("log", "exchange", "data", "error", "attempts", "deliveries", "events", "raw")
#: Characters of one value on a page; the API has all of it.
MAX_SHOWN = 100_000
_STATUS_OF_END = {end: RunStatus(end.value) for end in AttemptEnd if end is not AttemptEnd.LOST} | {
    AttemptEnd.LOST: RunStatus.UNKNOWN
}
#: W3C Trace Context; group 1 is the trace id. An id of zeros means none.
_TRACE_CONTEXT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_STATUS_OF_DELIVERY = {
    DeliveryState.PENDING: RunStatus.RUNNING,
    DeliveryState.DELIVERED: RunStatus.SUCCEEDED,
    DeliveryState.DEAD: RunStatus.FAILED,
    DeliveryState.SUPPRESSED: RunStatus.SKIPPED,
}


# --- waterfall --------------------------------------------------------------------------------
def timeline_spans(
    run: Run, children: Iterable[Run], deliveries: Iterable[Delivery], now: datetime, language: str
) -> list[Interval]:
    """Returns queue time, attempts with backoff, steps of a flow and deliveries, in order."""

    def translate(text: Message) -> str:
        return in_language(text, language)

    starts = [each.started_at for each in run.attempts]
    running_since = _attempt_started_at(run)
    first = starts[0] if starts else running_since or run.finished_at or now
    queued_at = min(max(run.created_at, run.planned_at), first)
    waits = not starts and running_since is None and not run.status.terminal
    found = [Interval(name=translate(_("queued")), start=queued_at, end=first, open=waits)]
    last_end: datetime | None = None
    for attempt in run.attempts:
        if last_end is not None:
            found.append(_backoff(last_end, attempt.started_at, translate(_("backoff"))))
        found.append(
            Interval(
                name=translate(_("attempt {number}", number=attempt.number)),
                start=attempt.started_at,
                end=max(attempt.finished_at, attempt.started_at),
                status=_STATUS_OF_END[attempt.end],
            )
        )
        last_end = attempt.finished_at
    if not run.status.terminal and last_end is not None:
        backoff = _backoff(last_end, running_since or now, translate(_("backoff")))
        found.append(replace(backoff, open=running_since is None))
    if running_since is not None:
        found.append(
            Interval(
                name=translate(_("attempt {number}", number=run.attempt)),
                start=running_since,
                end=max(now, running_since),
                status=RunStatus.RUNNING,
                open=True,
            )
        )
    found.extend(_step(child, now) for child in children)
    for each in deliveries:
        name = translate(_("notified: {channel}", channel=CHANNELS[each.recipient.channel]))
        end = max(each.finished_at or now, each.created_at)
        status = _STATUS_OF_DELIVERY[each.state]
        found.append(Interval(name=name, start=each.created_at, end=end, status=status))
    return found


def _attempt_started_at(run: Run) -> datetime | None:
    """Returns the start of the running attempt, if any."""
    if run.status is not RunStatus.RUNNING or run.claimed_at is None:
        return None
    return max(run.claimed_at, run.available_at)


def _backoff(start: datetime, end: datetime, name: str) -> Interval:
    return Interval(name=name, start=start, end=max(start, end))


def _step(child: Run, now: datetime) -> Interval:
    start = child.started_at or child.created_at
    end = child.finished_at or (now if child.started_at or is_wait(child) else start)
    return Interval(
        name=child.step or child.target.kind,
        start=start,
        end=max(start, end),
        status=child.status,
        depth=1,
        address=f"{RUNS_PATH}/{child.id}",
        open=child.started_at is not None and child.finished_at is None,
    )


def build_waterfall(
    intervals: Sequence[Interval], display: DisplayPreferences, zone: str | None, now: datetime
) -> Chart:
    language = display.language
    words = WaterfallTexts(
        title=in_language(_("Timeline"), language),
        description=in_language(
            _("Queue time, attempts and the backoff between them, steps, deliveries"), language
        ),
        what=in_language(_("What"), language),
        start=in_language(_("From"), language),
        length=in_language(_("Duration"), language),
        moment=lambda at: times.absolute(
            at, primary_zone(display, zone), display, now=now, seconds=True
        ),
        span=lambda length: times.span(length, language),
    )
    return waterfall(intervals, words)


# --- flows ------------------------------------------------------------------------------------
def build_flow_graph(picture: FlowPicture, language: str) -> Chart:
    states: dict[RunStatus | None, str] = {None: in_language(_("not begun"), language)}
    counts = Counter(step.status for step in picture.steps)
    states.update(times.status_labels(language).items())
    summary = ", ".join(f"{states[status]}: {count}" for status, count in counts.items())
    words = FlowTexts(
        title=in_language(_("Steps of the flow"), language),
        description=summary,
        step=in_language(_("Step"), language),
        after=in_language(_("After"), language),
        status=in_language(_("Status"), language),
        statuses=states,
        waits={
            "approval": in_language(_("waits for an approval"), language),
            "time": in_language(_("waits until a time"), language),
            "event": in_language(_("waits for an event"), language),
        },
        waiting=in_language(_("waiting"), language),
        progress=lambda ended, count: in_language(
            _("{ended} of {count} ended", ended=ended, count=count), language
        ),
    )
    return flow_graph(picture, words, lambda run_id: f"{RUNS_PATH}/{run_id}")


def repeatable_steps(run: Run, children: Sequence[Run]) -> list[str]:
    """Steps from which an ended flow can be repeated, the failed ones first."""
    if not run.status.terminal or run.target.kind != "flow":
        return []
    failed = {child.step.partition("[")[0] for child in children if child.status in FAILED_STATUSES}
    names = dict.fromkeys(child.step.partition("[")[0] for child in children)
    return sorted(names, key=lambda name: name not in failed)


# --- tabs -------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """HTTP request without secrets, and the response."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: str
    #: None: no response.
    status: int | None
    duration: timedelta | None
    response_headers: Mapping[str, str]
    response_body: str
    truncated: bool
    signed: bool


def exchange_of(run: Run) -> Exchange | None:
    """Returns None for targets other than HTTP."""
    if not isinstance(run.target, HttpTarget):
        return None
    sent = target_out(run.target)
    result = run.result or {}
    status, duration, headers = (result.get(each) for each in ("status", "duration_ms", "headers"))
    return Exchange(
        method=run.target.method,
        # As sent, with placeholders filled in and without secrets.
        url=str(result.get("url") or sent["url"]),
        headers=_texts(sent["headers"]),
        body=visible(truncate(str(sent["body"]))),
        status=status if isinstance(status, int) else None,
        duration=timedelta(milliseconds=duration) if isinstance(duration, int | float) else None,
        response_headers=_texts(headers),
        response_body=visible(truncate(mask_text(str(result.get("body") or "")))),
        truncated=bool(result.get("truncated")),
        signed=bool(run.target.signing_secrets),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens and cost of a model answer."""

    model: str
    input_tokens: int
    output_tokens: int
    total_tokens: int
    cost: float | None


def usage_of(run: Run) -> Usage | None:
    result = run.result or {}
    used = result.get("usage")
    if run.target.kind != "agent" or not isinstance(used, Mapping):
        return None
    cost = result.get("cost")
    return Usage(
        model=str(result.get("model") or ""),
        input_tokens=_count(used.get("prompt_tokens")),
        output_tokens=_count(used.get("completion_tokens")),
        total_tokens=_count(used.get("total_tokens")),
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def input_of(run: Run) -> Mapping[str, object]:
    """Returns the target without secrets."""
    return target_out(run.target)


def output_of(run: Run) -> Mapping[str, object] | None:
    """Returns the result with secrets masked."""
    return None if run.result is None else mask_result(run.result)


def blocking_run_of(run: Run) -> RunId | None:
    """Returns the run because of which this one was skipped, if recorded."""
    if run.status is not RunStatus.SKIPPED:
        return None
    found = (run.result or {}).get(BLOCKING_RUN)
    return RunId(str(found)) if found else None


def trace_of(run: Run) -> str:
    """Returns the trace id of the response (`traceresponse`) or request (`traceparent`); empty if
    there is none."""
    received = (run.result or {}).get("headers")
    sent = run.target.headers if isinstance(run.target, HttpTarget) else {}
    for headers in (received, sent):
        for name, value in _texts(headers).items():
            found = _TRACE_CONTEXT.fullmatch(value.strip())
            if name.lower() in ("traceresponse", "traceparent") and found:
                return found[1]
    return ""


def pretty(value: object) -> str:
    """Formats JSON; characters that could hide or reorder text are escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return truncate(INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def truncate(text: str) -> str:
    """Truncates text so that pages stay small."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _texts(value: object) -> dict[str, str]:
    found = value if isinstance(value, Mapping) else {}
    return {visible(str(name)): visible(str(text)) for name, text in found.items()}


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def curl_of(run: Run, url: str) -> str:
    """Returns the HTTP call as curl, or an API request that starts the run. Without secrets."""
    if isinstance(run.target, HttpTarget):
        target = target_out(run.target)
        parts = ["curl", "-X", run.target.method, str(target["url"])]
        headers = _texts(target["headers"])
        body = str(target["body"])
    else:
        parts = ["curl", "-X", "POST", f"{url}/api/v1/runs"]
        headers = {
            "Authorization": "Bearer $CHIMES_API_KEY",
            "Content-Type": "application/json",
        }
        body_fields = {"name": run.schedule_name, "target": target_out(run.target)}
        body = json.dumps(body_fields, ensure_ascii=False)
    for name, value in headers.items():
        parts += ["-H", f"{name}: {value}"]
    if body:
        parts += ["--data-binary", body]
    # The key is a shell variable, so it needs double quotes.
    bearer = shlex.quote("Authorization: Bearer $CHIMES_API_KEY")
    return shlex.join(parts).replace(bearer, '"Authorization: Bearer $CHIMES_API_KEY"')


# --- log --------------------------------------------------------------------------------------
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
#: Characters of one log line on a page.
MAX_LINE = 20_000


def plain_line(message: str) -> str:
    """Removes ANSI codes and makes control characters visible."""
    text = visible(_ANSI.sub("", message))
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"


def line_out(entry: LogEntry) -> list[object]:
    """Returns number, time in milliseconds, level, message and, if truncated, its full length."""
    message = entry.message
    line: list[object] = [
        entry.number,
        round(entry.at.timestamp() * 1000, 3),
        entry.level,
        message[:MAX_LINE],
    ]
    return [*line, len(message)] if len(message) > MAX_LINE else line


# --- failure ----------------------------------------------------------------------------------
#: Entries at the end of the log that are searched for a traceback.
LAST_ENTRIES = 200
_TRACEBACK = "Traceback (most recent call last)"
_TYPE_AND_MESSAGE = re.compile(r"([A-Za-z_][\w.]{0,100}): (.+)", re.DOTALL)
#: Targets whose errors are Python exceptions.
_PYTHON_KINDS = ("task", "sync", "flow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    #: Exception type; empty for other errors.
    type: str
    message: str
    #: May be empty.
    traceback: str


def failure_of(run: Run, last_entries: Sequence[LogEntry]) -> Failure:
    """Splits the error into type and message; finds the traceback at the end of the log."""
    found = _TYPE_AND_MESSAGE.fullmatch(run.error) if run.target.kind in _PYTHON_KINDS else None
    return Failure(
        type=found[1] if found else "",
        message=found[2] if found else run.error or run.reason,
        traceback=_traceback_in(last_entries),
    )


def _traceback_in(entries: Sequence[LogEntry]) -> str:
    """Returns the last traceback: the error entries from its first line on."""
    starts = [index for index, each in enumerate(entries) if _TRACEBACK in each.message]
    if not starts:
        return ""
    lines: list[str] = []
    for each in entries[starts[-1] :]:
        if each.level != "error":
            break
        lines.append("\n".join(plain_line(line) for line in each.message.split("\n")))
    return truncate("\n".join(lines))


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    at: datetime
    what: Message
    #: Recorded error or reason.
    remark: str = ""
    bad: bool = False


_CREATED_TEXTS: Mapping[Origin, Message] = {
    Origin.SCHEDULE: _("Created by the schedule."),
    Origin.MANUAL: _("Requested manually."),
    Origin.BACKFILL: _("Created by a backfill."),
    Origin.CHILD: _("Created by the flow."),
    Origin.EVENT: _("Created by an event."),
}
_ENDED_TEXTS: Mapping[RunStatus, Message] = {
    RunStatus.SUCCEEDED: _("Succeeded."),
    RunStatus.FAILED: _("Failed."),
    RunStatus.TIMEOUT: _("Timed out."),
    RunStatus.CANCELED: _("Canceled."),
    RunStatus.SKIPPED: _("Skipped."),
    RunStatus.MISSED: _("Missed."),
    RunStatus.UNKNOWN: _("Ended with unknown status."),
}
_EXPECTED_ENDS = frozenset({RunStatus.SUCCEEDED, RunStatus.CANCELED, RunStatus.SKIPPED})


def events_of(
    run: Run, deliveries: Iterable[Delivery], entries: Iterable[AuditEntry]
) -> tuple[Event, ...]:
    """Returns the events of the run, oldest first. `entries` are its audit entries."""
    found = [Event(at=run.created_at, what=_CREATED_TEXTS[run.origin])]
    for attempt in run.attempts:
        found.extend(_attempt_events(attempt))
    if run.status is RunStatus.RUNNING and run.claimed_at is not None:
        found.append(_attempt_started(run.claimed_at, run.attempt, run.holder or ""))
    if run.finished_at is not None and run.status in _ENDED_TEXTS:
        found.append(
            Event(
                at=run.finished_at,
                what=_ENDED_TEXTS[run.status],
                remark=run.reason,
                bad=run.status not in _EXPECTED_ENDS,
            )
        )
    for delivery in deliveries:
        found.extend(_delivery_events(delivery))
    found.extend(each for entry in entries if entry.allowed for each in _audit_events(entry))
    return tuple(sorted(found, key=lambda each: each.at))


def _attempt_started(at: datetime, number: int, node: str) -> Event:
    return Event(at=at, what=_("Attempt {number} started on {node}.", number=number, node=node))


def _attempt_events(attempt: Attempt) -> Iterator[Event]:
    yield _attempt_started(attempt.started_at, attempt.number, attempt.node)
    number, good = attempt.number, attempt.end is AttemptEnd.SUCCEEDED
    what = (
        _("Attempt {number} succeeded.", number=number)
        if good
        else _("Attempt {number} did not succeed.", number=number)
    )
    yield Event(at=attempt.finished_at, what=what, remark=attempt.error, bad=not good)


def _delivery_events(delivery: Delivery) -> Iterator[Event]:
    channel = delivery.recipient.channel.value
    yield Event(at=delivery.created_at, what=_("Notification created: {channel}.", channel=channel))
    if delivery.finished_at is None:
        return
    if delivery.state is DeliveryState.DELIVERED:
        what = _("Notification delivered: {channel}.", channel=channel)
    elif delivery.state is DeliveryState.SUPPRESSED:
        what = _("Notification suppressed: {channel}.", channel=channel)
    else:
        what = _("Notification failed: {channel}.", channel=channel)
    bad = delivery.state is DeliveryState.DEAD
    yield Event(at=delivery.finished_at, what=what, remark=delivery.error, bad=bad)


def _audit_events(entry: AuditEntry) -> Iterator[Event]:
    user = entry.actor
    match entry.verb:
        case "cancel":
            what = _("Cancellation requested by {user}.", user=user)
        case "retry":
            what = _("Retried by {user}.", user=user)
        case "start":
            what = _("Requested by {user}.", user=user)
        case "mark_known":
            what = _("Marked as known by {user}.", user=user)
        case "unmark_known":
            what = _("Unmarked as known by {user}.", user=user)
        case _:
            what = _("{user}: {verb}", user=user, verb=verb_label(entry.verb))
    yield Event(at=entry.at, what=what, remark=entry.reason)


# --- log viewer -------------------------------------------------------------------------------
_PLACEHOLDER_COUNT = 1_234_567


@cache
def log_texts(language: str) -> dict[str, str]:
    """Returns the texts of the log viewer script, which fills in the placeholders."""
    one = counted("↓ {count} new line", "↓ {count} new lines", 1).in_language(language)
    many = counted("↓ {count} new line", "↓ {count} new lines", _PLACEHOLDER_COUNT).in_language(
        language
    )
    found = {
        "matches": _("{at} of {count}"),
        "none": _("No matches"),
        "truncated": _("… {count} characters in total; download the log to read the rest"),
        "line": _("Line {number}"),
        "since_start": _("+{count} s"),
        "loading": _("Loading the log …"),
        "empty": _("No log lines yet."),
        "nothing": _("No log lines."),
        "hidden": _("No lines at this level."),
        "failed": _("The log could not be loaded. Reload the page."),
    }
    texts = {name: in_language(text, language) for name, text in found.items()}
    return texts | {"new_one": one, "new_many": many.replace(str(_PLACEHOLDER_COUNT), "{count}")}


# --- JSON tree --------------------------------------------------------------------------------
#: Nodes of the whole tree, children of one node, and levels.
MAX_NODES, MAX_CHILDREN, MAX_DEPTH = 2000, 200, 32
#: Characters of a value, and of a name.
MAX_TEXT, MAX_NAME = 2000, 200
#: Levels that are open initially in a small tree, and its number of values.
_OPEN_LEVELS, _SMALL = 2, 60


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeNode:
    """A value with its name."""

    #: None for the root.
    name: str | None
    #: `object`, `array`, `text`, `number`, `word` (true, false, null).
    kind: str
    #: JSON of a leaf, without the quotes of a string.
    text: str = ""
    #: Children of an object or array; characters of a truncated string.
    size: int = 0
    children: tuple[TreeNode, ...] = ()
    #: Children that are not shown.
    hidden: int = 0
    truncated: bool = False
    open: bool = False


def tree_of(value: object) -> TreeNode:
    """Builds the tree of JSON data; other values are shown as text."""
    small = _count_values(value, _SMALL + 1) <= _SMALL
    return _TreeBuilder(MAX_NODES, _OPEN_LEVELS if small else 1).node(None, value, 0)


class _TreeBuilder:
    """Builds nodes until the limit of the whole tree is reached."""

    def __init__(self, limit: int, open_levels: int) -> None:
        self._remaining = limit
        self._open_levels = open_levels

    def node(self, name: str | None, value: object, depth: int) -> TreeNode:
        self._remaining -= 1
        label = None if name is None else visible(_short(name, MAX_NAME))
        match value:
            case Mapping():
                named = ((str(each), item) for each, item in value.items())
                return self._inner(label, "object", named, len(value), depth)
            case str():
                text = visible(value[:MAX_TEXT])
                truncated = len(value) > MAX_TEXT
                return TreeNode(
                    name=label, kind="text", text=text, size=len(value), truncated=truncated
                )
            case bool():
                return TreeNode(name=label, kind="word", text="true" if value else "false")
            case None:
                return TreeNode(name=label, kind="word", text="null")
            case int() | float():
                return TreeNode(name=label, kind="number", text=_short(repr(value), MAX_NAME))
            case Sequence():
                listed = ((str(index), item) for index, item in enumerate(value))
                return self._inner(label, "array", listed, len(value), depth)
            case _:
                return TreeNode(name=label, kind="text", text=visible(str(value)[:MAX_TEXT]))

    def _inner(
        self,
        name: str | None,
        kind: str,
        items: Iterator[tuple[str, object]],
        size: int,
        depth: int,
    ) -> TreeNode:
        children: list[TreeNode] = []
        if depth < MAX_DEPTH:
            for each, item in islice(items, MAX_CHILDREN):
                if self._remaining <= 0:
                    break
                children.append(self.node(each, item, depth + 1))
        return TreeNode(
            name=name,
            kind=kind,
            size=size,
            children=tuple(children),
            hidden=size - len(children),
            open=depth < self._open_levels,
        )


def _count_values(value: object, limit: int) -> int:
    """Counts nested values up to `limit`, without recursion."""
    count, pending = 0, [value]
    while pending and count < limit:
        count += 1
        each = pending.pop()
        if isinstance(each, Mapping):
            pending.extend(islice(each.values(), limit))
        elif isinstance(each, Sequence) and not isinstance(each, str):
            pending.extend(each[:limit])
    return count


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
