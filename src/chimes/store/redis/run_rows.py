"""Runs as hashes: `body` is what never changes, `rest` what only the end of an attempt changes,
and the fields that scripts judge or that change by themselves stand beside them.

The body of a run that this process has seen is not decoded again: the value is frozen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from chimes.model.change import replace
from chimes.model.ids import NodeId
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.sync_task import created_unix, is_task, task_fields, task_id, task_time
from chimes.model.target import SyncTarget
from chimes.store.codec.run import attempt_from_plain, attempt_to_plain, run_from_plain
from chimes.store.codec.run import run_to_plain as _to_plain
from chimes.store.plain import Plain, to_micros
from chimes.store.redis.damage import mended_run
from chimes.store.redis.seen import Seen
from chimes.store.redis.wire import (
    Wire,
    encoded,
    flag,
    flat,
    maybe_moment,
    micros,
    moment,
    texts,
)

_STATUSES = {status.value: status for status in RunStatus}
#: What scripts show of a run, in their order.
SHOWN = (
    "body",
    "rest",
    "status",
    "blocked",
    "attempt",
    "fence",
    "holder",
    "started",
    "stop",
    "available",
    "claimed",
    "first",
    "finished",
    "rev",
    "id",
)
#: In fields of their own, or in `rest`.
_BESIDE = (
    "status",
    "blocked",
    "attempt",
    "fence",
    "holder",
    "started",
    "cancel_requested",
    "available_at",
    "claimed_at",
    "started_at",
    "finished_at",
    "result",
    "error",
    "reason",
    "attempts",
)
#: Ranks are small numbers of either sign; higher ones go first, so they are counted down.
_RANKS = 10**19
#: No run waits since before 1970 by more than anybody could tell.
_DIGITS = 18


def member(run: Run) -> str:
    """Its place in a queue: sorted as `queue_order` says; see `needs_of` in the Lua."""
    available = max(0, to_micros(run.available_at))
    planned = max(0, to_micros(run.planned_at))
    return (
        f"{_RANKS - run.rank:020d}{available:0{_DIGITS}d}{planned:0{_DIGITS}d}"
        f"{run.id}\n{run.target.needs}"
    )


def state_fields(run: Run) -> dict[str, str]:
    """What changes in the life of a run."""
    return {
        "rest": rest_of(run),
        "status": run.status.value,
        "blocked": flag(run.blocked),
        "attempt": str(run.attempt),
        "fence": str(run.fence),
        "holder": run.holder or "",
        "started": flag(run.started),
        "stop": flag(run.cancel_requested),
        "available": micros(run.available_at),
        "claimed": micros(run.claimed_at),
        "first": micros(run.started_at),
        "finished": micros(run.finished_at),
        "member": member(run),
    }


def changed_fields(before: Run, after: Run) -> dict[str, str]:
    """What differs."""
    old, new = state_fields(before), state_fields(after)
    return {name: value for name, value in new.items() if old[name] != value}


def new_fields(run: Run, body: str) -> list[str]:
    """All of a run that is not there yet, but for its id and revision."""
    sync = run.target if isinstance(run.target, SyncTarget) else None
    task = is_task(run)
    fixed = {
        "body": body,
        "schedule": run.schedule_id or "",
        "slot": micros(run.slot),
        "mark": micros(run.missed_until or run.slot),
        "parent": run.parent_id or "",
        "flow": flag(run.resumable),
        "key": run.concurrency_key or "",
        "limit": str(run.concurrency_limit),
        "created": micros(run.created_at),
        "planned": micros(run.planned_at),
        "source": sync.needs if sync else "",
        "task": task_id(run) if task else "",
        "pair": f"source#{sync.source}:collection#{sync.collection}" if sync and task else "",
        "score": str(task_fields(run)["priority"]) if task else "",
    }
    return flat((fixed | state_fields(run)).items())


def task_row(run: Run) -> Wire:
    """R4.10 and R4.11: the hash of a task and its score in the index; nothing for other runs."""
    if not is_task(run):
        return ""
    fields = task_fields(run)
    return [flat((name, str(value)) for name, value in fields.items()), str(created_unix(run))]


def log_rows(entries: Sequence[LogEntry]) -> list[Wire]:
    """For each: the entry, the time of R4.12 as its score, and the seed's entry up to its end."""
    return [
        [
            encoded([micros(entry.at), entry.level, entry.message]),
            f"{to_micros(entry.at) / 1_000_000:.6f}",
            encoded({"time": task_time(entry.at), "message": entry.message, "level": entry.level})[
                :-1
            ],
        ]
        for entry in entries
    ]


def log_entry(row: str, number: int) -> LogEntry:
    at, level, message = json.loads(row)
    return LogEntry(at=moment(at), level=level, message=message, number=number)


class RunRows:
    """Decodes records, and remembers the bodies of the latest."""

    def __init__(self) -> None:
        self._bodies: Seen[Run] = Seen()

    def body(self, run: Run) -> str:
        plain = _to_plain(run)
        for name in _BESIDE:
            plain.pop(name, None)
        body = encoded(plain)
        self._bodies.keep(body, run)
        return body

    def run(self, record: Wire) -> tuple[Run, str]:
        """The run and its revision. What cannot be read of it stands as a placeholder."""
        fields = texts(record)
        try:
            return self._run(fields), fields[-2]
        except Exception as error:
            return mended_run(dict(zip(SHOWN, fields, strict=True)), error), fields[-2]

    def _run(self, fields: list[str]) -> Run:
        (
            body,
            rest,
            status,
            blocked,
            attempt,
            fence,
            holder,
            started,
            stop,
            available,
            claimed,
            first,
            finished,
            _,
            _,
        ) = fields
        base = self._bodies.get(body)
        if base is None:
            base = _decoded(body)
            self._bodies.keep(body, base)
        more: Plain = json.loads(rest) if rest else {}
        attempts = more.get("attempts")
        result = more.get("result")
        return replace(
            base,
            status=_STATUSES[status],
            blocked=blocked == "1",
            attempt=int(attempt),
            fence=int(fence),
            holder=NodeId(holder) if holder else None,
            started=started == "1",
            cancel_requested=stop == "1",
            available_at=moment(available),
            claimed_at=maybe_moment(claimed),
            started_at=maybe_moment(first),
            finished_at=maybe_moment(finished),
            result=result if isinstance(result, dict) else None,
            error=str(more.get("error", "")),
            reason=str(more.get("reason", "")),
            attempts=tuple(map(attempt_from_plain, attempts)) if isinstance(attempts, list) else (),
        )


def _decoded(body: str) -> Run:
    plain = json.loads(body)
    return run_from_plain(plain | {"status": "queued", "available_at": plain["created_at"]})


def rest_of(run: Run) -> str:
    plain: Plain = {}
    if run.result is not None:
        plain["result"] = dict(run.result)
    if run.error:
        plain["error"] = run.error
    if run.reason:
        plain["reason"] = run.reason
    if run.attempts:
        plain["attempts"] = [attempt_to_plain(attempt) for attempt in run.attempts]
    return encoded(plain) if plain else ""
