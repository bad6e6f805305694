"""Every kind of trigger is stored as it is, with its seed and the contents of its calendars."""

from __future__ import annotations

from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import plan_after
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.triggers import AnyOf, BusinessDay, Cron, Every, Once, RRule, Sun
from chimes.triggers.calendars import parse_named_calendar
from tests.builders import a_schedule
from tests.store_contract.scenes import joined

CALENDAR = parse_named_calendar(
    {"dates": ["2030-01-05"], "ranges": [["2030-02-01", "2030-02-03"]], "workdays": ["2030-01-06"]}
)


async def test_triggers_are_stored_exactly(store: Store, clock: SettableClock) -> None:
    await joined(store)
    now = clock.now()
    exclude = {"calendar": "own"}
    rule = "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU"
    triggers = (
        Cron("H H(0-5) * * *", timezone="Asia/Bangkok", seed="s", exclude=exclude, jitter="5m"),
        Every("1h", exclude=[exclude, {"ranges": [["2030-03-01", "2030-03-02"]]}], spread="10m"),
        Once("2040-01-01T00:00:00Z", jitter="1m"),
        RRule(
            rule, dtstart="2030-01-01T09:00:00", timezone="Europe/Berlin", exdates=["2030-01-15"]
        ),
        BusinessDay(-1, at="17:00", calendar="own", timezone="Europe/Berlin"),
        Sun("sunset", latitude=13.75, longitude=100.5, offset="-15m", exclude=exclude),
        AnyOf(
            [Cron("H * * * *", seed="s"), Every("7h")],
            except_=[Once("2030-01-01T00:00:00Z")],
            exclude=exclude,
            max_runs=5,
        ),
    )
    for number, given in enumerate(triggers):
        trigger = given.with_calendars({"own": CALENDAR})
        schedule = plan_after(
            a_schedule(
                id=ScheduleId(f"kind-{number}"), trigger=trigger, created_at=now, updated_at=now
            ),
            now,
        )
        await store.add_schedule(schedule)
        found = await store.get_schedule(schedule.id)
        assert found is not None
        assert found.trigger == trigger
        assert found.trigger.to_dict() == trigger.to_dict()
        assert (found.next_slot, found.next_run_at) == (schedule.next_slot, schedule.next_run_at)
    page = await store.list_schedules(ScheduleQuery(limit=None))
    assert {each.trigger.kind for each in page.items} >= {each.kind for each in triggers}
