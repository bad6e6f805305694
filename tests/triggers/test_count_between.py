"""`count_between` equals iterating over the fires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from chimes.triggers import Cron, Every, Once, Trigger
from tests.examples import examples

ZONES = [
    *("UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo"),
    *("Africa/Casablanca", "Asia/Tehran", "Pacific/Apia", "Antarctica/Troll", "America/Santiago"),
]
EXPRESSIONS = [
    *("* * * * *", "*/15 * * * *", "30 2 * * *", "*/20 1-3 * * *", "0 0 1 * *", "0 9 * * 1-5"),
    *("0 12 L * *", "15 10 * * 6#3", "0 0 29 2 *", "0 0 31 2 *", "*/10 */2 * * * *"),
    *("0 0/30 1-3 ? * MON-FRI *", "0 0 0 LW * ?", "7,17,44 23 */3 * *"),
]
EXCLUDE = [
    [],
    [{"dates": ["2026-03-08", "2026-11-01"]}],
    [{"weekly": [{"days": ["SAT", "SUN"]}], "on_excluded": "next"}],
    [{"weekly": [{"days": ["MON"], "from": "01:30", "to": "09:00"}]}],
]


def moments(low: datetime, high: datetime) -> st.SearchStrategy[datetime]:
    micros = (high - low) // timedelta(microseconds=1)
    return st.integers(0, micros).map(lambda step: low + timedelta(microseconds=step))


# Around the clock changes of 2026 and of Apia's missing day.
STARTS = st.one_of(
    moments(datetime(2026, 2, 25, tzinfo=UTC), datetime(2026, 4, 12, tzinfo=UTC)),
    moments(datetime(2026, 9, 20, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC)),
    moments(datetime(2011, 12, 20, tzinfo=UTC), datetime(2012, 1, 5, tzinfo=UTC)),
)


def count_by_iteration(trigger: Trigger, first: datetime, last: datetime) -> int:
    found, at = 0, trigger.next_after(first - timedelta(microseconds=1))
    while at is not None and at <= last:
        found, at = found + 1, trigger.next_after(at)
    return found


@examples(300)
@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.sampled_from(["chimes", "vixie", "robfig"]),
    st.sampled_from(EXCLUDE),
    STARTS,
    st.integers(0, 5 * 86400 * 10**6),
)
def test_count_of_cron_fires(
    expression: str, zone: str, dst: str, exclude: list[object], start: datetime, span: int
) -> None:
    trigger = Cron(expression, timezone=zone, dst=dst, exclude=exclude)
    first = start
    last = first + timedelta(microseconds=span)
    assert trigger.count_between(first, last) == count_by_iteration(trigger, first, last)


@examples(150)
@given(
    st.sampled_from(["1s", "7m", "90m", "25h"]),
    st.sampled_from([None, "2026-03-01T00:00:00.5Z", "2027-01-01T00:00:00Z"]),
    st.sampled_from(EXCLUDE),
    st.sampled_from([None, "2026-03-10T00:00:00Z"]),
    STARTS,
    st.integers(0, 7200 * 10**6),
)
def test_count_of_interval_fires(
    every: str,
    anchor: str | None,
    exclude: list[object],
    start_at: str | None,
    start: datetime,
    span: int,
) -> None:
    trigger = Every(every, anchor=anchor, exclude=exclude, start_at=start_at)
    first = start
    last = first + timedelta(microseconds=span)
    assert trigger.count_between(first, last) == count_by_iteration(trigger, first, last)


def test_count_respects_bounds() -> None:
    day = datetime(2026, 5, 1, tzinfo=UTC)
    hour = timedelta(hours=1)
    bounded = Cron("0 * * * *", start_at=day + hour, end_at=day + 3 * hour)
    assert bounded.count_between(day, day + 9 * hour) == 3
    assert bounded.count_between(day + 9 * hour, day) == 0
    once = Once(day)
    assert once.count_between(day, day) == 1
    assert once.count_between(day + hour, day + 2 * hour) == 0


def test_a_long_gap_is_counted_exactly() -> None:
    # thirty days of every second
    start = datetime(2026, 3, 1, tzinfo=UTC)
    every_second = Cron("* * * * * *", timezone="America/New_York")
    assert every_second.count_between(start, start + timedelta(days=30)) == 30 * 86400 + 1
