"""Effects of clock changes on triggers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from chimes.triggers import Cron, Every, Once, Trigger
from chimes.triggers.clock_changes import ClockChange, Effect, affected_fire, clock_changes

HOUR = timedelta(hours=1)
YEAR = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
NEW_YORK = "America/New_York"
FORWARD, BACK = clock_changes(NEW_YORK, *YEAR)


@pytest.mark.parametrize(
    ("zone", "found"),
    [
        ("UTC", []),
        ("Asia/Bangkok", []),
        (NEW_YORK, [("2026-03-08T07:00", HOUR), ("2026-11-01T06:00", -HOUR)]),
        ("Australia/Lord_Howe", [("2026-04-04T15:00", -HOUR / 2), ("2026-10-03T15:30", HOUR / 2)]),
    ],
)
def test_clock_changes_of_a_year(zone: str, found: list[tuple[str, timedelta]]) -> None:
    expected = [(datetime.fromisoformat(f"{at}:00+00:00"), by) for at, by in found]
    assert [(each.at, each.by) for each in clock_changes(zone, *YEAR)] == expected


def test_clock_changes_include_the_end_but_not_the_start() -> None:
    second = timedelta(seconds=1)
    assert clock_changes(NEW_YORK, FORWARD.at - second, FORWARD.at) == (FORWARD,)
    assert clock_changes(NEW_YORK, FORWARD.at - second, FORWARD.at - second) == ()
    assert clock_changes(NEW_YORK, FORWARD.at, BACK.at - second) == ()


@pytest.mark.parametrize(
    ("trigger", "change", "effect", "meant", "fires"),
    [
        (Cron("30 2 * * *", timezone=NEW_YORK), FORWARD, Effect.MOVED, "02:30", "03:00"),
        (Cron("CRON_TZ=America/New_York 30 2 * * *"), FORWARD, Effect.MOVED, "02:30", "03:00"),
        (Once("2026-03-08T02:15:00", timezone=NEW_YORK), FORWARD, Effect.MOVED, "02:15", "03:00"),
        (Cron("30 1 * * *", timezone=NEW_YORK), BACK, Effect.ONCE, "01:30", "01:30"),
        (Cron("*/15 1 * * *", timezone=NEW_YORK), BACK, Effect.TWICE, "01:00", "01:00"),
    ],
)
def test_fire_in_a_clock_change_is_moved_or_repeated(
    trigger: Trigger, change: ClockChange, effect: Effect, meant: str, fires: str
) -> None:
    found = affected_fire(trigger, change)
    assert found is not None
    assert (found.effect, f"{found.meant:%H:%M}", f"{found.fires:%H:%M}") == (effect, meant, fires)
    # The trigger itself computes the same.
    assert trigger.next_after(found.fires - timedelta(microseconds=1)) == found.fires


@pytest.mark.parametrize(
    "trigger",
    [
        Cron("0 9 * * *", timezone=NEW_YORK),
        Cron("30 2 * * *", timezone="UTC"),
        Cron("30 2 * * MON", timezone=NEW_YORK),
        # hourly fires are neither moved nor repeated
        Cron("30 * * * *", timezone=NEW_YORK),
        Cron("@every 1h", timezone=NEW_YORK),
        Every("1h"),
        Once("2026-03-08T02:30:00Z"),
        Once("2026-03-08T07:30:00Z", timezone=NEW_YORK),
        Once("2026-03-08T09:00:00", timezone=NEW_YORK),
    ],
)
def test_other_fires_are_not_affected(trigger: Trigger) -> None:
    assert affected_fire(trigger, FORWARD) is None
