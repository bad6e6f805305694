"""Collects the records of a torture run for the checker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tests.forking import run_chimes
from tests.system.torture.oracle import micros
from tests.system.torture.records import (
    Case,
    FaultSpan,
    ObservedRun,
    RunLogLine,
    Trigger,
    Version,
    dump_from,
    effects_from,
    lines,
    version_from,
)

HISTORY, SINK, DUMP, NODES = "history.jsonl", "sink.jsonl", "dump.jsonl", "nodes"


async def dump(store: str, directory: Path) -> None:
    """Exports the store with `chimes store export`."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory)}
    command = ["store", "export", str(directory / DUMP), "--store", store]
    done = await asyncio.to_thread(run_chimes, command, cwd=directory, env=environment, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"the store could not be exported: {done.stdout}{done.stderr}")


def load(directory: Path) -> Case:
    history = list(lines(directory / HISTORY))
    schedules, runs = dump_from(lines(directory / DUMP))
    logs = sorted((directory / NODES).glob("*.log"))
    marks = {entry["phase"]: entry["t"] for entry in history if entry["type"] == "phase"}
    return Case(
        versions=tuple(_versions(history)),
        triggers=tuple(_triggers(history)),
        log_lines=tuple(chain.from_iterable(_log_lines(log) for log in logs)),
        observed=tuple(_observed(history)),
        fault_spans=tuple(_fault_spans(history)),
        effects=tuple(effects_from(lines(directory / SINK))),
        schedules=schedules,
        runs=tuple(runs),
        healed=marks.get("heal", 0),
        stopped=marks.get("freeze", 0),
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
