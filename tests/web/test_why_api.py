"""`GET /schedules/{id}/why`: what became of each slot, with the same words as the fire log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from chimes.model import replace
from chimes.model.planning import plan
from chimes.model.run import RunStatus
from tests.builders import a_completion, a_node, claim_request
from tests.web.rig import Rig, serving

HOURLY = {"kind": "cron", "expression": "0 * * * *", "timezone": "Asia/Bangkok"}
#: The clock of the rig begins at 2030-01-15T09:00:00Z, which is 16:00 in Bangkok.
START = datetime(2030, 1, 15, 9, tzinfo=UTC)


async def why(rig: Rig, schedule: dict[str, Any], **query: str) -> Any:
    answer = await rig.client.get(f"/api/v1/schedules/{schedule['id']}/why", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_one_answer_for_every_slot_of_a_day() -> None:
    """10:00 runs, 11:00 overlaps, 12:00 and 13:00 are missed, 14:00 is paused, 15:00 is skipped by
    maintenance, 16:00 waits."""
    async with serving() as rig:
        made = await rig.create(trigger=HOURLY, policy={"misfire": "skip"})
        path = f"/api/v1/schedules/{made['id']}"
        await rig.store.join(a_node(), timedelta(days=1))

        async def at(hour: float) -> None:
            rig.clock.set(START + timedelta(hours=hour - 9))
            await rig.store.fire_due(plan, limit=10)

        await at(10)
        (run,) = await rig.store.claim(claim_request())
        await at(11)
        await rig.store.finish([a_completion(run, rig.clock.now(), status=RunStatus.SUCCEEDED)])
        await at(13.5)
        await rig.client.post(f"{path}/pause", json={"reason": "stocktaking"})
        await at(14.5)
        await rig.client.post(f"{path}/resume")
        await rig.client.post("/api/v1/maintenance", json={"reason": "new disk"})
        await at(15)
        assert (await rig.client.delete("/api/v1/maintenance")).status_code == 204
        await at(15.5)
        rig.clock.set(START + timedelta(hours=7, minutes=1))

        found = await why(rig, made, date="2030-01-15")
        # The day in Bangkok ends at 17:00 UTC.
        hours = {datetime.fromisoformat(each["slot"]).hour: each for each in found}
        assert list(hours) == [17, 18, 19, 20, 21, 22, 23, *range(17)]
        seen = {hour: (each["outcome"], each["reason"]) for hour, each in hours.items()}
        assert seen[8] == ("not_due", "not_created")
        assert [seen[hour] for hour in range(10, 17)] == [
            ("ran", "succeeded"),
            ("skipped", "overlap"),
            ("missed", "misfire"),
            ("missed", "misfire"),
            ("paused", "paused"),
            ("skipped", "maintenance"),
            ("pending", "not_fired"),
        ]
        assert hours[10]["run_id"] == run.id
        assert hours[10]["message"] == "Ran and succeeded."
        assert hours[12]["run_id"] == hours[13]["run_id"] is not None
        assert "2 runs missed: no node was running" in hours[13]["message"]
        assert "stocktaking" in hours[14]["message"]
        assert "2030-01-15T20:30:00+07:00" in hours[14]["message"]
        assert hours[15]["message"] == "Skipped: maintenance was on."
        for hour in range(10, 17):
            assert await why(rig, made, at=hours[hour]["slot"]) == hours[hour]
        # The most recent slot that did not run.
        assert await why(rig, made) == hours[16]
        await at(16.2)
        assert ((await why(rig, made))["slot"], (await why(rig, made))["outcome"]) == (
            hours[16]["slot"],
            "missed",
        )
        in_thai = await rig.client.get(f"{path}/why", params={"lang": "th"})
        assert in_thai.status_code == 422


async def test_times_in_the_zone_of_the_schedule() -> None:
    async with serving() as rig:
        made = await rig.create()
        assert (await why(rig, made, at="2030-01-16T09:00"))["outcome"] == "pending"
        planned = await why(rig, made, at="2030-01-16T09:00:00+07:00")
        assert (planned["slot"], planned["reason"]) == ("2030-01-16T02:00:00Z", "planned")
        other = await why(rig, made, at="2030-01-16 09:30")
        assert (other["outcome"], other["reason"]) == ("not_due", "no_slot")
        assert "2030-01-16T09:00:00+07:00 and 2030-01-17T09:00:00+07:00" in other["message"]


async def test_the_trigger_that_was_current_counts() -> None:
    async with serving() as rig:
        made = await rig.create(trigger=HOURLY)
        rig.clock.set(START + timedelta(hours=1, minutes=1))
        await rig.store.fire_due(plan, limit=10)
        trigger = {"kind": "cron", "expression": "30 * * * *", "timezone": "UTC"}
        changed = await rig.client.patch(
            f"/api/v1/schedules/{made['id']}", json={"trigger": trigger}
        )
        assert changed.status_code == 200
        rig.clock.set(START + timedelta(hours=2, minutes=10))
        found = await why(rig, made, date="2030-01-15")
        slots = [each["slot"][11:16] for each in found if each["slot"] >= "2030-01-15T09:00"]
        assert slots[:4] == ["09:00", "10:00", "10:30", "11:30"]
        assert (await why(rig, made, at="2030-01-15T09:30:00Z"))["outcome"] == "not_due"


async def test_a_reschedule_explains_only_slots_that_it_passed() -> None:
    async with serving() as rig:
        made = await rig.create(trigger=HOURLY)
        rig.clock.set(START + timedelta(minutes=10))
        path = f"/api/v1/schedules/{made['id']}/reschedule"
        for to in ("2030-01-15T20:30:00Z", "2030-01-15T11:30:00Z"):
            assert (await rig.client.post(path, json={"to": to})).status_code == 200
        rig.clock.set(START + timedelta(hours=2, minutes=30))
        await rig.store.fire_due(plan, limit=10)
        # Something else moves the cursor, so that the slot at 12:00 leaves no run.
        later = START + timedelta(hours=5)
        await rig.store.change_schedule(
            made["id"], lambda s, now: replace(s, next_slot=later, next_run_at=later)
        )
        rig.clock.set(START + timedelta(hours=4))
        for slot, reason in (("10", "rescheduled"), ("11", "rescheduled"), ("12", "no_entry")):
            found = await why(rig, made, at=f"2030-01-15T{slot}:00:00Z")
            assert (found["outcome"], found["reason"]) == ("not_due", reason), slot
        ran = await why(rig, made, at="2030-01-15T11:30:00Z")
        assert ran["run_id"] is not None


async def test_bad_questions() -> None:
    async with serving() as rig:
        made = await rig.create()
        often = await rig.create(name="often", trigger={"kind": "every", "every": "1s"})

        async def refused(row: tuple[dict[str, Any], dict[str, str], str]) -> None:
            schedule, query, field = row
            answer = await rig.client.get(f"/api/v1/schedules/{schedule['id']}/why", params=query)
            assert answer.status_code == 422, answer.text
            assert [each["parameter"] for each in answer.json()["errors"]] == [field]

        rows = [
            (made, {"at": "2030-01-16T09:00:00Z", "date": "2030-01-16"}, "date"),
            (made, {"at": "noon"}, "at"),
            (made, {"date": "2030-02-30"}, "date"),
            (made, {"date": "yesterday"}, "date"),
            (made, {"date": "0001-01-01"}, "date"),
            (made, {"date": "9999-12-31"}, "date"),
            (often, {"date": "2030-01-16"}, "date"),
        ]
        for row in rows:
            await refused(row)
        assert (await rig.client.get("/api/v1/schedules/nothing/why")).status_code == 404


async def test_runs_of_events_are_explained_with_their_cause() -> None:
    """One ran, one waits for it, one was dropped by a pause; before there was none."""
    async with serving() as rig:
        made = await rig.create(trigger={"kind": "webhook"})
        path = f"/api/v1/schedules/{made['id']}"
        none = await why(rig, made)
        assert (none["outcome"], none["reason"], none["run_id"]) == ("not_due", "no_event", None)
        assert none["message"] == "The schedule starts on an event; none has come yet."
        await rig.store.join(a_node(), timedelta(days=1))

        async def send(hour: float, delivery: str) -> str | None:
            rig.clock.set(START + timedelta(hours=hour - 9))
            sent = {"webhook-id": delivery, "x-github-event": "push"}
            answer = await rig.client.post(made["hook_url"], headers=sent)
            assert answer.status_code == 202
            run_id: str | None = answer.json()["run_id"]
            return run_id

        first = await send(10, "d-1")
        (run,) = await rig.store.claim(claim_request())
        await rig.store.finish([a_completion(run, rig.clock.now(), status=RunStatus.SUCCEEDED)])
        latest = await why(rig, made)
        assert latest["run_id"] == first
        assert (latest["outcome"], latest["reason"]) == ("ran", "succeeded")
        words = "Started by a webhook: push, delivery d-1. Ran and succeeded."
        assert latest["message"] == words
        second, third = await send(11, "d-2"), await send(12, "d-3")
        await rig.client.post(f"{path}/pause", json={"reason": "stocktaking"})
        assert await send(13, "d-4") is None
        found = await why(rig, made, date="2030-01-15")
        assert [(each["run_id"], each["outcome"]) for each in found[:3]] == [
            (first, "ran"),
            (second, "pending"),
            (third, "pending"),
        ]
        assert [each["message"] for each in found] == [
            words,
            "Started by a webhook: push, delivery d-2. "
            "Queued; waits for a node that can execute it.",
            "Started by a webhook: push, delivery d-3. Due; waits for the previous run.",
            "Started by a webhook: push, delivery d-4. Skipped: the schedule was paused.",
        ]
        assert found[0]["slot"] == "2030-01-15T10:00:00Z"
        for each in found:
            assert await why(rig, made, at=each["slot"]) == each
        # The most recent one that was not executed.
        assert await why(rig, made) == found[-1]
        between = await why(rig, made, at="2030-01-15T10:30:00Z")
        assert (between["outcome"], between["reason"]) == ("not_due", "no_event")
        assert between["message"].endswith("none started a run at that time.")
