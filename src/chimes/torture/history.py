"""The history of a torture run: the input of the checker, and the files it is read from.

All times are microseconds since 1970 by the store's clock. Times that were measured on this machine
are corrected by the difference of the two clocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from chimes.torture.oracle import Spec, micros, spec_of

TERMINAL = frozenset({"succeeded", "failed", "timeout", "canceled", "skipped", "missed", "unknown"})


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a schedule and the time from which it was valid."""

    schedule_id: str
    number: int
    at: int
    enabled: bool
    spec: Spec
    deleted: bool = False
    #: Whether the change was confirmed to a client: it must not be lost.
    acknowledged: bool = False
    #: The trigger that the client requested, if it changed the trigger.
    asked: Spec | None = None


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A requested manual run. `run_id` is empty if its creation is unknown."""

    schedule_id: str
    key: str
    run_id: str = ""


@dataclass(frozen=True, kw_only=True)
class RunLogLine:
    """A line of a node's log about one run, as answered by the store."""

    at: int
    event: str
    run_id: str
    fence: int
    status: str


@dataclass(frozen=True, kw_only=True)
class ObservedRun:
    """An ended run in an answer of the API."""

    at: int
    run_id: str
    status: str
    fence: int


@dataclass(frozen=True, kw_only=True)
class FaultSpan:
    """A fault from its begin to its end. `node` -1 is the store."""

    kind: str
    node: int
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A request that reached the receiver."""

    at: int
    #: When the node checked its lease, by the store's time.
    began: int
    run_id: str
    schedule_id: str
    slot: int
    fence: int
    attempt: int
    node: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Attempt:
    number: int
    fence: int
    node: str
    started: int
    finished: int
    end: str


@dataclass(frozen=True, kw_only=True)
class Run:
    id: str
    schedule_id: str
    slot: int | None
    origin: str
    status: str
    attempt: int
    fence: int
    created: int
    finished: int | None
    #: When it was claimed for the first time.
    claimed: int | None = None
    reason: str = ""
    missed_count: int = 0
    missed_until: int | None = None
    on_lost: str = "retry"
    #: Limit of concurrent runs of the schedule; 0 is unlimited.
    limit: int = 1
    max_retries: int = 0
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Schedule:
    id: str
    version: Version
    fired_count: int


@dataclass(frozen=True, kw_only=True)
class Case:
    """All records of one torture run."""

    versions: tuple[Version, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    log_lines: tuple[RunLogLine, ...] = ()
    observed: tuple[ObservedRun, ...] = ()
    fault_spans: tuple[FaultSpan, ...] = ()
    effects: tuple[Effect, ...] = ()
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    #: When the last fault ended, and when the nodes were stopped.
    healed: int = 0
    stopped: int = 0
    #: A fault has effects until a takeover is complete.
    aftermath: int = 4_200_000
    #: By how much the times of this machine may be wrong after their correction.
    clock_error: int = 0


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a file, without a line truncated by a kill."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def effects_from(entries: Iterable[Mapping[str, Any]], offset: int = 0) -> Iterator[Effect]:
    for entry in entries:
        yield Effect(
            at=entry["t"] + offset,
            began=micros(entry["began"]),
            run_id=entry["run_id"],
            schedule_id=entry["schedule_id"],
            slot=micros(entry["slot"]),
            fence=int(entry["fence"]),
            attempt=int(entry["attempt"]),
            node=entry["node"],
            path=entry["path"],
        )


def dump_from(entries: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Schedule], list[Run]]:
    """From the lines of `chimes store export`."""
    schedules: dict[str, Schedule] = {}
    runs: list[Run] = []
    for entry in entries:
        if entry.get("kind") == "schedule":
            found = schedule_from(entry["value"])
            schedules[found.id] = found
        elif entry.get("kind") == "run":
            runs.append(run_from(entry["value"]))
    return schedules, runs


def version_from(
    answer: Mapping[str, Any],
    *,
    acknowledged: bool = True,
    asked: Mapping[str, Any] | None = None,
) -> Version:
    """From a schedule as the API or the export returns it."""
    return Version(
        schedule_id=answer["id"],
        number=answer.get("version", 1),
        at=micros(answer["updated_at"]),
        enabled=answer.get("enabled", True),
        spec=spec_of(answer["trigger"]),
        deleted=answer.get("deleted_at") is not None,
        acknowledged=acknowledged,
        asked=None if asked is None else spec_of(asked),
    )


def schedule_from(value: Mapping[str, Any]) -> Schedule:
    return Schedule(
        id=value["id"],
        version=version_from(value, acknowledged=False),
        fired_count=value.get("fired_count", 0),
    )


def run_from(value: Mapping[str, Any]) -> Run:
    policy = value.get("policy", {})
    return Run(
        id=value["id"],
        schedule_id=value.get("schedule_id", ""),
        slot=_maybe(value.get("slot")),
        origin=value["origin"],
        status=value["status"],
        attempt=value.get("attempt", 0),
        fence=value.get("fence", 0),
        created=micros(value["created_at"]),
        finished=_maybe(value.get("finished_at")),
        claimed=_maybe(value.get("started_at")),
        reason=value.get("reason", ""),
        missed_count=value.get("missed_count", 0),
        missed_until=_maybe(value.get("missed_until")),
        on_lost=policy.get("on_lost", "retry"),
        limit=0 if policy.get("overlap") == "allow" else 1,
        max_retries=policy.get("max_retries", 0),
        attempts=tuple(
            Attempt(
                number=each["number"],
                fence=each["fence"],
                node=each.get("node", ""),
                started=micros(each["started_at"]),
                finished=micros(each["finished_at"]),
                end=each["end"],
            )
            for each in value.get("attempts", ())
        ),
    )


def _maybe(text: str | None) -> int | None:
    return None if text is None else micros(text)


# --- files of a run ------------------------------------------------------------------------------
HISTORY, CALLS, DUMP, NODES = "history.jsonl", "calls.jsonl", "dump.jsonl", "nodes"


def load(directory: Path) -> Case:
    """From the files of a run."""
    history = list(lines(directory / HISTORY))
    offsets = [entry["offset"] for entry in history if entry["type"] == "clock"]
    offset = offsets[0] if offsets else 0
    for entry in history:
        entry["t"] += offset
    schedules, runs = dump_from(lines(directory / DUMP))
    logs = sorted((directory / NODES).glob("*.log"))
    marks = {entry["phase"]: entry["t"] for entry in history if entry["type"] == "phase"}
    return Case(
        versions=tuple(_versions(history)),
        triggers=tuple(_triggers(history)),
        log_lines=tuple(chain.from_iterable(_log_lines(log) for log in logs)),
        observed=tuple(_observed(history)),
        fault_spans=tuple(_fault_spans(history)),
        effects=tuple(effects_from(lines(directory / CALLS), offset)),
        schedules=schedules,
        runs=tuple(runs),
        healed=marks.get("heal", 0),
        stopped=marks.get("freeze", 0),
        clock_error=max((abs(each - offset) for each in offsets), default=0),
    )


def _versions(history: list[dict[str, Any]]) -> Iterator[Version]:
    for entry in history:
        if entry["type"] in ("ok", "read") and entry.get("schedule") is not None:
            yield version_from(
                entry["schedule"], acknowledged=entry["type"] == "ok", asked=entry.get("asked")
            )


def _triggers(history: list[dict[str, Any]]) -> Iterator[Trigger]:
    """One per idempotency key, however often it was sent."""
    asked: dict[str, Trigger] = {}
    for entry in history:
        if entry.get("op") == "trigger" and entry["type"] in ("invoke", "ok"):
            run_id = entry.get("run_id", "")
            if run_id or entry["key"] not in asked:
                asked[entry["key"]] = Trigger(
                    schedule_id=entry["id"], key=entry["key"], run_id=run_id
                )
    yield from asked.values()


def _observed(history: list[dict[str, Any]]) -> Iterator[ObservedRun]:
    for entry in history:
        if entry["type"] == "seen":
            for run_id, status, fence in entry["runs"]:
                yield ObservedRun(at=entry["t"], run_id=run_id, status=status, fence=fence)


def _fault_spans(history: list[dict[str, Any]]) -> Iterator[FaultSpan]:
    begun: dict[int, Mapping[str, Any]] = {}
    for entry in history:
        if entry["type"] == "fault":
            begun[entry["number"]] = entry
        elif entry["type"] == "fault over":
            fault = begun.pop(entry["number"])
            yield FaultSpan(
                kind=fault["kind"], node=fault["node"], begin=fault["t"], end=entry["t"]
            )


def _log_lines(log: Path) -> Iterator[RunLogLine]:
    for line in lines(log):
        if "run_id" in line and "fence" in line:
            yield RunLogLine(
                at=micros(line["time"]),
                event=line["event"],
                run_id=line["run_id"],
                fence=line["fence"],
                status=line["status"],
            )
