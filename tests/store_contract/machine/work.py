"""Rules: runs are fired, claimed, completed and lost."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chimes.model.ids import NodeId
from chimes.model.planning import plan
from chimes.model.policy import OnLost
from chimes.model.run import CRASH_LIMIT, AttemptEnd, Completion, Run, owns_fence
from chimes.store.port import FireResult
from tests.builders import (
    CAPABILITIES,
    KINDS,
    LEASE,
    SECOND,
    a_completion,
    a_node,
    a_retry,
    claim_request,
    log_lines,
)
from tests.store_contract.machine.nodes import NodeRules
from tests.store_contract.machine.strategies import (
    ENDS,
    INTERVALS,
    STALE_ACTIONS,
    STATES,
    amount,
    index,
)
from tests.store_contract.machine.two_stores import SentCompletion


def _capabilities(number: int) -> frozenset[str]:
    """One node in five has the capability `http` only."""
    return CAPABILITIES if number % 5 else KINDS


class WorkRules(NodeRules):
    @rule(number=index, limit=st.sampled_from([1, 2, 10]), free=st.integers(0, 3))
    def fire(self, number: int, limit: int, free: int) -> None:
        node = self._pick(self.nodes, number)
        given = claim_request(node, free, _capabilities(number)) if number % 4 else None
        fired: FireResult = self._both("fire_due", plan, limit=limit, request=given)
        self.held.extend(fired.claimed)
        self.reached["fired claimed"] += len(fired.claimed)
        for run in fired.others:
            self.reached["fired " + ("blocked" if run.blocked else run.status)] += 1
        assert not fired.broken

    @rule(number=index, seconds=st.integers(1, 12), free=amount)
    def work(self, number: int, seconds: int, free: int) -> None:
        """One pass of a live node: heartbeat, fire, claim."""
        self.advance(seconds, beating=True)
        self.fire(number | 1, 10, free)
        self.claim(number, free)

    @rule(number=index, free=amount)
    def claim(self, number: int, free: int) -> None:
        self._claim(self._pick(self.nodes, number), free, _capabilities(number))

    def _claim(
        self, node: NodeId, free: int, capabilities: frozenset[str] = CAPABILITIES
    ) -> tuple[Run, ...]:
        claimed: tuple[Run, ...] = self._both("claim", claim_request(node, free, capabilities))
        assert all(run.target.requirement in capabilities for run in claimed)
        self.held.extend(claimed)
        self.reached["claimed"] += len(claimed)
        return claimed

    def _owned(self) -> list[Run]:
        """Claimed runs that their holders still own."""
        runs = self._runs()
        return [run for run in self.held if run.id in runs and owns_fence(runs[run.id], run.fence)]

    @precondition(lambda self: self.held)
    @rule(number=index)
    def start(self, number: int) -> None:
        run = self._pick(self.held, number)
        self._both("start", run.id, run.fence)

    @precondition(lambda self: self.held)
    @rule(number=index, lines=amount)
    def write_logs(self, number: int, lines: int) -> None:
        run = self._pick(self.held, number)
        self._both("append_logs", run.id, run.fence, log_lines(*map(str, range(lines))))
        self._both("read_logs", run.id, after=lines - 1, limit=3)

    @precondition(lambda self: self.held)
    @rule(number=index, end=st.sampled_from(ENDS), gone=st.booleans())
    def finish(self, number: int, end: AttemptEnd, gone: bool) -> None:
        run = self.held.pop(number % len(self.held))
        pause = "gone" if gone and end is AttemptEnd.FAILED else ""
        logs = tuple(log_lines("end"))
        self._finish(a_completion(run, self._now(), end, logs=logs, pause_schedule=pause))
        self.finish_again(-1)

    @precondition(lambda self: self.held)
    @rule(number=index, seconds=st.integers(0, 8))
    def finish_with_retry(self, number: int, seconds: int) -> None:
        run = self.held.pop(number % len(self.held))
        self._finish(a_retry(run, self._now(), timedelta(seconds=seconds)))
        self.finish_again(-1)

    @precondition(lambda self: len(self.held) > 1)
    @rule()
    def finish_all(self) -> None:
        """One batch with valid, stale and repeated completions."""
        completions = [a_completion(run, self._now()) for run in self.held]
        self.held.clear()
        self._finish(*completions, completions[0])

    def _finish(self, *completions: Completion) -> None:
        finished = self._both("finish", completions)
        self.reached["accepted"] += len(finished.accepted)
        self.reached["fenced"] += len(finished.refused)
        runs = self._runs()
        for completion in completions:
            shown = (
                completion.run_id in runs and completion.attempt in runs[completion.run_id].attempts
            )
            self.sent.append(SentCompletion(completion, shown))

    # The response was lost.
    @precondition(lambda self: self.sent)
    @rule(number=index)
    def finish_again(self, number: int) -> None:
        sent = self._pick(self.sent, number)
        finished = self._both("finish", [sent.completion])
        pruned = sent.completion.run_id not in self._runs()
        assert bool(finished.accepted) == (sent.accepted and not pruned)
        self.reached["replayed"] += sent.accepted
        self.reached["stale again"] += not sent.accepted

    @precondition(lambda self: self.held)
    @rule(number=index)
    def release(self, number: int) -> None:
        run = self._pick(self.held, number)
        self._both("release", [(run.id, run.fence)])

    @precondition(lambda self: self.held)
    @rule(number=index, actions=st.permutations(STALE_ACTIONS), again=st.booleans())
    def stall_past_lease(self, number: int, actions: list[str], again: bool) -> None:
        """The holder stalls past its lease, another node takes over, and the first continues."""
        run = self._pick(self._owned() or self.held, number)
        self.held.remove(run)
        assert run.holder is not None
        self.clock.advance(LEASE)
        self.rescue()
        self.nodes.clear()
        self.join()
        taken = self._claim(self.nodes[0], 50)
        self.reached["taken over"] += any(each.id == run.id for each in taken)
        for action in actions:
            match action:
                case "beat":
                    assert not self._heartbeat(run.holder).alive
                case "claim":
                    assert self._both("claim", claim_request(run.holder, 9, CAPABILITIES)) == ()
                case "start":
                    self._both("start", run.id, run.fence)
                case "log":
                    self._both("append_logs", run.id, run.fence, log_lines("stale"))
                case "state":
                    kept = self._both("save_checkpoint", run.id, run.fence, STATES[0], '"stale"')
                    self.reached["state refused"] += not kept
                    self._both("get_checkpoint", STATES[0])
                case "release":
                    self._both("release", [(run.id, run.fence)])
                case "finish" if again:
                    self._finish(a_retry(run, self._now(), SECOND))
                case "finish":
                    self._finish(a_completion(run, self._now()))
                    self.finish_again(-1)

    @rule(times=st.integers(1, CRASH_LIMIT + 1))
    def poison(self, times: int) -> None:
        """Claimed runs crash their nodes several times in a row."""
        self.clock.advance(max(INTERVALS))
        self.fire(0, 10, 0)
        self.nodes.clear()
        for _ in range(times):
            self.made += 1
            victim = NodeId(f"victim-{self.made}")
            self._both("join", a_node(victim), LEASE)
            for run in self._both("claim", claim_request(victim, 5, CAPABILITIES)):
                self.held.append(run)
                if run.policy.on_lost is OnLost.STOP:
                    self._both("start", run.id, run.fence)
            self.clock.advance(LEASE)
            self.rescue()
        self.join()
