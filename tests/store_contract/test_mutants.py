"""The state machine finds every planted bug."""

from __future__ import annotations

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from chimes.store.memory import MemoryStore
from tests.store_contract.machine import machine_for
from tests.store_contract.mutants import MUTANTS

#: The examples of Hypothesis depend on the loaded modules, so a round may miss a bug that needs a
#: rare sequence. Further rounds with other examples follow.
MAX_ROUNDS = 5


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_machine_finds_planted_bug(mutant: type[MemoryStore]) -> None:
    with pytest.raises((AssertionError, ExceptionGroup)):
        _run_rounds(mutant)


def _run_rounds(mutant: type[MemoryStore]) -> None:
    # Without shrinking: the smallest example of a planted bug is not needed.
    options = settings(max_examples=300, stateful_step_count=40, phases=[Phase.generate])
    for number in range(MAX_ROUNDS):
        machine = machine_for(lambda directory, clock: mutant(clock=clock))
        run_state_machine_as_test(seed(number)(machine), settings=options)
