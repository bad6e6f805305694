"""One run, from values to what its page shows; pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.delivery.words import CHANNELS
from chimes.doors.api.wire_targets import target_out
from chimes.doors.dashboard import times
from chimes.doors.dashboard.charts.drawing import Chart
from chimes.doors.dashboard.charts.waterfall import Stretch, WaterfallWords, waterfall
from chimes.doors.dashboard.look import Look, by_clock
from chimes.doors.dashboard.views_runs import UNSEEN, visible
from chimes.model.delivery import Delivery, DeliveryState
from chimes.model.ids import RunId
from chimes.model.planning import IN_THE_WAY
from chimes.model.run import AttemptEnd, LogEntry, Run, RunStatus
from chimes.model.target import HttpTarget
from chimes.redaction import masked_result
from chimes.wording import Wording, in_language, say

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

    def told(text: Wording) -> str:
        return in_language(text, language)

    starts = [each.started_at for each in run.attempts]
    held_since = _held_since(run)
    first = starts[0] if starts else held_since or run.finished_at or now
    asked_for = min(max(run.created_at, run.planned_at), first)
    found = [Stretch(name=told(say("queued")), start=asked_for, end=first)]
    before: datetime | None = None
    for attempt in run.attempts:
        if before is not None:
            found.append(_pause(before, attempt.started_at, told(say("back-off"))))
        found.append(
            Stretch(
                name=told(say("attempt {number}", number=attempt.number)),
                start=attempt.started_at,
                end=max(attempt.finished_at, attempt.started_at),
                status=_ENDS[attempt.end],
            )
        )
        before = attempt.finished_at
    if not run.status.terminal and before is not None:
        found.append(_pause(before, held_since or now, told(say("back-off"))))
    if held_since is not None:
        found.append(
            Stretch(
                name=told(say("attempt {number}", number=run.attempt)),
                start=held_since,
                end=max(now, held_since),
                status=RunStatus.RUNNING,
            )
        )
    found.extend(_step(child, now) for child in children)
    for each in deliveries:
        name = told(say("told: {channel}", channel=CHANNELS[each.recipient.channel]))
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
    stretches: Sequence[Stretch], look: Look, zone: str | None, now: datetime
) -> Chart:
    language = look.language
    words = WaterfallWords(
        title=in_language(say("What happened when"), language),
        description=in_language(
            say("Waiting, attempts and the pauses between them, steps, deliveries"), language
        ),
        what=in_language(say("What"), language),
        start=in_language(say("From"), language),
        length=in_language(say("How long"), language),
        moment=lambda at: times.absolute(at, by_clock(look, zone), look, now=now, seconds=True),
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
    found = (run.result or {}).get(IN_THE_WAY)
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
