"""The Softnix API: formats, defaults and messages."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.listing import Page, ScheduleQuery
from chimes.model.planning import plan
from chimes.model.policy import Backoff, Misfire, Overlap
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget
from chimes.web.compat.softnix import routes
from tests.builders import NOW, a_run
from tests.tables import each_row
from tests.web.rig import Rig

#: 2030-01-15 is a Tuesday; the clock is at 09:00 UTC, 16:00 in Bangkok.
IN_AN_HOUR = "2030-01-15T17:00:00"
DAILY = {"task": "news", "schedule_type": "cron", "cron_expr": "0 9 * * *"}
FIELDS = {
    *("id", "owner_type", "owner_id", "task_prompt", "task", "schedule_type", "run_at"),
    *("cron_expr", "timezone", "enabled", "next_run_at", "delivery_channel", "delivery_target"),
    *("created_at", "updated_at", "last_dispatched_at", "deleted_at"),
}


async def create(rig: Rig, **given: Any) -> dict[str, Any]:
    answer = await rig.client.post("/schedules", json={"task": "news", **given})
    assert answer.status_code == 200, answer.text
    item: dict[str, Any] = answer.json()["item"]
    return item


async def get_item(rig: Rig, schedule_id: str) -> dict[str, Any]:
    answer = await rig.client.get(f"/schedules/{schedule_id}")
    assert answer.status_code == 200, answer.text
    item: dict[str, Any] = answer.json()["item"]
    return item


async def fire(rig: Rig) -> None:
    await rig.store.fire_due(plan, limit=100)


async def test_create_returns_the_whole_item_with_defaults(on_any_store: Rig) -> None:
    item = await create(on_any_store, run_at=IN_AN_HOUR)
    assert set(item) == FIELDS
    assert re.fullmatch("[0-9a-f]{12}", item["id"])
    assert item | {"id": ""} == {
        "id": "",
        "owner_type": "system",
        "owner_id": "default",
        "task_prompt": "news",
        "task": "news",
        "schedule_type": "one_time",
        "run_at": "2030-01-15T10:00:00+00:00",
        "cron_expr": None,
        "timezone": "Asia/Bangkok",
        "enabled": True,
        "next_run_at": "2030-01-15T10:00:00+00:00",
        "delivery_channel": "web_ui",
        "delivery_target": None,
        "created_at": "2030-01-15T09:00:00+00:00",
        "updated_at": "2030-01-15T09:00:00+00:00",
        "last_dispatched_at": None,
        "deleted_at": None,
    }
    assert await get_item(on_any_store, item["id"]) == item


async def test_policy_of_created_prompts(softnix: Rig) -> None:
    item = await create(
        softnix, task="sum up", **{k: DAILY[k] for k in ("schedule_type", "cron_expr")}
    )
    kept = await softnix.store.get_schedule(item["id"])
    assert kept is not None
    assert kept.target == AgentTarget(prompt="sum up")
    assert (kept.namespace, kept.name) == ("softnix", "sum up")
    policy = kept.policy
    assert (policy.misfire, policy.overlap) == (Misfire.ONE, Overlap.SKIP)
    assert (policy.max_retries, policy.retry_backoff) == (2, timedelta(seconds=5))
    assert policy.backoff is Backoff.EXPONENTIAL
    assert policy.delivery == (Recipient(channel=Channel.INBOX),)


@pytest.mark.parametrize(
    ("given", "run_at"),
    [
        ({"run_at": "2030-02-10T09:00:00"}, "2030-02-10T02:00:00+00:00"),
        ({"run_at": "2030-02-10 09:00"}, "2030-02-10T02:00:00+00:00"),
        ({"run_at": "2030-02-10T09:00:00", "timezone": "Europe/Berlin"},
         "2030-02-10T08:00:00+00:00"),
        ({"run_at": "2030-02-10T09:00:00Z"}, "2030-02-10T09:00:00+00:00"),
        ({"run_at": "2030-02-10T09:00:00+02:00"}, "2030-02-10T07:00:00+00:00"),
    ],
)  # fmt: skip
async def test_run_at_is_a_wall_time_unless_it_has_an_offset(
    softnix: Rig, given: dict[str, str], run_at: str
) -> None:
    item = await create(softnix, **given)
    assert (item["run_at"], item["next_run_at"]) == (run_at, run_at)
    assert item["timezone"] == given.get("timezone", "Asia/Bangkok")


@each_row(
    ("given", "detail"),
    [
        ({"schedule_type": "weekly"}, "schedule_type must be one_time or cron"),
        ({"run_at": IN_AN_HOUR, "timezone": "Mars/Base"}, "invalid timezone"),
        ({"run_at": IN_AN_HOUR, "timezone": "+07:00"}, "invalid timezone"),
        ({}, "run_at is required for one_time schedule"),
        ({"run_at": ""}, "run_at is required for one_time schedule"),
        ({"run_at": "tomorrow"}, "invalid run_at datetime"),
        ({"run_at": "2030-02-30T09:00:00"}, "invalid run_at datetime"),
        ({"schedule_type": "cron"}, "cron_expr is required for cron schedule"),
        ({"run_at": IN_AN_HOUR, "task": " "}, "task is required"),
        ({"run_at": IN_AN_HOUR, "task": 5}, "task must be text"),
        ({"run_at": IN_AN_HOUR, "task_prompt": "other"},
         "task and task_prompt have the same meaning; send one of them"),
        ({"run_at": IN_AN_HOUR, "enabled": "yes"}, "enabled must be true or false"),
        ({"run_at": IN_AN_HOUR, "owner_type": "robot"}, "owner_type must be user, chat or system"),
        ({"run_at": IN_AN_HOUR, "delivery_channel": "fax"},
         "delivery_channel must be web_ui or telegram"),
        ({"run_at": IN_AN_HOUR, "delivery_channel": "telegram"},
         "delivery_target is required for telegram"),
        ({"run_at": IN_AN_HOUR, "cron": "* * * * *"},
         "unknown field: cron; did you mean cron_expr?"),
    ],
)  # fmt: skip
async def test_error_messages_are_those_of_softnix(
    softnix: Rig, given: dict[str, Any], detail: str
) -> None:
    before = await softnix.snapshot()
    answer = await softnix.client.post("/schedules", json={"task": "news", **given})
    assert (answer.status_code, answer.json()) == (400, {"detail": detail})
    assert await softnix.snapshot() == before


@pytest.mark.parametrize("expression", ["nonsense", "61 * * * *", "0 0 31 2 *", "* * * *"])
async def test_invalid_cron_expressions_of_prompts_are_rejected(
    softnix: Rig, expression: str
) -> None:
    answer = await softnix.client.post(
        "/schedules", json={"task": "x", "schedule_type": "cron", "cron_expr": expression}
    )
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("invalid schedule expression: ")


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"{", b""])
async def test_bodies_that_are_not_objects_are_rejected(softnix: Rig, body: bytes) -> None:
    answer = await softnix.client.post(
        "/schedules", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    assert set(answer.json()) == {"detail"}


async def test_both_task_field_names_are_accepted(softnix: Rig) -> None:
    answer = await softnix.client.post(
        "/schedules", json={"task_prompt": "news", "run_at": IN_AN_HOUR}
    )
    item = answer.json()["item"]
    assert (item["task"], item["task_prompt"]) == ("news", "news")
    patched = await softnix.client.patch(
        f"/schedules/{item['id']}", json={"task": "news", "task_prompt": "weather"}
    )
    assert patched.status_code == 200, patched.text
    assert {patched.json()["item"][name] for name in ("task", "task_prompt")} == {"weather"}


async def test_past_run_at_is_due_immediately(on_any_store: Rig) -> None:
    rig = on_any_store
    item = await create(rig, run_at="2030-01-10T09:00:00")
    assert (item["enabled"], item["next_run_at"]) == (True, "2030-01-10T02:00:00+00:00")
    await fire(rig)
    runs = (await rig.client.get(f"/schedules/{item['id']}/runs")).json()["items"]
    assert [run["status"] for run in runs] == ["queued"]
    after = await get_item(rig, item["id"])
    assert (after["enabled"], after["next_run_at"]) == (False, None)


async def test_one_time_schedule_ends_after_its_dispatch(softnix: Rig) -> None:
    item = await create(softnix, run_at=IN_AN_HOUR)
    softnix.clock.advance(timedelta(hours=1))
    await fire(softnix)
    after = await get_item(softnix, item["id"])
    assert (after["enabled"], after["next_run_at"]) == (False, None)
    assert after["last_dispatched_at"] == "2030-01-15T10:00:00+00:00"
    again = await softnix.client.patch(f"/schedules/{item['id']}", json={"enabled": True})
    assert again.json()["item"]["enabled"] is False
    await fire(softnix)
    runs = (await softnix.client.get(f"/schedules/{item['id']}/runs")).json()["items"]
    assert len(runs) == 1
    revived = await softnix.client.patch(
        f"/schedules/{item['id']}", json={"run_at": "2030-01-15T19:00:00"}
    )
    assert revived.json()["item"]["next_run_at"] == "2030-01-15T12:00:00+00:00"
    assert revived.json()["item"]["enabled"] is True


async def test_list_is_filtered_and_ordered_by_newest_change(softnix: Rig) -> None:
    first = await create(softnix, **DAILY)
    softnix.clock.advance(1)
    second = await create(softnix, run_at=IN_AN_HOUR, owner_type="user", owner_id="anna")
    softnix.clock.advance(1)
    third = await create(softnix, **DAILY, enabled=False)
    softnix.clock.advance(1)
    await softnix.client.patch(f"/schedules/{first['id']}", json={"task": "x"})

    async def listed(query: str) -> list[str]:
        answer = await softnix.client.get(f"/schedules{query}")
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) == {"items"}
        names = {first["id"]: "first", second["id"]: "second", third["id"]: "third"}
        return [names[item["id"]] for item in answer.json()["items"]]

    assert await listed("") == ["first", "third", "second"]
    assert await listed("?include_disabled=true") == ["first", "third", "second"]
    assert await listed("?include_disabled=false") == ["first", "second"]
    assert await listed("?status=disabled") == ["third"]
    assert await listed("?status=active") == ["first", "second"]
    assert await listed("?status=all") == ["first", "third", "second"]
    assert await listed("?enabled=false") == ["third"]
    assert await listed("?owner_type=user&owner_id=anna") == ["second"]
    assert await listed("?owner_type=system") == ["first", "third"]
    assert await listed("?owner_type=user&owner_id=bert") == []
    for bad in ("?status=odd", "?enabled=maybe", "?owner_type=robot"):
        assert (await softnix.client.get(f"/schedules{bad}")).status_code == 400


# The response has no pages but a limit; the store is read page by page.
async def test_list_is_read_in_pages_up_to_its_limit(
    on_any_store: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = on_any_store
    queries: list[ScheduleQuery] = []
    find = rig.context.schedules.find

    async def watched(actor: Actor, query: ScheduleQuery) -> Page[Schedule]:
        queries.append(query)
        return await find(actor, query)

    monkeypatch.setattr(rig.context.schedules, "find", watched)
    monkeypatch.setattr(routes, "_PAGE", 2)
    monkeypatch.setattr(routes, "MAX_LISTED", 3)
    made_here = []
    for number in range(5):
        rig.clock.advance(1)
        owner = {"owner_type": "user", "owner_id": "anna"} if number % 2 else {}
        made_here.append((await create(rig, **DAILY, **owner))["id"])
    newest = made_here[::-1]

    async def listed(query: str) -> list[str]:
        answer = await rig.client.get(f"/schedules{query}")
        return [item["id"] for item in answer.json()["items"]]

    assert await listed("") == newest[:3]
    assert [query.limit for query in queries] == [2, 2]
    queries.clear()
    assert await listed("?owner_type=user&owner_id=anna&enabled=true") == [newest[1], newest[3]]
    assert {(str(query.owner), query.enabled) for query in queries} == {("user:anna", True)}


async def test_patch_changes_only_the_given_fields(on_any_store: Rig) -> None:
    rig = on_any_store
    item = await create(rig, **DAILY)
    path = f"/schedules/{item['id']}"

    async def patched(**given: Any) -> dict[str, Any]:
        answer = await rig.client.patch(path, json=given)
        assert answer.status_code == 200, answer.text
        after: dict[str, Any] = answer.json()["item"]
        return after

    assert (await patched(task="weather"))["task"] == "weather"
    assert (await patched(cron_expr="30 8 * * 1"))["next_run_at"] == "2030-01-21T01:30:00+00:00"
    after = await patched(timezone="UTC")
    assert (after["timezone"], after["next_run_at"]) == ("UTC", "2030-01-21T08:30:00+00:00")
    off = await patched(enabled=False)
    assert (off["enabled"], off["next_run_at"]) == (False, None)
    assert (await patched(cron_expr="0 7 * * *"))["next_run_at"] is None
    on = await patched(enabled=True)
    assert (on["enabled"], on["next_run_at"]) == (True, "2030-01-16T07:00:00+00:00")
    changed = await patched(delivery_channel="telegram", delivery_target=-1001)
    assert (changed["delivery_channel"], changed["delivery_target"]) == ("telegram", "-1001")
    kept = await patched(delivery_channel="telegram", task="x")
    assert kept["delivery_target"] == "-1001"
    assert (await patched(delivery_channel=" Telegram "))["delivery_target"] == "-1001"
    back = await patched(delivery_channel="web_ui", delivery_target="tab-7")
    assert (back["delivery_channel"], back["delivery_target"]) == ("web_ui", "tab-7")
    assert (await patched(task="y"))["delivery_target"] == "tab-7"
    await patched(delivery_channel="telegram", delivery_target="5")
    back = await patched(delivery_channel="web_ui")
    assert (back["delivery_channel"], back["delivery_target"]) == ("web_ui", None)
    written = {"id", "next_run_at", "last_dispatched_at", "created_at", "updated_at", "deleted_at"}
    whole = await patched(**{name: back[name] for name in back if name not in written})
    assert whole | {"updated_at": ""} == back | {"updated_at": ""}


@each_row(
    ("given", "detail"),
    [
        ({"schedule_type": "one_time"}, "schedule_type cannot be changed"),
        ({"owner_id": "bert"}, "owner_id cannot be changed"),
        ({"owner_type": "user"}, "owner_type cannot be changed"),
        ({"run_at": IN_AN_HOUR}, "run_at is for one_time schedules"),
        ({"timezone": "Nowhere"}, "invalid timezone"),
        ({"task": ""}, "task is required"),
        ({"fence": 1}, "unknown field: fence"),
        ({"role": "x"}, "unknown field: role"),
        ({"id": "x"}, "id cannot be set"),
        ({"next_run_at": IN_AN_HOUR}, "next_run_at cannot be set"),
        ({"deleted_at": None}, "deleted_at cannot be set"),
        ({"created_at": IN_AN_HOUR}, "created_at cannot be set"),
        ({"delivery_channel": "telegram"}, "delivery_target is required for telegram"),
    ],
)  # fmt: skip
async def test_invalid_patches_are_rejected(
    softnix: Rig, given: dict[str, Any], detail: str
) -> None:
    item = await create(softnix, **DAILY)
    before = await softnix.snapshot()
    answer = await softnix.client.patch(f"/schedules/{item['id']}", json=given)
    assert (answer.status_code, answer.json()) == (400, {"detail": detail})
    bad = await softnix.client.patch(f"/schedules/{item['id']}", json={"cron_expr": "nope"})
    assert bad.json()["detail"].startswith("invalid schedule expression: ")
    assert await softnix.snapshot() == before


async def test_one_time_keeps_its_wall_time_in_another_zone(softnix: Rig) -> None:
    item = await create(softnix, run_at="2030-02-10T09:00:00")
    answer = await softnix.client.patch(
        f"/schedules/{item['id']}", json={"timezone": "Europe/Berlin"}
    )
    assert answer.json()["item"]["run_at"] == "2030-02-10T08:00:00+00:00"
    wrong = await softnix.client.patch(f"/schedules/{item['id']}", json={"cron_expr": "0 9 * * *"})
    assert wrong.json() == {"detail": "cron_expr is for cron schedules"}


async def test_delete_is_soft_and_final(on_any_store: Rig) -> None:
    rig = on_any_store
    item = await create(rig, **DAILY)
    path = f"/schedules/{item['id']}"
    answer = await rig.client.delete(path)
    assert answer.status_code == 200
    assert answer.json()["status"] == "deleted"
    gone = answer.json()["item"]
    assert (gone["enabled"], gone["deleted_at"]) == (False, "2030-01-15T09:00:00+00:00")
    for send in (
        rig.client.get(path),
        rig.client.patch(path, json={"enabled": True}),
        rig.client.delete(path),
        rig.client.get(f"{path}/runs"),
        rig.client.post(f"{path}/run-now"),
        rig.client.get("/schedules/000000000000"),
    ):
        found = await send
        assert (found.status_code, found.json()) == (404, {"detail": "schedule not found"})
    assert (await rig.client.get("/schedules")).json() == {"items": []}


async def test_run_now_keeps_the_schedule_and_works_while_paused(softnix: Rig) -> None:
    item = await create(softnix, **DAILY, enabled=False)
    answer = await softnix.client.post(f"/schedules/{item['id']}/run-now")
    assert answer.status_code == 200
    run_id = answer.json()["run_id"]
    assert answer.json() == {"status": "started", "schedule_id": item["id"], "run_id": run_id}
    assert await get_item(softnix, item["id"]) == item
    native = await softnix.client.get(f"/api/v1/runs/{run_id}")
    assert (native.json()["origin"], native.json()["schedule_id"]) == ("manual", item["id"])
    second = await softnix.client.post(f"/schedules/{item['id']}/run-now")
    assert second.json()["run_id"] != run_id


@pytest.mark.parametrize(
    ("given", "status", "error", "reason"),
    [
        ({"status": RunStatus.QUEUED}, "queued", None, None),
        ({"status": RunStatus.UNKNOWN}, "failed",
         "unknown: the node that executed the run is gone", "unknown"),
        ({"status": RunStatus.SUCCEEDED}, "completed", None, "completed"),
        ({"status": RunStatus.FAILED, "error": "no"}, "failed", "no", "failed"),
        ({"status": RunStatus.TIMEOUT}, "failed", "timeout", "timeout"),
        ({"status": RunStatus.CANCELED, "reason": "canceled_by_hand"}, "canceled", None,
         "canceled_by_hand"),
        ({"status": RunStatus.MISSED, "reason": "misfire"}, "failed",
         "missed: no node was running at the planned time", "misfire"),
        ({"status": RunStatus.SKIPPED, "reason": "overlap"}, "canceled", "skipped", "overlap"),
    ],
)  # fmt: skip
async def test_run_statuses_use_softnix_words(
    softnix: Rig, given: dict[str, Any], status: str, error: str | None, reason: str | None
) -> None:
    item = await create(softnix, **DAILY)
    finished = NOW if given["status"].terminal else None
    run = a_run(schedule_id=item["id"], slot=None, finished_at=finished, **given)
    await softnix.store.load([run])
    [shown] = (await softnix.client.get(f"/schedules/{item['id']}/runs")).json()["items"]
    assert set(shown) == {
        *("id", "schedule_id", "run_id", "status", "started_at", "finished_at", "error"),
        *("created_at", "run_status", "run_stop_reason", "pipeline_run_id"),
    }
    assert shown["id"] == shown["run_id"] == run.id
    assert (shown["status"], shown["run_status"]) == (status, status)
    assert (shown["error"], shown["run_stop_reason"]) == (error, reason)


async def test_history_is_newest_first_and_limited(softnix: Rig) -> None:
    item = await create(softnix, **DAILY)
    ids = []
    for _ in range(3):
        softnix.clock.advance(1)
        answer = await softnix.client.post(f"/schedules/{item['id']}/run-now")
        ids.append(answer.json()["run_id"])
    path = f"/schedules/{item['id']}/runs"
    listed = (await softnix.client.get(path)).json()["items"]
    assert [run["run_id"] for run in listed] == ids[::-1]
    two = (await softnix.client.get(f"{path}?limit=2")).json()["items"]
    assert [run["run_id"] for run in two] == ids[:0:-1]
    for bad in ("0", "201", "-1", "x", "9" * 30):
        assert (await softnix.client.get(f"{path}?limit={bad}")).status_code == 400
    assert (await softnix.client.get(f"{path}?limit=200")).status_code == 200


# Schedules of one interface are visible in the others.
async def test_prompts_of_other_interfaces_are_listed(softnix: Rig) -> None:
    native = await softnix.create(target={"kind": "agent", "prompt": "hello"})
    http = await softnix.create()
    every = await softnix.create(
        target={"kind": "agent", "prompt": "tick"}, trigger={"kind": "every", "every": "90s"}
    )
    item = await get_item(softnix, native["id"])
    assert (item["task"], item["cron_expr"]) == ("hello", "0 9 * * *")
    assert (await get_item(softnix, every["id"]))["cron_expr"] == "@every 1m30s"
    listed = (await softnix.client.get("/schedules")).json()["items"]
    assert {each["id"] for each in listed} == {native["id"], every["id"]}
    assert (await softnix.client.get(f"/schedules/{http['id']}")).status_code == 404
    patched = await softnix.client.patch(f"/schedules/{native['id']}", json={"task": "bye"})
    assert patched.json()["item"]["task"] == "bye"
    shown = await softnix.client.get(f"/api/v1/schedules/{native['id']}")
    assert shown.json()["target"]["prompt"] == "bye"
    mine = await create(softnix, **DAILY)
    seen = (await softnix.client.get(f"/api/v1/schedules/{mine['id']}")).json()
    assert (seen["namespace"], seen["target"]["kind"]) == ("softnix", "agent")


# A crash between the enqueue and the next slot fires nothing twice.
async def test_slot_with_a_run_is_not_fired_again(softnix: Rig) -> None:
    item = await create(softnix, **DAILY)
    before = await softnix.store.get_schedule(item["id"])
    assert before is not None
    assert before.next_run_at is not None
    softnix.clock.set(before.next_run_at)
    await fire(softnix)
    await softnix.store.change_schedule(
        before.id,
        lambda after, _: replace(after, next_slot=before.next_slot, next_run_at=before.next_run_at),
    )
    await fire(softnix)
    runs = (await softnix.client.get(f"/schedules/{item['id']}/runs")).json()["items"]
    assert len(runs) == 1
    assert (await get_item(softnix, item["id"]))["next_run_at"] == "2030-01-17T02:00:00+00:00"
