"""Retry delays and concurrency limits."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.model.policy import RETRY_AFTER_CAP, UNLIMITED, Backoff, Overlap, Policy
from tests.builders import HOUR, MINUTE, SECOND

EXPONENTIAL = Policy(backoff=Backoff.EXPONENTIAL, retry_backoff=5 * SECOND, backoff_cap=MINUTE)


def delay(policy: Policy, attempt: int = 1, retry_after: timedelta | None = None) -> timedelta:
    return policy.retry_delay(attempt, run_id="run", retry_after=retry_after)


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (Policy(), 1),
        (Policy(overlap=Overlap.QUEUE), 1),
        (Policy(overlap=Overlap.ALLOW), UNLIMITED),
        (Policy(burst_allowed=True), UNLIMITED),
        (Policy(overlap=Overlap.ALLOW, max_concurrent_runs=4), 4),
        (Policy(burst_allowed=True, max_concurrent_runs=4), 4),
        (Policy(max_concurrent_runs=9), 9),
    ],
)
def test_concurrency_limit_of_a_policy(policy: Policy, limit: int) -> None:
    assert policy.concurrency_limit == limit


def test_fixed_backoff_is_constant() -> None:
    assert {delay(Policy(), attempt) for attempt in range(1, 50)} == {5 * SECOND}


def test_exponential_backoff_doubles_up_to_its_cap() -> None:
    bases = [5, 10, 20, 40, 60, 60]
    for attempt, base in enumerate(bases, 1):
        wait = delay(EXPONENTIAL, attempt)
        assert base * SECOND <= wait < base * 1.1 * SECOND


def test_backoff_jitter_is_deterministic_per_run() -> None:
    waits = {
        EXPONENTIAL.retry_delay(1, run_id=str(number), retry_after=None) for number in range(50)
    }
    assert len(waits) > 40
    assert delay(EXPONENTIAL, 3) == delay(EXPONENTIAL, 3)


@given(
    attempt=st.integers(1, 10_000),
    base=st.timedeltas(timedelta(0), timedelta(days=3650)),
    cap=st.timedeltas(timedelta(0), timedelta(days=3650)),
)
def test_delays_stay_within_the_cap(attempt: int, base: timedelta, cap: timedelta) -> None:
    policy = Policy(backoff=Backoff.EXPONENTIAL, retry_backoff=base, backoff_cap=cap)
    assert timedelta(0) <= delay(policy, attempt) <= cap * 1.1 + SECOND


def test_retry_after_only_lengthens_the_delay() -> None:
    policy = Policy(retry_backoff=10 * SECOND)
    assert delay(policy, retry_after=SECOND) == 10 * SECOND
    assert delay(policy, retry_after=MINUTE) == MINUTE
    assert delay(policy, retry_after=timedelta(seconds=-5)) == 10 * SECOND
    assert delay(policy, retry_after=timedelta(days=10_000)) == RETRY_AFTER_CAP == HOUR
    slow = Policy(retry_backoff=2 * HOUR)
    assert delay(slow, retry_after=timedelta(days=10_000)) == 2 * HOUR
    assert delay(EXPONENTIAL, retry_after=30 * MINUTE) == 30 * MINUTE
