"""Every store lives the same random lives as the memory store (RELIABILITY section 5)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store_contract.machine import machine_for
from tests.store_contract.stores import KINDS, StoreKind

#: I15: a run that never came here proves nothing.
MUST_REACH = {
    "accepted",
    "beat refused",
    "cancel heard",
    "claimed",
    "crash limit",
    "fenced",
    "fired blocked",
    "fired claimed",
    "fired missed",
    "fired queued",
    "fired skipped",
    "pruned",
    "replayed",
    "rescued",
    "stale again",
    "taken over",
    "unknown",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_store_lives_like_the_memory_store(kind: StoreKind) -> None:
    machine = machine_for(kind.make)
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=40))
    reached = {event for event, times in machine.reached.items() if times}
    assert reached >= MUST_REACH
