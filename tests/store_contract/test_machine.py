"""Every store behaves like the memory store under random operations."""

from __future__ import annotations

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store_contract.machine import machine_for
from tests.store_contract.stores import KINDS, StoreKind

#: Events that the random operations must have caused.
MUST_REACH = {
    "accepted",
    "beat refused",
    "cancel heard",
    "claimed",
    "crash limit",
    "delivery claimed",
    "delivery dead",
    "delivery delivered",
    "delivery fenced",
    "delivery pending",
    "delivery taken over",
    "fenced",
    "fired blocked",
    "fired claimed",
    "fired missed",
    "fired queued",
    "fired skipped",
    "message pruned",
    "pruned",
    "replayed",
    "rescued",
    "stale again",
    "state kept",
    "state refused",
    "state stale",
    "taken over",
    "task added",
    "task standing",
    "unknown",
}


#: The examples of Hypothesis depend on the loaded modules, so a round may miss a rare event.
#: Further rounds with other examples follow until every event has occurred.
MAX_ROUNDS = 10
EXAMPLES_PER_ROUND = 12
MIN_ROUNDS = 2
#: Steps on a server are slow; the SQL operations are also covered by SQLite.
MIN_ROUNDS_ON_A_SERVER = 1
#: For CHIMES_HYPOTHESIS=search.
SEARCH_EXAMPLES_PER_ROUND, SEARCH_MIN_ROUNDS = 40, 5


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_store_behaves_like_the_memory_store_under_random_operations(kind: StoreKind) -> None:
    reached: set[str] = set()
    # Without shrinking: a failure is reported immediately, with its original example.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    long = not settings().derandomize
    min_rounds = MIN_ROUNDS_ON_A_SERVER if kind.name in ("postgresql", "mariadb") else MIN_ROUNDS
    min_rounds, examples = (
        (SEARCH_MIN_ROUNDS, SEARCH_EXAMPLES_PER_ROUND) if long else (min_rounds, EXAMPLES_PER_ROUND)
    )
    run = settings(max_examples=examples, stateful_step_count=40, phases=phases)
    for number in range(MAX_ROUNDS):
        machine = machine_for(kind.make)
        if run.derandomize:
            # Otherwise each round would repeat the examples of the previous one.
            machine = seed(number)(machine)
        run_state_machine_as_test(machine, settings=run)
        reached |= {event for event, times in machine.reached.items() if times}
        if number + 1 >= min_rounds and reached >= MUST_REACH:
            return
    assert reached >= MUST_REACH
