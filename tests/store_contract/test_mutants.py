"""The state machine finds every planted bug."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from chimes.store.memory import MemoryStore
from tests.store_contract.machine import machine_for
from tests.store_contract.mutants import MUTANTS


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_machine_finds_planted_bug(mutant: type[MemoryStore]) -> None:
    machine = machine_for(lambda directory, clock: mutant(clock=clock))
    # Without shrinking: the smallest example of a planted bug is not needed.
    found = settings(max_examples=300, stateful_step_count=40, phases=[Phase.generate])
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=found)
