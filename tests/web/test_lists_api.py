"""Pages, filters and sorting."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.tables import each_row
from tests.web.rig import CRON, Rig

PATH = "/api/v1/schedules"


async def names(rig: Rig, **params: Any) -> list[str]:
    answer = await rig.client.get(PATH, params=params)
    assert answer.status_code == 200, answer.text
    return [item["name"] for item in answer.json()["items"]]


async def test_pages_are_stable_under_inserts(any_rig: Rig) -> None:
    for number in range(5):
        any_rig.clock.advance(1)
        await any_rig.create(name=f"s{number}")
    first = await any_rig.client.get(PATH, params={"limit": 2, "sort": "name"})
    assert [item["name"] for item in first.json()["items"]] == ["s0", "s1"]
    await any_rig.create(name="s05")
    await any_rig.create(name="s25")
    seen = ["s0", "s1"]
    answer = first
    while (link := answer.headers.get("link")) is not None:
        url, rel = link.split("; ")
        assert rel == 'rel="next"'
        answer = await any_rig.client.get(url[1:-1])
        seen += [item["name"] for item in answer.json()["items"]]
    assert seen == ["s0", "s1", "s2", "s25", "s3", "s4"]
    assert answer.json()["next_cursor"] is None


@pytest.fixture
async def four_schedules(any_rig: Rig) -> Rig:
    for number in range(4):
        any_rig.clock.advance(1)
        await any_rig.create(name=f"s{number}", enabled=number != 2)
    return any_rig


@each_row("sort", ["name", "-name", "created_at", "-updated_at", "next_run_at"])
async def test_every_sort_pages_through_everything_once(four_schedules: Rig, sort: str) -> None:
    whole = await names(four_schedules, sort=sort)
    assert len(whole) == 4
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(4):
        answer = await four_schedules.client.get(PATH, params={"sort": sort, "limit": 1, **cursor})
        seen += [item["name"] for item in answer.json()["items"]]
        cursor = {"cursor": answer.json()["next_cursor"]}
    assert seen == whole


async def test_sort_and_order(any_rig: Rig) -> None:
    for number, name in enumerate(("b", "c", "a")):
        any_rig.clock.advance(number)
        await any_rig.create(name=name, enabled=name != "c")
    assert await names(any_rig) == ["b", "c", "a"]
    assert await names(any_rig, order="desc") == ["a", "c", "b"]
    assert await names(any_rig, sort="name") == ["a", "b", "c"]
    assert await names(any_rig, sort="-name") == ["c", "b", "a"]
    assert await names(any_rig, sort="name", order="desc") == ["c", "b", "a"]
    assert (await names(any_rig, sort="next_run_at"))[-1] == "c"


async def test_filters(any_rig: Rig) -> None:
    await any_rig.create(name="alpha", labels=["red"], owner={"id": "alice"})
    await any_rig.create(name="beta", labels={"red": "1"}, enabled=False)
    await any_rig.create(name="alphabet", namespace="team")
    for params, expected in (
        ({"enabled": "true"}, {"alpha", "alphabet"}),
        ({"enabled": "false"}, {"beta"}),
        ({"name": "alpha"}, {"alpha"}),
        ({"q": "pha"}, {"alpha", "alphabet"}),
        ({"q": "PHA"}, set()),
        ({"label": "red"}, {"alpha", "beta"}),
        ({"namespace": "team"}, {"alphabet"}),
        ({"kind": "http", "q": "b"}, {"beta", "alphabet"}),
        ({"kind": "task"}, set()),
        ({"owner": "user:alice"}, {"alpha"}),
    ):
        assert set(await names(any_rig, **params)) == expected, params


@each_row(
    ("name", "value"),
    [
        ("sort", "name;select"),
        ("sort", ""),
        ("sort", "owner"),
        ("order", "1"),
        ("limit", "-1"),
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "1e9"),
        ("limit", "abc"),
        ("cursor", "tampered"),
        ("cursor", ""),
        ("cursor", "x" * 3000),
        ("enabled", "perhaps"),
        ("owner", "alice"),
        ("owner", "robot:alice"),
        ("q", "x" * 201),
        ("q", "\0"),
        ("lmit", "5"),
        ("api_key", "x"),
    ],
)
async def test_invalid_parameters_are_rejected(rig: Rig, name: str, value: str) -> None:
    answer = await rig.client.get(PATH, params={name: value})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "done"),
        ("status", ""),
        ("origin", "x"),
        ("since", "yesterday"),
        ("until", "2030-01-01T00:00:00"),
        ("sort", "name"),
    ],
)
async def test_invalid_parameters_of_runs_are_rejected(rig: Rig, name: str, value: str) -> None:
    answer = await rig.client.get("/api/v1/runs", params={name: value})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == name


async def test_cursor_of_another_query_is_rejected(rig: Rig) -> None:
    await rig.create(name="a")
    await rig.create(name="b")
    first = await rig.client.get(PATH, params={"limit": 1, "sort": "name"})
    cursor = first.json()["next_cursor"]
    for params in ({"sort": "-name"}, {}, {"sort": "name", "enabled": "true"}):
        answer = await rig.client.get(PATH, params={"cursor": cursor, **params})
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_cursor")
    decoded = json.loads(base64.urlsafe_b64decode(cursor + "=="))
    decoded[0] = "zzz"
    forged = base64.urlsafe_b64encode(json.dumps(decoded).encode()).decode()
    answer = await rig.client.get(PATH, params={"cursor": forged, "sort": "name"})
    assert answer.status_code == 422


@pytest.mark.parametrize("content", ["[]", "1", "[1,2,3]", '{"a":1}', '[[1],"x","y"]', "[[[[["])
async def test_forged_cursors_are_rejected(rig: Rig, content: str) -> None:
    cursor = base64.urlsafe_b64encode(content.encode()).decode()
    assert (await rig.client.get(PATH, params={"cursor": cursor})).status_code == 422


async def test_audit_pages(rig: Rig) -> None:
    for number in range(3):
        await rig.create(name=f"s{number}", trigger=CRON)
    first = (await rig.client.get("/api/v1/audit", params={"limit": 2, "verb": "create"})).json()
    assert [entry["number"] for entry in first["items"]] == [3, 2]
    rest = await rig.client.get("/api/v1/audit", params={"before": first["next_before"]})
    assert [entry["number"] for entry in rest.json()["items"]] == [1]
    assert rest.json()["next_before"] is None
    huge = await rig.client.get("/api/v1/audit", params={"before": str(10**30)})
    assert huge.status_code == 422


@each_row("path", ["audit", "schedules", "inbox", "deliveries"])
async def test_an_owner_that_is_none_is_no_filter(rig: Rig, path: str) -> None:
    """It is rejected: an empty page would look like the answer."""
    for owner in ("alice", "robot:alice", ":alice", ""):
        answer = await rig.client.get(f"/api/v1/{path}", params={"owner": owner})
        assert answer.status_code == 422, (owner, answer.text)
    answer = await rig.client.get(f"/api/v1/{path}", params={"owner": "user:alice"})
    assert answer.status_code == 200
