"""The bytes of an owner's results are limited, on all nodes together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from chimes.config import Settings
from chimes.engine.recorder import FREE_RESULT, result_limit
from chimes.errors import StoreUnavailable
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Outcome, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.targets.base import Call
from tests.builders import ALICE, BOB
from tests.engine.rig import FAILURE, SUCCESS, Faults, Rig

LIMIT = 200_000


def _returning(**result: Any) -> Any:
    async def behaviour(call: Call) -> Outcome:
        return Outcome(end=SUCCESS.end, result=result)

    return behaviour


async def _runs(rig: Rig, count: int, owner: Owner) -> list[Run]:
    """Ended runs of the owner, one after the other."""
    found = []
    for _ in range(count):
        schedule: Schedule = await rig.due_now(owner=owner)
        found.append((await rig.ended(schedule))[0])
    return found


def _stored(runs: list[Run]) -> int:
    return sum(len(str(run.result)) for run in runs)


async def test_results_beyond_the_limit_are_truncated(rig: Rig) -> None:
    rig.runner.script = [_returning(status=200, body="x" * 30_000, truncated=False)]
    await rig.engine(max_result_bytes_per_owner=LIMIT)
    runs = await _runs(rig, 6, ALICE)
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    whole = [run for run in runs if run.result and run.result["truncated"] is False]
    # Half of the limit is available at once.
    assert len(whole) == 3
    assert _stored(runs) < LIMIT
    short = runs[-1].result or {}
    assert (short["status"], short["truncated"]) == (200, True)
    assert 0 < len(str(short["body"])) <= FREE_RESULT
    (line,) = await rig.store.read_logs(runs[-1].id, after=0, limit=10)
    assert line.level == "warning"
    assert "max_result_bytes_per_owner" in line.message
    # Other owners, and small results, are not affected.
    (other,) = await _runs(rig, 1, BOB)
    assert (other.result or {})["truncated"] is False
    rig.runner.script = [_returning(status=200, body="x" * 500, truncated=False)]
    (small,) = await _runs(rig, 1, ALICE)
    assert (small.result or {})["truncated"] is False


async def test_return_value_beyond_the_limit_fails_the_run(rig: Rig) -> None:
    """A shortened value would be another value."""
    rig.runner.script = [_returning(value=["x" * 10_000] * 6)]
    await rig.engine(max_result_bytes_per_owner=LIMIT)
    runs = await _runs(rig, 2, ALICE)
    assert [run.status for run in runs] == [RunStatus.SUCCEEDED, RunStatus.FAILED]
    assert (runs[1].reason, runs[1].result) == ("result_limit", None)
    assert runs[1].attempts[-1].end is AttemptEnd.FAILED
    assert "user:alice" in runs[1].error
    assert "max_result_bytes_per_owner" in runs[1].error


async def test_nodes_share_the_limit(rig: Rig) -> None:
    rig.runner.script = [_returning(status=200, body="x" * 30_000, truncated=False)]
    for _ in range(2):
        engine = await rig.engine(max_result_bytes_per_owner=LIMIT)
        runs = await _runs(rig, 3, ALICE)
        if engine is rig.engines[0]:
            await engine.drain(rig.settings.shutdown_grace)
            first = runs
    kept = [run for run in first + runs if run.result and not run.result["truncated"]]
    assert len(kept) == 3


async def test_repeated_completion_counts_once(rig: Rig) -> None:
    faults = Faults(rig.store)
    rig.runner.script = [_returning(status=200, body="x" * 30_000, truncated=False)]
    await rig.engine(store=faults.store, max_result_bytes_per_owner=LIMIT)
    for _ in range(3):
        faults.answer_lost["finish"] = StoreUnavailable("lost")
        (run,) = await _runs(rig, 1, ALICE)
        assert (run.status, (run.result or {})["truncated"]) == (RunStatus.SUCCEEDED, False)


async def test_results_are_recorded_although_they_cannot_be_counted(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.failing["take_tokens"] = RuntimeError("a bug")
    rig.runner.script = [_returning(status=200, body="x" * 30_000, truncated=False)]
    await rig.engine(store=faults.store, max_result_bytes_per_owner=LIMIT)
    (run,) = await _runs(rig, 1, ALICE)
    assert (run.status, (run.result or {})["truncated"]) == (RunStatus.SUCCEEDED, False)


async def test_results_of_attempts_that_are_retried_do_not_count(rig: Rig) -> None:
    large = {"status": 500, "body": "x" * 30_000, "truncated": False}
    failing = Outcome(end=FAILURE.end, retryable=True, error="no", code="http_500", result=large)
    rig.runner.script = [failing, failing, failing, _returning(**large)]
    await rig.engine(max_result_bytes_per_owner=LIMIT)
    policy = Policy(max_retries=3, retry_backoff=timedelta(0))
    schedule = await rig.due_now(owner=ALICE, policy=policy)
    (run,) = await rig.ended(schedule)
    assert (run.result or {})["truncated"] is False


def test_default_limit() -> None:
    """A GiB for owners; the operator's own runs are not limited unless the setting says so."""
    default, none = Settings(), Settings(max_result_bytes_per_owner=0)
    explicit = Settings(max_result_bytes_per_owner=LIMIT)
    assert [result_limit(each, ALICE) for each in (default, none, explicit)] == [2**30, 0, LIMIT]
    assert [result_limit(each, SYSTEM_OWNER) for each in (default, none, explicit)] == [
        0,
        0,
        LIMIT,
    ]
