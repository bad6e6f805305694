"""Pause, resume, run, skip, move, reschedule, backfill."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.doors.rig import Rig

EVERY = {"kind": "every", "every": "PT1H", "anchor": "2030-01-15T00:00:00Z"}


# C8
async def test_pause_and_resume(any_rig: Rig) -> None:
    made = await any_rig.create(trigger=EVERY)
    path = f"/api/v1/schedules/{made['id']}"
    body = {"note": "holiday", "until": "2030-01-20T09:00:00", "timezone": "Asia/Bangkok"}
    paused = (await any_rig.client.post(f"{path}/pause", json=body)).json()
    assert paused["enabled"] is False
    assert paused["pause"] == {"note": "holiday", "until": "2030-01-20T02:00:00Z"}
    assert (paused["next_run_at"], paused["version"]) == (None, 2)
    again = await any_rig.client.post(f"{path}/pause", json=body)
    assert again.json() == paused
    any_rig.clock.advance(timedelta(hours=5, minutes=1))
    resumed = (await any_rig.client.post(f"{path}/resume")).json()
    assert (resumed["enabled"], resumed["pause"]) == (True, None)
    assert resumed["next_run_at"] == "2030-01-15T15:00:00Z"
    runs = await any_rig.client.get(f"{path}/runs")
    assert runs.json()["items"] == []


async def test_pause_takes_reason_as_another_word_for_note(rig: Rig) -> None:
    made = await rig.create()
    path = f"/api/v1/schedules/{made['id']}/pause"
    assert (await rig.client.post(path, json={"reason": "x"})).json()["pause"]["note"] == "x"
    both = await rig.client.post(path, json={"reason": "x", "note": "y"})
    assert both.status_code == 422


# C7
async def test_run_now_changes_nothing_about_the_schedule(any_rig: Rig) -> None:
    made = await any_rig.create(trigger={"kind": "once", "at": "2030-01-16T00:00:00Z"})
    path = f"/api/v1/schedules/{made['id']}"
    answer = await any_rig.client.post(f"{path}/run")
    run = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/runs/{run['id']}"
    assert (run["origin"], run["slot"], run["status"], run["attempt"]) == (
        "manual",
        None,
        "queued",
        0,
    )
    assert (await any_rig.client.get(path)).json() == made
    await any_rig.client.post(f"{path}/pause")
    second = (await any_rig.client.post(f"{path}/run", json={})).json()
    assert second["blocked"] is True
    beside = (await any_rig.client.post(f"{path}/run", json={"beside_others": True})).json()
    assert beside["blocked"] is False


async def test_skip(any_rig: Rig) -> None:
    made = await any_rig.create(trigger=EVERY)
    path = f"/api/v1/schedules/{made['id']}"
    skipped = (await any_rig.client.post(f"{path}/skip", json={"reason": "not today"})).json()
    assert skipped["next_slot"] == "2030-01-15T11:00:00Z"
    runs = (await any_rig.client.get(f"{path}/runs")).json()["items"]
    assert [(run["slot"], run["status"], run["reason"]) for run in runs] == [
        ("2030-01-15T10:00:00Z", "skipped", "skipped_by_hand")
    ]


async def test_move_keeps_the_slot(any_rig: Rig) -> None:
    made = await any_rig.create(trigger=EVERY)
    path = f"/api/v1/schedules/{made['id']}/move"
    moved = (await any_rig.client.post(path, json={"to": "2030-01-15T10:30:00Z"})).json()
    assert moved["next_slot"] == "2030-01-15T10:00:00Z"
    assert moved["next_run_at"] == "2030-01-15T10:30:00Z"
    beyond = (await any_rig.client.post(path, json={"to": "2030-01-15T11:30:00Z"})).json()
    assert beyond["next_slot"] == beyond["next_run_at"] == "2030-01-15T11:00:00Z"
    (run,) = (await any_rig.client.get(f"/api/v1/schedules/{made['id']}/runs")).json()["items"]
    assert (run["slot"], run["planned_at"]) == ("2030-01-15T10:00:00Z", "2030-01-15T11:30:00Z")


@pytest.mark.parametrize(
    ("body", "slot"),
    [
        ({"to": "2030-01-15T12:34:56Z"}, "2030-01-15T12:34:56Z"),
        ({"to": "2030-01-15T19:34:56+07:00[Asia/Bangkok]"}, "2030-01-15T12:34:56Z"),
        ({"to": "2030-01-15T19:34:56", "timezone": "Asia/Bangkok"}, "2030-01-15T12:34:56Z"),
        ({"to": "2020-01-15T19:34:56Z"}, "2030-01-15T09:00:00Z"),
    ],
)
async def test_reschedule(any_rig: Rig, body: dict[str, str], slot: str) -> None:
    made = await any_rig.create(trigger=EVERY)
    path = f"/api/v1/schedules/{made['id']}/reschedule"
    moved = (await any_rig.client.post(path, json=body)).json()
    assert (moved["next_slot"], moved["next_run_at"]) == (slot, slot)


@pytest.mark.parametrize("action", ["move", "reschedule"])
async def test_a_time_without_a_zone_is_refused_with_a_hint(rig: Rig, action: str) -> None:
    made = await rig.create(trigger=EVERY)
    answer = await rig.client.post(
        f"/api/v1/schedules/{made['id']}/{action}", json={"to": "2030-01-15T12:00:00"}
    )
    [error] = answer.json()["errors"]
    assert answer.status_code == 422
    assert error["pointer"] == "/to"
    assert "offset" in error["hint"]


async def test_reschedule_of_a_paused_schedule_is_a_conflict(rig: Rig) -> None:
    made = await rig.create(enabled=False)
    path = f"/api/v1/schedules/{made['id']}"
    for action, body in (("reschedule", {"to": "2030-01-15T12:00:00Z"}), ("skip", {})):
        answer = await rig.client.post(f"{path}/{action}", json=body)
        assert answer.status_code == 409


async def test_backfill(any_rig: Rig) -> None:
    made = await any_rig.create(trigger=EVERY)
    path = f"/api/v1/schedules/{made['id']}/backfill"
    slots = ["2030-01-15T03:00:00Z", "2030-01-15T04:00:00Z", "2030-01-15T05:00:00Z"]
    body = {"from": slots[0], "to": "2030-01-15T12:00:00", "timezone": "Asia/Bangkok"}
    before = await any_rig.snapshot()
    dry = await any_rig.client.post(path, json=body | {"dry_run": True})
    assert dry.json() == {"slots": slots, "runs": []}
    assert await any_rig.snapshot() == before
    made_up = (await any_rig.client.post(path, json=body)).json()
    assert made_up["slots"] == slots
    assert [(run["slot"], run["origin"]) for run in made_up["runs"]] == [
        (slot, "backfill") for slot in slots
    ]
    assert (await any_rig.client.post(path, json=body)).json() == {"slots": [], "runs": []}


async def test_a_backfill_that_ends_before_it_begins(rig: Rig) -> None:
    made = await rig.create(trigger=EVERY)
    answer = await rig.client.post(
        f"/api/v1/schedules/{made['id']}/backfill",
        json={"from": "2030-01-15T03:00:00Z", "to": "2030-01-15T02:00:00Z"},
    )
    assert answer.status_code == 422


@pytest.mark.parametrize(
    "action", ["pause", "resume", "run", "skip", "move", "reschedule", "backfill"]
)
async def test_unknown_schedules_are_404(rig: Rig, action: str) -> None:
    moments = {"move": ("to",), "reschedule": ("to",), "backfill": ("from", "to")}
    body = dict.fromkeys(moments.get(action, ()), "2030-01-15T12:00:00Z")
    answer = await rig.client.post(f"/api/v1/schedules/nope/{action}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("action", ["pause", "resume", "run", "skip"])
async def test_an_unknown_field_in_an_action_is_refused(rig: Rig, action: str) -> None:
    made = await rig.create()
    before = await rig.snapshot()
    answer = await rig.client.post(
        f"/api/v1/schedules/{made['id']}/{action}", json={"unti": "2031-01-01T00:00:00Z"}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/unti"
    assert await rig.snapshot() == before
