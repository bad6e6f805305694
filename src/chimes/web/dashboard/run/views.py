"""One run, from values to what its page shows; pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import islice

from chimes.i18n import Message, _, counted, in_language
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.planning import BLOCKING_RUN
from chimes.model.run import Attempt, AttemptEnd, LogEntry, Origin, Run, RunStatus
from chimes.model.target import HttpTarget
from chimes.notifications.message import CHANNELS
from chimes.redaction import masked_result
from chimes.web.api.translate import target_out
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.charts.waterfall import Stretch, WaterfallWords, waterfall
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.core.templates import verb_label
from chimes.web.dashboard.runs.views import UNSEEN, visible

HERE = "/ui/runs"
TABS = ("log", "exchange", "data", "error", "attempts", "deliveries", "events", "raw")
#: Characters of one value that a page shows; all of it is in the API.
MOST_SHOWN = 100_000
_ENDS = {end: RunStatus(end.value) for end in AttemptEnd if end is not AttemptEnd.LOST} | {
    AttemptEnd.LOST: RunStatus.UNKNOWN
}
#: W3C Trace Context; an id of zeros means none.
_TRACE = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_DELIVERED = {
    DeliveryState.PENDING: RunStatus.RUNNING,
    DeliveryState.DELIVERED: RunStatus.SUCCEEDED,
    DeliveryState.DEAD: RunStatus.FAILED,
}


# --- waterfall --------------------------------------------------------------------------------
def stretches_of(
    run: Run, children: Iterable[Run], deliveries: Iterable[Delivery], now: datetime, language: str
) -> list[Stretch]:
    """In the order in which they happened: waiting, attempts with the pauses between them, the
    steps of a flow within it, and who was told."""

    def told(text: Message) -> str:
        return in_language(text, language)

    starts = [each.started_at for each in run.attempts]
    held_since = _held_since(run)
    first = starts[0] if starts else held_since or run.finished_at or now
    asked_for = min(max(run.created_at, run.planned_at), first)
    found = [Stretch(name=told(_("queued")), start=asked_for, end=first)]
    before: datetime | None = None
    for attempt in run.attempts:
        if before is not None:
            found.append(_pause(before, attempt.started_at, told(_("backoff"))))
        found.append(
            Stretch(
                name=told(_("attempt {number}", number=attempt.number)),
                start=attempt.started_at,
                end=max(attempt.finished_at, attempt.started_at),
                status=_ENDS[attempt.end],
            )
        )
        before = attempt.finished_at
    if not run.status.terminal and before is not None:
        found.append(_pause(before, held_since or now, told(_("backoff"))))
    if held_since is not None:
        found.append(
            Stretch(
                name=told(_("attempt {number}", number=run.attempt)),
                start=held_since,
                end=max(now, held_since),
                status=RunStatus.RUNNING,
            )
        )
    found.extend(_step(child, now) for child in children)
    for each in deliveries:
        name = told(_("notified: {channel}", channel=CHANNELS[each.recipient.channel]))
        end = max(each.finished_at or now, each.created_at)
        status = _DELIVERED[each.state]
        found.append(Stretch(name=name, start=each.created_at, end=end, status=status))
    return found


def _held_since(run: Run) -> datetime | None:
    """When the attempt began that is under way; None: none is."""
    if run.status is not RunStatus.RUNNING or run.claimed_at is None:
        return None
    return max(run.claimed_at, run.available_at)


def _pause(start: datetime, end: datetime, name: str) -> Stretch:
    return Stretch(name=name, start=start, end=max(start, end))


def _step(child: Run, now: datetime) -> Stretch:
    start = child.started_at or child.created_at
    end = child.finished_at or (now if child.started_at else start)
    return Stretch(
        name=child.step or child.target.kind,
        start=start,
        end=max(start, end),
        status=child.status,
        depth=1,
        address=f"{HERE}/{child.id}",
    )


def waterfall_of(
    stretches: Sequence[Stretch], display: DisplayPreferences, zone: str | None, now: datetime
) -> Chart:
    language = display.language
    words = WaterfallWords(
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
    return waterfall(stretches, words)


# --- tabs -------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """What was sent, without secrets, and what came back."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: str
    #: None: nothing came back.
    status: int | None
    took: timedelta | None
    answer_headers: Mapping[str, str]
    answer: str
    truncated: bool
    signed: bool


def exchange_of(run: Run) -> Exchange | None:
    """None: its target is not an HTTP call."""
    if not isinstance(run.target, HttpTarget):
        return None
    sent = target_out(run.target)
    result = run.result or {}
    status, took, headers = (result.get(each) for each in ("status", "duration_ms", "headers"))
    return Exchange(
        method=run.target.method,
        # As it was sent: with placeholders filled, without secrets.
        url=str(result.get("url") or sent["url"]),
        headers=_texts(sent["headers"]),
        body=visible(cut(run.target.body)),
        status=status if isinstance(status, int) else None,
        took=timedelta(milliseconds=took) if isinstance(took, int | float) else None,
        answer_headers=_texts(headers),
        answer=visible(cut(str(result.get("body") or ""))),
        truncated=bool(result.get("truncated")),
        signed=bool(run.target.signing_secrets),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What an answer of a model cost."""

    model: str
    asked: int
    answered: int
    total: int
    cost: float | None


def usage_of(run: Run) -> Usage | None:
    result = run.result or {}
    used = result.get("usage")
    if run.target.kind != "agent" or not isinstance(used, Mapping):
        return None
    cost = result.get("cost")
    return Usage(
        model=str(result.get("model") or ""),
        asked=_count(used.get("prompt_tokens")),
        answered=_count(used.get("completion_tokens")),
        total=_count(used.get("total_tokens")),
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def input_of(run: Run) -> Mapping[str, object]:
    """What it was told to do, without secrets."""
    return target_out(run.target)


def output_of(run: Run) -> Mapping[str, object] | None:
    """What came of it, without what its names say is secret."""
    return None if run.result is None else masked_result(run.result)


def in_the_way(run: Run) -> RunId | None:
    """The run because of which this one was skipped, where that is on record."""
    if run.status is not RunStatus.SKIPPED:
        return None
    found = (run.result or {}).get(BLOCKING_RUN)
    return RunId(str(found)) if found else None


def trace_of(run: Run) -> str:
    """The id of its trace, as the receiver said (`traceresponse`) or as it was told
    (`traceparent`); empty: there is none."""
    answered = (run.result or {}).get("headers")
    sent = run.target.headers if isinstance(run.target, HttpTarget) else {}
    for headers in (answered, sent):
        for name, value in _texts(headers).items():
            found = _TRACE.fullmatch(value.strip())
            if name.lower() in ("traceresponse", "traceparent") and found:
                return found[1]
    return ""


def pretty(value: object) -> str:
    """What would turn or hide other text is escaped, so that it stays the same JSON."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return cut(UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def cut(text: str) -> str:
    """Never a page of megabytes."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _texts(value: object) -> dict[str, str]:
    found = value if isinstance(value, Mapping) else {}
    return {visible(str(name)): visible(str(text)) for name, text in found.items()}


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def curl_of(run: Run, url: str) -> str:
    """The same call by hand where it is an HTTP call, otherwise the order at our own API. Secrets
    are left out."""
    if isinstance(run.target, HttpTarget):
        shown = target_out(run.target)
        parts = ["curl", "-X", run.target.method, str(shown["url"])]
        headers = _texts(shown["headers"])
        body = run.target.body
    else:
        parts = ["curl", "-X", "POST", f"{url}/api/v1/runs"]
        headers = {
            "Authorization": "Bearer $CHIMES_API_KEY",
            "Content-Type": "application/json",
        }
        order = {"name": run.schedule_name, "target": target_out(run.target)}
        body = json.dumps(order, ensure_ascii=False)
    for name, value in headers.items():
        parts += ["-H", f"{name}: {value}"]
    if body:
        parts += ["--data-binary", body]
    # The key is a variable: between double quotes, so that the shell fills it in.
    bearer = shlex.quote("Authorization: Bearer $CHIMES_API_KEY")
    return shlex.join(parts).replace(bearer, '"Authorization: Bearer $CHIMES_API_KEY"')


# --- log --------------------------------------------------------------------------------------
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
#: Characters of one line that a page shows.
LONGEST_LINE = 20_000


def plain_line(message: str) -> str:
    """Without colours; what would turn or hide other text is made visible (S47)."""
    text = visible(_ANSI.sub("", message))
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"


def line_out(entry: LogEntry) -> list[object]:
    """For the script: number, moment in milliseconds, level, message, and how long it really is
    where it was cut."""
    message = entry.message
    line: list[object] = [
        entry.number,
        round(entry.at.timestamp() * 1000, 3),
        entry.level,
        message[:LONGEST_LINE],
    ]
    return [*line, len(message)] if len(message) > LONGEST_LINE else line


# @@ What went wrong, in its parts: the type, what it says, and where in the code; pure.

#: Entries at the end of a log in which a traceback is looked for.
LAST_ENTRIES = 200
_TRACEBACK = "Traceback (most recent call last)"
_TYPED = re.compile(r"([A-Za-z_][\w.]{0,100}): (.+)", re.DOTALL)
#: Where an error is an exception of somebody's code.
_CODE = ("task", "sync", "flow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    #: Empty: it is no exception.
    type: str
    message: str
    #: Empty: there is none.
    stack: str


def failure_of(run: Run, last: Sequence[LogEntry]) -> Failure:
    """`last`: the end of its log."""
    found = _TYPED.fullmatch(run.error) if run.target.kind in _CODE else None
    return Failure(
        type=found[1] if found else "",
        message=found[2] if found else run.error or run.reason,
        stack=_stack_in(last),
    )


def _stack_in(entries: Sequence[LogEntry]) -> str:
    """From the last traceback on, as far as it is an error that is told."""
    begins = [place for place, each in enumerate(entries) if _TRACEBACK in each.message]
    if not begins:
        return ""
    lines: list[str] = []
    for each in entries[begins[-1] :]:
        if each.level != "error":
            break
        lines.append("\n".join(plain_line(line) for line in each.message.split("\n")))
    return cut("\n".join(lines))


# @@ What happened to a run, moment by moment: made, tried, told, and what people did; pure.


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    at: datetime
    what: Message
    #: An error, or what somebody wrote beside it: as it is on record.
    remark: str = ""
    bad: bool = False


_MADE: Mapping[Origin, Message] = {
    Origin.SCHEDULE: _("Created by the schedule."),
    Origin.MANUAL: _("Requested manually."),
    Origin.BACKFILL: _("Created by a backfill."),
    Origin.CHILD: _("Created by the flow."),
}
_ENDED: Mapping[RunStatus, Message] = {
    RunStatus.SUCCEEDED: _("Succeeded."),
    RunStatus.FAILED: _("Failed."),
    RunStatus.TIMEOUT: _("Timed out."),
    RunStatus.CANCELED: _("Canceled."),
    RunStatus.SKIPPED: _("Skipped."),
    RunStatus.MISSED: _("Missed."),
    RunStatus.UNKNOWN: _("Ended with unknown status."),
}
_GOOD = frozenset({RunStatus.SUCCEEDED, RunStatus.CANCELED, RunStatus.SKIPPED})


def events_of(
    run: Run, deliveries: Iterable[Delivery], entries: Iterable[AuditEntry]
) -> tuple[Event, ...]:
    """Oldest first. `entries`: of the audit, about this run."""
    found = [Event(at=run.created_at, what=_MADE[run.origin])]
    for attempt in run.attempts:
        found.extend(_tried(attempt))
    if run.status is RunStatus.RUNNING and run.claimed_at is not None:
        found.append(_begun(run.claimed_at, run.attempt, run.holder or ""))
    if run.finished_at is not None and run.status in _ENDED:
        found.append(
            Event(
                at=run.finished_at,
                what=_ENDED[run.status],
                remark=run.reason,
                bad=run.status not in _GOOD,
            )
        )
    for delivery in deliveries:
        found.extend(_told(delivery))
    found.extend(each for entry in entries if entry.allowed for each in _done(entry))
    return tuple(sorted(found, key=lambda each: each.at))


def _begun(at: datetime, number: int, node: str) -> Event:
    return Event(at=at, what=_("Attempt {number} started on {node}.", number=number, node=node))


def _tried(attempt: Attempt) -> Iterator[Event]:
    yield _begun(attempt.started_at, attempt.number, attempt.node)
    number, good = attempt.number, attempt.end is AttemptEnd.SUCCEEDED
    what = (
        _("Attempt {number} succeeded.", number=number)
        if good
        else _("Attempt {number} did not succeed.", number=number)
    )
    yield Event(at=attempt.finished_at, what=what, remark=attempt.error, bad=not good)


def _told(delivery: Delivery) -> Iterator[Event]:
    channel = delivery.recipient.channel.value
    yield Event(at=delivery.created_at, what=_("Notification created: {channel}.", channel=channel))
    if delivery.finished_at is None:
        return
    if delivery.state is DeliveryState.DELIVERED:
        what = _("Notification delivered: {channel}.", channel=channel)
    else:
        what = _("Notification failed: {channel}.", channel=channel)
    bad = delivery.state is DeliveryState.DEAD
    yield Event(at=delivery.finished_at, what=what, remark=delivery.error, bad=bad)


def _done(entry: AuditEntry) -> Iterator[Event]:
    who = entry.actor
    match entry.verb:
        case "cancel":
            what = _("Cancellation requested by {user}.", user=who)
        case "retry":
            what = _("Retried by {user}.", user=who)
        case "start":
            what = _("Requested by {user}.", user=who)
        case "mark_known":
            what = _("Marked as known by {user}.", user=who)
        case "unmark_known":
            what = _("Unmarked as known by {user}.", user=who)
        case _:
            what = _("{user}: {verb}", user=who, verb=verb_label(entry.verb))
    yield Event(at=entry.at, what=what, remark=entry.reason)


# @@ The words of the log viewer's script.

_ANY = 1_234_567


@cache
def log_words(language: str) -> dict[str, str]:
    """By name; what is in braces the script fills in."""
    one = counted("↓ {count} new line", "↓ {count} new lines", 1).in_language(language)
    many = counted("↓ {count} new line", "↓ {count} new lines", _ANY).in_language(language)
    found = {
        "matches": _("{at} of {count}"),
        "none": _("Nothing matches"),
        "cut": _("… {count} characters in total; download the log to read the rest"),
        "line": _("Line {number}"),
        "since_start": _("+{count} s"),
        "loading": _("Loading the log …"),
        "empty": _("No log lines yet."),
        "nothing": _("No log lines."),
        "hidden": _("No lines at this level."),
        "failed": _("The log could not be loaded. Reload the page."),
    }
    texts = {name: in_language(text, language) for name, text in found.items()}
    return texts | {"new_one": one, "new_many": many.replace(str(_ANY), "{count}")}


# @@ JSON as a tree that a page can show: bounded, with what was left out said, and harmless.

#: Of all levels together, of one level, and how deep it goes.
MOST_NODES, MOST_BESIDE, DEEPEST = 2000, 200, 32
#: Characters of one text, and of a name.
LONGEST_TEXT, LONGEST_NAME = 2000, 200
#: Levels that are open at first, of a tree that is small.
_OPEN_LEVELS, _SMALL = 2, 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A value with its name."""

    #: None: it has none, like the whole.
    name: str | None
    #: `object`, `array`, `text`, `number`, `word` (true, false, null).
    kind: str
    #: Of a leaf, as JSON would have it, but for the quotes of a text.
    text: str = ""
    #: Of an object or array; of a text its characters, where it was cut.
    size: int = 0
    children: tuple[Branch, ...] = ()
    #: Children that are not shown.
    left_out: int = 0
    cut: bool = False
    open: bool = False


def tree_of(value: object) -> Branch:
    """From plain data; what is no plain data is shown as text."""
    small = _count_views_json_tree(value, _SMALL + 1) <= _SMALL
    return _Growing(MOST_NODES, _OPEN_LEVELS if small else 1).branch(None, value, 0)


class _Growing:
    """Counts what has been shown, over the whole tree."""

    def __init__(self, room: int, open_levels: int) -> None:
        self._room = room
        self._open_levels = open_levels

    def branch(self, name: str | None, value: object, depth: int) -> Branch:
        self._room -= 1
        shown = None if name is None else visible(_short(name, LONGEST_NAME))
        match value:
            case Mapping():
                named = ((str(each), item) for each, item in value.items())
                return self._inner(shown, "object", named, len(value), depth)
            case str():
                text = visible(value[:LONGEST_TEXT])
                cut = len(value) > LONGEST_TEXT
                return Branch(name=shown, kind="text", text=text, size=len(value), cut=cut)
            case bool():
                return Branch(name=shown, kind="word", text="true" if value else "false")
            case None:
                return Branch(name=shown, kind="word", text="null")
            case int() | float():
                return Branch(name=shown, kind="number", text=_short(repr(value), LONGEST_NAME))
            case Sequence():
                listed = ((str(place), item) for place, item in enumerate(value))
                return self._inner(shown, "array", listed, len(value), depth)
            case _:
                return Branch(name=shown, kind="text", text=visible(str(value)[:LONGEST_TEXT]))

    def _inner(
        self,
        name: str | None,
        kind: str,
        items: Iterator[tuple[str, object]],
        size: int,
        depth: int,
    ) -> Branch:
        children: list[Branch] = []
        if depth < DEEPEST:
            for each, item in islice(items, MOST_BESIDE):
                if self._room <= 0:
                    break
                children.append(self.branch(each, item, depth + 1))
        return Branch(
            name=name,
            kind=kind,
            size=size,
            children=tuple(children),
            left_out=size - len(children),
            open=depth < self._open_levels,
        )


def _count_views_json_tree(value: object, most: int) -> int:
    """Values within, as far as `most`; without recursion, however deep it is."""
    found, waiting = 0, [value]
    while waiting and found < most:
        found += 1
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting.extend(islice(each.values(), most))
        elif isinstance(each, Sequence) and not isinstance(each, str):
            waiting.extend(each[:most])
    return found


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
