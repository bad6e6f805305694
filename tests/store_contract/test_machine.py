"""Every store behaves like the memory store under random operations."""

from __future__ import annotations

import pytest
from hypothesis import Phase, seed, settings
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
    "taken over",
    "task added",
    "task standing",
    "unknown",
}


#: What Hypothesis tries depends also on the modules that are loaded, so that a round may miss a
#: rare event: further ones, each with lives of its own, then look for it.
MOST = 10
LIVES = 12
LEAST = 2
#: Where each step is a few trips to a server; the verbs are those of SQLite, which lives more.
ON_A_SERVER = 1
#: CHIMES_HYPOTHESIS=search: as many as there is time for.
LONG_LIVES, LONG_LEAST = 40, 5


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_store_lives_like_the_memory_store(kind: StoreKind) -> None:
    reached: set[str] = set()
    # Without shrinking: a failure is told at once, as the life that it was found in.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    long = not settings().derandomize
    least = ON_A_SERVER if kind.name in ("postgresql", "mariadb") else LEAST
    least, lives = (LONG_LEAST, LONG_LIVES) if long else (least, LIVES)
    run = settings(max_examples=lives, stateful_step_count=40, phases=phases)
    for number in range(MOST):
        machine = machine_for(kind.make)
        if run.derandomize:
            # Otherwise each round would begin with the lives of the one before.
            machine = seed(number)(machine)
        run_state_machine_as_test(machine, settings=run)
        reached |= {event for event, times in machine.reached.items() if times}
        if number + 1 >= least and reached >= MUST_REACH:
            return
    assert reached >= MUST_REACH
