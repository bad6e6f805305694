"""Lists: filters, pages, orders."""

from __future__ import annotations

from typing import Any

from chimes.model.planning import plan
from tests.builders import a_completion, claim_request
from tests.store_contract.scenes import joined
from tests.tables import each_row
from tests.web.compat.kweaver.requests import KN1, KN2, create
from tests.web.rig import Rig

SORTS = ("create_time", "update_time", "next_run_time", "last_run_time", "name")


async def listed(rig: Rig, query: str = "", path: str = KN1) -> tuple[list[dict[str, Any]], int]:
    answer = await rig.client.get(f"{path}?{query}")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert set(found) == {"entries", "total_count"}
    return found["entries"], found["total_count"]


async def names(rig: Rig, query: str = "") -> list[str]:
    return [each["name"] for each in (await listed(rig, query))[0]]


async def create_25_schedules(rig: Rig) -> None:
    """Half are active and some have run; also creates schedules that must not be listed."""
    await joined(rig.store)
    for number in range(25):
        await create(
            rig,
            name=f"job {(number * 7) % 25:02}",
            action_type_id="odd" if number % 2 else "even",
            cron_expression=f"{1 + number % 3} * * * *",
            status="active" if number % 2 else "inactive",
        )
        # Some are created at the same time.
        rig.clock.advance(1 if number % 5 else 0)
    await create(rig, KN2, name="job 99")
    await create(rig, f"{KN1}?branch=dev", name="job 98")
    rig.clock.advance(60)
    await joined(rig.store)
    offer = claim_request(free=4, capabilities=frozenset({"action"}))
    for run in (await rig.store.fire_due(plan, limit=50, request=offer)).claimed:
        rig.clock.advance(1)
        await rig.store.finish([a_completion(run, rig.clock.now())])
    (first, second, *_), _ = await listed(rig, "sort=name&direction=asc")
    for each in (second, first):
        rig.clock.advance(1)
        await rig.client.put(f"{KN1}/{each['id']}", json={"dynamic_params": {"n": 1}})


async def test_schedules_are_paged_in_every_kweaver_order(on_any_store: Rig) -> None:
    rig = on_any_store
    await create_25_schedules(rig)
    for sort in SORTS:
        whole, total = await listed(rig, f"sort={sort}&direction=asc&limit=-1")
        assert (total, len(whole)) == (25, 25)
        values = [each.get(sort, 0) for each in whole]
        assert values == sorted(values)
        if sort != "name":
            assert len(set(values)) > 1
        backwards, _ = await listed(rig, f"sort={sort}&direction=desc&limit=1000")
        assert backwards == whole[::-1]
        paged: list[dict[str, Any]] = []
        for offset in range(0, 30, 10):
            part, total = await listed(rig, f"sort={sort}&direction=asc&offset={offset}&limit=10")
            assert total == 25
            paged += part
        assert paged == whole


async def test_default_page_is_the_ten_newest(kweaver: Rig) -> None:
    for number in range(12):
        await create(kweaver, name=f"job {number}")
        kweaver.clock.advance(1)
    found, total = await listed(kweaver)
    assert [each["name"] for each in found] == [f"job {number}" for number in range(11, 1, -1)]
    assert total == 12
    assert (await listed(kweaver, "offset=12")) == ([], 12)
    assert len((await listed(kweaver, "offset=2&limit=-1"))[0]) == 10


async def test_filters(kweaver: Rig) -> None:
    rig = kweaver
    for name, kind, status in (
        ("Restart pods", "restart", "active"),
        ("restart 100%", "restart", "inactive"),
        ("scale up", "scale", "active"),
    ):
        await create(rig, name=name, action_type_id=kind, status=status)
        rig.clock.advance(1)
    assert await names(rig, "name_pattern=start") == ["restart 100%", "Restart pods"]
    assert await names(rig, "name_pattern=%25") == ["restart 100%"]
    assert await names(rig, "name_pattern=nothing") == []
    assert await names(rig, "action_type_id=scale") == ["scale up"]
    assert await names(rig, "action_type_id=scal") == []
    assert await names(rig, "status=active") == ["scale up", "Restart pods"]
    assert await names(rig, "status=inactive") == ["restart 100%"]
    assert await names(rig, "status=active&action_type_id=restart&name_pattern=pods") == [
        "Restart pods"
    ]
    assert (await listed(rig, "status=active&limit=1"))[1] == 2
    # Empty parameters are ignored.
    empty = "name_pattern=&action_type_id=&status=&sort=&direction=&offset=&limit=&branch="
    assert len(await names(rig, empty)) == 3


@each_row(
    ("query", "code"),
    [
        ("offset=-1", "BknBackend.InvalidParameter.Offset"),
        ("offset=x", "BknBackend.InvalidParameter.Offset"),
        ("offset=1.5", "BknBackend.InvalidParameter.Offset"),
        (f"offset={10**30}", "BknBackend.InvalidParameter.Offset"),
        ("limit=0", "BknBackend.InvalidParameter.Limit"),
        ("limit=-2", "BknBackend.InvalidParameter.Limit"),
        ("limit=1001", "BknBackend.InvalidParameter.Limit"),
        ("limit=ten", "BknBackend.InvalidParameter.Limit"),
        ("limit=%D9%A3", "BknBackend.InvalidParameter.Limit"),
        ("sort=id", "BknBackend.InvalidParameter.Sort"),
        ("sort=NAME", "BknBackend.InvalidParameter.Sort"),
        ("direction=up", "BknBackend.InvalidParameter.Direction"),
        ("status=on", "BknBackend.ActionSchedule.InvalidStatus"),
        # The first error in this order is reported.
        ("status=on&direction=up&sort=id&limit=0&offset=-1", "BknBackend.InvalidParameter.Offset"),
        ("status=on&direction=up&sort=id&limit=0", "BknBackend.InvalidParameter.Limit"),
        ("status=on&direction=up&sort=id", "BknBackend.InvalidParameter.Sort"),
        ("status=on&direction=up", "BknBackend.InvalidParameter.Direction"),
    ],
)
async def test_invalid_list_parameters_are_rejected(kweaver: Rig, query: str, code: str) -> None:
    answer = await kweaver.client.get(f"{KN1}?{query}")
    assert (answer.status_code, answer.json()["error_code"]) == (400, code)


async def test_page_beyond_the_end_is_empty(kweaver: Rig) -> None:
    await create(kweaver)
    assert await listed(kweaver, f"offset={10**14}&limit=1000") == ([], 1)
