"""Named limits: any sequence of events on several nodes keeps permits, tokens and breaker."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidInput
from chimes.model.ids import NodeId, RunId
from chimes.model.limit import (
    DEMAND_SECONDS,
    Breaker,
    BreakerState,
    Limit,
    LimitState,
    Waiter,
    admit,
    breaker_state,
    calls_per_second,
    drop_void,
    give_back,
    leave,
    limit_use,
)
from tests.builders import ALICE, NOW

NODES = [NodeId(f"n{number}") for number in range(3)]


def a_limit(**given: object) -> Limit:
    values = {"name": "api", "owner": ALICE, "created_at": NOW, "updated_at": NOW}
    return Limit(**(values | given))  # type: ignore[arg-type]


def a_waiter(number: int, rank: int = 0) -> Waiter:
    return Waiter(run_id=RunId(f"r{number}"), fence=1, order=(-rank, float(number), f"r{number}"))


def test_rates() -> None:
    for text, rate in (("10/s", 10), ("100/m", 100 / 60), ("5/10s", 0.5), ("1/d", 1 / 86400)):
        assert calls_per_second(text) == pytest.approx(rate)
    for text in ("", "10", "/s", "0/s", "10/0s", "1.5/s", "10/y", "1e3/s", "9999999/s"):
        with pytest.raises(InvalidInput):
            calls_per_second(text)
    bursts = {"10/s": 10, "100/m": 2, "1/h": 1}
    assert {rate: a_limit(rate=rate).capacity for rate in bursts} == bursts


class Nodes:
    """Runs that enter and leave a limit on several nodes, at random; calls are counted."""

    def __init__(self, limit: Limit, seed: int) -> None:
        self.limit = limit
        self.random = random.Random(seed)
        self.now = 1000.0
        self.state = LimitState()
        self.waiting: dict[NodeId, list[Waiter]] = {node: [] for node in NODES}
        self.running: dict[RunId, NodeId] = {}
        self.calls: list[float] = []
        self.count = 0

    def step(self) -> None:
        self.now += self.random.choice([0.0, 0.0, 0.01, 0.3])
        match self.random.randrange(5):
            case 0 | 1:
                for _number in range(self.random.randrange(4)):
                    self.count += 1
                    waiter = a_waiter(self.count, self.random.randrange(2))
                    self.waiting[self.random.choice(NODES)].append(waiter)
            case 2:
                self.look(self.random.choice(NODES))
            case 3 if self.running:
                run_id = self.random.choice(sorted(self.running))
                del self.running[run_id]
                good = self.random.choice([True, False, None])
                self.state = leave(self.state, self.limit, run_id, 1, self.now, succeeded=good)
            case _ if self.running:
                # A node dies: its runs are rescued, and another node finds their permits void.
                dead = self.random.choice(NODES)
                void = {each: 1 for each, node in self.running.items() if node == dead}
                self.running = {a: b for a, b in self.running.items() if b != dead}
                self.waiting[dead] = []
                self.state = drop_void(self.state, void)

    def look(self, node: NodeId) -> None:
        waiting = self.waiting[node]
        before = breaker_state(self.state, self.now)
        self.state, admission = admit(self.state, self.limit, node, waiting, self.now, keep=4)
        admitted = [each for each in waiting if each.run_id in admission.admitted]
        self.waiting[node] = [each for each in waiting if each not in admitted]
        for each in admitted:
            self.running[each.run_id] = node
            self.calls.append(self.now)
        if self.limit.breaker is not None:
            if before is BreakerState.OPEN:
                assert not admitted
            if before is BreakerState.PROBING:
                assert len(admitted) <= 1
        if admitted and self.waiting[node]:
            last = max(each.order for each in admitted)
            assert last < min(each.order for each in self.waiting[node])

    def check(self) -> None:
        limit = self.limit
        if limit.concurrency is not None:
            assert len(self.running) <= limit.concurrency
            assert set(self.state.permits) == set(self.running)
        if rate := limit.calls_per_second:
            for first, begun in enumerate(self.calls):
                allowed = limit.capacity + rate * (self.calls[-1] - begun) + 1e-6
                assert len(self.calls) - first <= allowed


LIMITS = [
    a_limit(concurrency=3),
    a_limit(rate="2/s", burst=4),
    a_limit(concurrency=2, rate="5/s"),
    a_limit(breaker=Breaker(failures=2, pause=timedelta(seconds=1))),
    a_limit(concurrency=2, breaker=Breaker(failures=1, pause=timedelta(seconds=1))),
]


@given(st.sampled_from(LIMITS), st.integers(0, 2**32))
def test_nodes_keep_the_limit_whatever_happens(limit: Limit, seed: int) -> None:
    nodes = Nodes(limit, seed)
    for _number in range(150):
        nodes.step()
        nodes.check()
    # Nobody waits for ever: without new runs, all of them start.
    for _number in range(2000):
        if not any(nodes.waiting.values()) and not nodes.running:
            break
        nodes.now += 0.5
        for run_id in sorted(nodes.running):
            del nodes.running[run_id]
            nodes.state = leave(nodes.state, limit, run_id, 1, nodes.now, succeeded=True)
        for node in NODES:
            nodes.look(node)
            nodes.check()
    assert not any(nodes.waiting.values())


def test_the_first_of_all_nodes_goes_first() -> None:
    limit, (here, there, _third) = a_limit(concurrency=1), NODES
    state, first = admit(LimitState(), limit, here, [a_waiter(1)], 0.0, keep=4)
    assert first.admitted == {"r1"}
    state, none = admit(state, limit, there, [a_waiter(2)], 0.1, keep=4)
    assert (none.admitted, none.at_concurrency) == (frozenset(), True)
    state = leave(state, limit, RunId("r1"), 1, 0.2, succeeded=True)
    # The node whose run ended does not go on with its next one: an older run waits elsewhere.
    state, later = admit(state, limit, here, [a_waiter(3)], 0.2, keep=4)
    assert not later.admitted
    state, older = admit(state, limit, there, [a_waiter(2)], 0.3, keep=4)
    assert older.admitted == {"r2"}
    # A node that is gone keeps nothing.
    state = leave(state, limit, RunId("r2"), 1, 0.4, succeeded=True)
    state, _none = admit(state, limit, there, [a_waiter(9)], 0.4 + DEMAND_SECONDS * 2, keep=4)
    assert _none.admitted == {"r9"}


def test_a_lost_answer_takes_no_second_permit_and_giving_back_returns_both() -> None:
    limit, node = a_limit(concurrency=1, rate="1/h", burst=2), NODES[0]
    state, first = admit(LimitState(), limit, node, [a_waiter(1)], 0.0)
    again, second = admit(state, limit, node, [a_waiter(1)], 0.0)
    assert first.admitted == second.admitted == {"r1"}
    assert (len(again.permits), again.tokens) == (1, 1.0)
    back = give_back(again, limit, RunId("r1"), 1)
    assert (back.permits, back.tokens) == ({}, 2.0)
    use = limit_use(limit, again, NOW)
    assert (use.in_use, use.waiting, use.breaker) == (1, 0, None)


def test_an_attempt_whose_run_was_rescued_leaves_the_permit_of_the_next_one() -> None:
    breaker = Breaker(failures=1, pause=timedelta(seconds=1))
    limit, run_id = a_limit(concurrency=1, rate="1/h", burst=2, breaker=breaker), RunId("r1")
    rescued = Waiter(run_id=run_id, fence=2, order=(0, 1.0, "r1"))
    opened = LimitState(open_until=1.0)
    state, second = admit(opened, limit, NODES[1], [rescued], 2.0)
    assert (second.admitted, state.permits, state.probe) == ({"r1"}, {"r1": 2}, "r1")
    for succeeded in (True, False, None):
        after = leave(state, limit, run_id, 1, 3.0, succeeded=succeeded)
        assert (after.permits, after.probe, after.open_until) == ({"r1": 2}, "r1", 1.0)
    # Its token is its own.
    back = give_back(state, limit, run_id, 1)
    assert (back.permits, back.probe, back.tokens) == ({"r1": 2}, "r1", 2.0)
    assert leave(state, limit, run_id, 2, 3.0, succeeded=True).permits == {}
    assert give_back(state, limit, run_id, 2).permits == {}


def test_breaker() -> None:
    limit = a_limit(breaker=Breaker(failures=2, pause=timedelta(seconds=10)))
    state = LimitState()
    for number, succeeded in enumerate([False, True, False]):
        state = leave(state, limit, RunId(f"r{number}"), 1, 1.0, succeeded=succeeded)
        assert breaker_state(state, 1.0) is BreakerState.CLOSED
    state = leave(state, limit, RunId("r4"), 1, 2.0, succeeded=False)
    assert breaker_state(state, 11.9) is BreakerState.OPEN
    # A call that began before does not close it.
    assert leave(state, limit, RunId("r5"), 1, 3.0, succeeded=True).open_until == 12.0
    state, none = admit(state, limit, NODES[0], [a_waiter(6)], 5.0)
    assert (none.admitted, none.wait) == (frozenset(), 7.0)
    state, probe = admit(state, limit, NODES[0], [a_waiter(6), a_waiter(7)], 12.0)
    assert probe.admitted == {"r6"}
    state, none = admit(state, limit, NODES[1], [a_waiter(8)], 13.0)
    assert not none.admitted
    failed = leave(state, limit, RunId("r6"), 1, 14.0, succeeded=False)
    assert failed.open_until == 24.0
    # A probe whose node is lost is followed by another one.
    lost = drop_void(state, {"r6": 1})
    assert admit(lost, limit, NODES[1], [a_waiter(8)], 14.0)[1].admitted == {"r8"}
    closed = leave(state, limit, RunId("r6"), 1, 14.0, succeeded=True)
    assert (closed.open_until, closed.failures) == (0.0, 0)
