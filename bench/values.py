"""Cost of building and copying a run, as a frozen Struct and as a frozen dataclass; and of the
storage codec.

.venv/bin/python bench/values.py
"""

from __future__ import annotations

import dataclasses
import timeit
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec.structs

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.policy import Policy
from chimes.model.run import Origin, Run, RunDefinition, RunStatus
from chimes.model.target import HttpTarget, TaskTarget
from chimes.store.codec.records import run_from_plain, run_to_plain
from chimes.store.codec.values import (
    policy_from_plain,
    policy_to_plain,
    target_from_plain,
    target_to_plain,
)

ROUNDS, CALLS = 7, 20_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def best_microseconds(call: Any) -> float:
    return min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def main() -> None:
    run = Run(
        id=RunId("r"),
        definition=RunDefinition(target=TaskTarget(name="t"), policy=Policy()),
        origin=Origin.MANUAL,
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
    http = HttpTarget(url="https://example.com/", headers={"X-Team": "ops"}, body="{}")
    codecs: list[tuple[str, Any, Any, Any]] = [
        ("policy", Policy(), policy_to_plain, policy_from_plain),
        ("target", http, target_to_plain, target_from_plain),
        ("run", run, run_to_plain, run_from_plain),
    ]
    for name, value, encode, decode in codecs:
        plain = encode(value)
        encode_us = best_microseconds(partial(encode, value))
        decode_us = best_microseconds(partial(decode, plain))
        print(f"{name:9}  encode {encode_us:6.2f} µs  decode {decode_us:6.2f} µs")


if __name__ == "__main__":
    main()
