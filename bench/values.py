"""Cost of building and copying a run, as a frozen Struct and as a frozen dataclass.

.venv/bin/python bench/values.py
"""

from __future__ import annotations

import dataclasses
import timeit
from datetime import UTC, datetime
from typing import Any

import msgspec.structs

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.policy import Policy
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.target import TaskTarget

ROUNDS, CALLS = 7, 20_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def best_microseconds(call: Any) -> float:
    return min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def main() -> None:
    run = Run(
        id=RunId("r"),
        schedule_id=None,
        origin=Origin.MANUAL,
        target=TaskTarget(name="t"),
        policy=Policy(),
        created_at=NOW,
        planned_at=NOW,
        available_at=NOW,
    )
    values = {field.name: getattr(run, field.name) for field in msgspec.structs.fields(Run)}
    twin = dataclasses.make_dataclass("RunDataclass", list(values), frozen=True, slots=True)
    changes = {"status": RunStatus.RUNNING, "attempt": 1}
    copy = twin(**values)
    for name, build, change in (
        ("Struct", lambda: Run(**values), lambda: replace(run, **changes)),
        ("dataclass", lambda: twin(**values), lambda: dataclasses.replace(copy, **changes)),
    ):
        build_us, copy_us = best_microseconds(build), best_microseconds(change)
        print(f"{name:9}  build {build_us:6.2f} µs  copy with two changes {copy_us:6.2f} µs")


if __name__ == "__main__":
    main()
