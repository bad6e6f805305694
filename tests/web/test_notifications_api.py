"""Deliveries and inbox in the native API: pages, owners, message states, retries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model.access import Role
from chimes.model.ids import RunId, ScheduleId
from chimes.model.notification import Artifact, DeliveryState
from chimes.model.recipient import Channel, Recipient
from tests.builders import ALICE, BOB, NOW, a_delivery, an_item
from tests.web.rig import Rig

DELIVERIES, INBOX = "/api/v1/deliveries", "/api/v1/inbox"
HOOK = Recipient(channel=Channel.WEBHOOK, to="https://example.com/h?token=abcdefgh")


async def add_dead_delivery(rig: Rig, **given: Any) -> str:
    values: dict[str, Any] = {
        "state": DeliveryState.DEAD,
        "finished_at": NOW,
        "attempts": 8,
        "error": "HTTP 500",
        "code": "http_500",
        "recipient": HOOK,
    }
    delivery = a_delivery(**(values | given))
    await rig.store.load([delivery])
    return delivery.id


async def ids(rig: Rig, path: str, headers: dict[str, str] | None = None) -> list[str]:
    answer = await rig.client.get(path, headers=headers or {})
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["items"]]


async def test_dead_delivery_is_listed_and_retried(any_rig: Rig) -> None:
    rig = any_rig
    delivery_id = await add_dead_delivery(rig, run_id=RunId("run-1"), schedule_id=ScheduleId("s-1"))
    (shown,) = (await rig.client.get(f"{DELIVERIES}?run_id=run-1")).json()["items"]
    assert shown["id"] == delivery_id
    assert (shown["state"], shown["dead_letter"], shown["attempts"]) == ("dead", True, 8)
    assert (shown["error"], shown["code"]) == ("HTTP 500", "http_500")
    assert (shown["channel"], shown["to"]) == ("webhook", "https://example.com/h?token=***")
    assert shown["next_attempt_at"] is None
    answer = await rig.client.post(f"{DELIVERIES}/{delivery_id}/retry")
    assert answer.status_code == 200
    again = answer.json()
    assert (again["state"], again["dead_letter"], again["attempts"]) == ("pending", False, 0)
    assert again["next_attempt_at"] is not None
    assert again == (await rig.client.get(f"{DELIVERIES}/{delivery_id}")).json()
    (entry,) = (await rig.client.get("/api/v1/audit?verb=retry")).json()["items"]
    assert (entry["object_kind"], entry["object_id"]) == ("delivery", delivery_id)


async def test_deliveries_are_filtered_and_paged(rig: Rig) -> None:
    one = await add_dead_delivery(rig, run_id=RunId("r"), created_at=NOW)
    two = await add_dead_delivery(
        rig,
        schedule_id=ScheduleId("s"),
        state=DeliveryState.DELIVERED,
        created_at=NOW + timedelta(seconds=1),
    )
    three = a_delivery(created_at=NOW + timedelta(seconds=2))
    await rig.store.load([three])
    assert await ids(rig, DELIVERIES) == [three.id, two, one]
    assert await ids(rig, f"{DELIVERIES}?state=dead&state=delivered") == [two, one]
    assert await ids(rig, f"{DELIVERIES}?channel=inbox") == [three.id]
    assert await ids(rig, f"{DELIVERIES}?schedule_id=s") == [two]
    first = (await rig.client.get(f"{DELIVERIES}?limit=2")).json()
    rest = await ids(rig, f"{DELIVERIES}?limit=2&cursor={first['next_cursor']}")
    assert [each["id"] for each in first["items"]] + rest == [three.id, two, one]


@pytest.mark.parametrize(
    "query", ["?state=lost", "?channel=pigeon", "?sort=id", "?limit=0", "?cursor=x", "?owner=x"]
)
async def test_invalid_query_is_rejected(rig: Rig, query: str) -> None:
    for path in (DELIVERIES, INBOX):
        assert (await rig.client.get(path + query)).status_code == 422


async def test_retry_of_a_delivered_delivery_is_rejected(rig: Rig) -> None:
    delivery_id = await add_dead_delivery(rig, state=DeliveryState.DELIVERED)
    answer = await rig.client.post(f"{DELIVERIES}/{delivery_id}/retry")
    assert (answer.status_code, answer.json()["code"]) == (409, "delivered")


# Messages of other owners are not found.
async def test_owners_see_and_change_only_their_own_messages(rig: Rig) -> None:
    ours, theirs = (
        await add_dead_delivery(rig, owner=ALICE),
        await add_dead_delivery(rig, owner=BOB),
    )
    mine, other = an_item(owner=ALICE), an_item(owner=BOB)
    for item in (mine, other):
        await rig.store.add_inbox(item)
    alice = await rig.key(Role.MEMBER, ALICE)
    viewer = await rig.key(Role.VIEWER, ALICE)
    operator = await rig.key(Role.OPERATOR)
    assert await ids(rig, DELIVERIES, alice) == [ours]
    assert await ids(rig, f"{DELIVERIES}?owner=user:bob", alice) == [ours]
    assert await ids(rig, INBOX, alice) == [mine.id]
    assert await ids(rig, INBOX, operator) == []
    assert await ids(rig, f"{INBOX}?owner=user:bob", operator) == [other.id]
    assert set(await ids(rig, DELIVERIES, operator)) == {ours, theirs}
    calls: list[tuple[str, str, Any]] = [
        ("GET", f"{DELIVERIES}/{theirs}", None),
        ("POST", f"{DELIVERIES}/{theirs}/retry", {}),
        ("GET", f"{INBOX}/{other.id}", None),
        ("PATCH", f"{INBOX}/{other.id}", {"read": True}),
        ("GET", f"{INBOX}/no-such", None),
        ("PATCH", f"{INBOX}/no-such", {"read": True}),
    ]
    for method, path, body in calls:
        answer = await rig.client.request(method, path, json=body, headers=alice)
        assert answer.status_code == 404, path
    for method, path, body in (
        ("POST", f"{DELIVERIES}/{ours}/retry", {}),
        ("PATCH", f"{INBOX}/{mine.id}", {"read": True}),
    ):
        answer = await rig.client.request(method, path, json=body, headers=viewer)
        assert answer.status_code == 403, path
    assert (await rig.client.get(f"{INBOX}/{mine.id}", headers=viewer)).status_code == 200
    assert (await rig.client.get(f"{INBOX}/{mine.id}", headers=viewer)).json()["read"] is False
    assert (await rig.client.post(f"{INBOX}/read-all", headers=alice)).json() == {"marked": 1}
    asked = f"{INBOX}?unread=true&owner={other.owner}"
    unread = (await rig.client.get(asked, headers=operator)).json()
    assert ([each["id"] for each in unread["items"]], unread["unread"]) == ([other.id], 1)


async def test_message_is_read_starred_archived_and_snoozed(any_rig: Rig) -> None:
    rig = any_rig
    item = an_item(
        title="สรุปข่าว",
        text="**ข่าว**",
        status="succeeded",
        run_id=RunId("run-1"),
        artifacts=(Artifact(name="a.txt", url="https://x.example/a"),),
        created_at=rig.clock.now(),
    )
    await rig.store.add_inbox(item)
    path = f"{INBOX}/{item.id}"
    shown = (await rig.client.get(path)).json()
    assert (shown["title"], shown["text"]) == ("สรุปข่าว", "**ข่าว**")
    assert shown["artifacts"] == [{"name": "a.txt", "url": "https://x.example/a"}]
    assert (shown["read"], shown["archived"]) == (False, False)

    async def change(**given: Any) -> dict[str, Any]:
        answer = await rig.client.patch(path, json=given)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    read = await change(read=True)
    assert (read["read"], read["read_at"] is not None) == (True, True)
    assert (await change(read=True, starred=True))["read_at"] == read["read_at"]
    assert await ids(rig, f"{INBOX}?unread=true") == []
    assert await ids(rig, f"{INBOX}?starred=true&run_id=run-1") == [item.id]
    assert (await change(read=False))["read_at"] is None
    await change(archived=True)
    assert await ids(rig, INBOX) == []
    assert await ids(rig, f"{INBOX}?archived=true") == [item.id]
    await change(archived=False)
    later = (await rig.store.now()) + timedelta(hours=1)
    await change(snoozed_until=later.isoformat())
    assert await ids(rig, INBOX) == []
    assert await ids(rig, f"{INBOX}?snoozed=true") == [item.id]
    assert (await change(snoozed_until=None))["snoozed_until"] is None
    assert await ids(rig, INBOX) == [item.id]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"read": None}, "/read"),
        ({"read": "yes"}, "/read"),
        ({"title": "x"}, "/title"),
        ({"snoozed_until": "soon"}, "/snoozed_until"),
        ({"snoozed_until": "2001-01-01T00:00:00Z"}, "/snoozed_until"),
    ],
)
async def test_invalid_change_of_a_message_is_rejected(
    rig: Rig, body: dict[str, Any], pointer: str
) -> None:
    item = await rig.store.add_inbox(an_item())
    answer = await rig.client.patch(f"{INBOX}/{item.id}", json=body)
    assert answer.status_code == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
    assert (await rig.client.get(f"{INBOX}/{item.id}")).json()["read"] is False


async def test_read_all_marks_one_page_per_call(rig: Rig) -> None:
    for place in range(450):
        await rig.store.add_inbox(
            an_item(schedule_id=ScheduleId("a" if place % 2 else "b"), created_at=NOW)
        )
    answer = await rig.client.post(f"{INBOX}/read-all?schedule_id=a")
    assert answer.json() == {"marked": 225}
    assert (await rig.client.get(INBOX)).json()["unread"] == 225
