"""Any invalid input gets a `detail`, never a 500."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.web.compat.softnix.translate import MAX_RUNS
from tests.tables import each_row
from tests.web.rig import Rig

FIELDS = (
    *("task", "task_prompt", "schedule_type", "run_at", "cron_expr", "timezone", "enabled"),
    *("owner_type", "owner_id", "delivery_channel", "delivery_target", "text"),
    *("id", "next_run_at", "deleted_at"),
)
ODD: tuple[Any, ...] = (
    *(None, True, 5, -1.5, 10**30, [], {}, ["x"], {"x": 1}, "", " ", "x", "\u202ex", "\x07"),
    *("a\u0301" * 50, "0 0 31 2 *", "9999-12-31T23:59:59", "0001-01-01T00:00:00", "../etc"),
    "x" * 60_000,
)  # fmt: skip
VALID_BODY = {
    "/schedules": {"task": "x", "schedule_type": "cron", "cron_expr": "0 9 * * *"},
    "/schedules/parse": {"text": "every day at 9am x"},
    "/schedules/from-text": {"text": "every day at 9am x"},
}


@pytest.mark.parametrize("field", FIELDS)
async def test_odd_values_cause_no_server_error(softnix: Rig, field: str) -> None:
    item = (await softnix.client.post("/schedules", json=VALID_BODY["/schedules"])).json()["item"]
    for odd in ODD:
        answers = [
            await softnix.client.post(path, json=good | {field: odd})
            for path, good in VALID_BODY.items()
        ]
        answers.append(await softnix.client.patch(f"/schedules/{item['id']}", json={field: odd}))
        for answer in answers:
            assert answer.status_code in (200, 400), (field, str(odd)[:50], answer.text)
            if answer.status_code == 400:
                assert {"detail"} <= set(answer.json()) <= {"detail", "clarification"}
        listed = await softnix.client.get("/schedules", params={field: str(odd)[:1000]})
        assert listed.status_code in (200, 400)


@pytest.mark.parametrize("field", ["owner_id", "delivery_target"])
@pytest.mark.parametrize("odd", ["x" * 201, "\u202ex", "a\x07"])
async def test_invalid_ids_in_the_body_are_rejected(softnix: Rig, field: str, odd: str) -> None:
    body = VALID_BODY["/schedules"] | {field: odd}
    answer = await softnix.client.post("/schedules", json=body)
    assert answer.status_code == 400
    assert await softnix.snapshot() == []


@each_row(
    "path", ["/schedules/%00", "/schedules/" + "x" * 3000, "/schedules/..%2f", "/schedules/a/b/c"]
)
async def test_odd_ids_in_the_path_are_not_found(on_any_store: Rig, path: str) -> None:
    answer = await on_any_store.client.get(path)
    assert answer.status_code == 404
    assert set(answer.json()) == {"detail"}


@each_row("path", ["/schedules/parse", "/schedules/from-text"])
async def test_fields_that_parsing_does_not_use_are_checked(softnix: Rig, path: str) -> None:
    for field, odd in (
        ("delivery_channel", "pigeon"),
        ("delivery_target", ["x"]),
        ("enabled", "perhaps"),
    ):
        answer = await softnix.client.post(path, json=VALID_BODY[path] | {field: odd})
        assert answer.status_code == 400, (field, answer.text)
    assert await softnix.snapshot() == []


async def test_limits_of_run_lists_are_plain_numbers_in_range(softnix: Rig) -> None:
    item = (await softnix.client.post("/schedules", json=VALID_BODY["/schedules"])).json()["item"]
    path = f"/schedules/{item['id']}/runs"
    thai_three, leading_zeros = "\N{THAI DIGIT THREE}", "0" * 20
    for limit, status in (
        (str(MAX_RUNS), 200),
        (str(MAX_RUNS + 1), 400),
        ("0", 400),
        (thai_three, 400),
        (f"{leading_zeros}{MAX_RUNS}", 200),
        (f"{leading_zeros}{MAX_RUNS + 1}", 400),
        (f"1{leading_zeros}", 400),
        ("+1", 400),
    ):
        answer = await softnix.client.get(path, params={"limit": limit})
        assert answer.status_code == status, (limit, answer.text)
