"""Pages, filters and sorting."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from chimes.model.run import AttemptEnd
from tests.builders import HOUR, NOW, a_completion, a_node, a_run, claim_request
from tests.tables import each_row
from tests.web.dashboard.browsing import browsing
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


async def test_filter_finds_what_the_dashboard_shows() -> None:
    """One parser serves `q` of the API, the URL of the pages and the command line."""
    async with browsing() as browser:
        rig = browser.rig
        failing = await rig.create(name="pay a", labels={"billing": "eu"}, owner={"id": "alice"})
        await rig.create(name="pay b", labels=["billing"], enabled=False)
        await rig.create(name="z: mail", target={"kind": "task", "name": "send"}, namespace="team")
        await rig.store.add_runs(
            [
                a_run(id=f"r{n}", schedule_id=failing["id"], schedule_name="pay a", planned_at=NOW)
                for n in range(3)
            ]
        )
        await rig.store.join(a_node(), HOUR)
        (run,) = await rig.store.claim(claim_request(free=1))
        assert run.id == "r0"
        await rig.store.finish(
            [a_completion(run, NOW, AttemptEnd.FAILED, error="no route to host")]
        )
        for q, expected in {
            "billing": set(),
            "pay": {"pay a", "pay b"},
            "label:billing": {"pay a", "pay b"},
            "label:billing=eu": {"pay a"},
            "status:paused label:billing": {"pay b"},
            "status:failed": {"pay a"},
            "kind:task": {"z: mail"},
            '"z: m"': {"z: mail"},
            "namespace:team": {"z: mail"},
            "owner:user:alice": {"pay a"},
            "next:<1m": set(),
            "next:<30d": {"pay a", "z: mail"},
        }.items():
            assert set(await names(rig, q=q)) == expected, q
            page = (await browser.get(f"/ui/schedules?{urlencode({'q': q})}")).text
            shown = {name for name in ("pay a", "pay b", "z: mail") if f">{name}</a>" in page}
            assert shown == expected, q
        for q, found in {
            "status:queued": {"r1", "r2"},
            "status:failed since:1h": {"r0"},
            f"schedule:{failing['id']} route": {"r0"},
            "PAY": {"r0", "r1", "r2"},
            "same:r0": {"r0"},
            "origin:backfill": set(),
            "node:n1": set(),
        }.items():
            answer = await rig.client.get("/api/v1/runs", params={"q": q})
            assert {each["id"] for each in answer.json()["items"]} == found, (q, answer.text)
            of_one = await rig.client.get(f"{PATH}/{failing['id']}/runs", params={"q": q})
            assert of_one.json()["items"] == answer.json()["items"], q
            page = (await browser.get(f"/ui/runs?{urlencode({'q': q})}")).text
            assert {run for run in ("r0", "r1", "r2") if f"/ui/runs/{run}" in page} == found, q
        for sort in ("name", "-created", "next", "updated_at"):
            page = (await browser.get(f"/ui/schedules?sort={sort}")).text
            listed = await names(rig, sort=sort)
            assert sorted(listed, key=lambda name: page.index(f">{name}</a>")) == listed, sort


async def test_filter_and_parameters_must_agree(rig: Rig) -> None:
    await rig.create(name="a")
    assert await names(rig, q="status:enabled", enabled="true", kind="http") == ["a"]
    answer = await rig.client.get(PATH, params={"q": "status:paused", "enabled": "true"})
    assert (answer.status_code, answer.json()["code"]) == (422, "contradiction")
    unknown = (await rig.client.get(PATH, params={"q": "since:1h"})).json()
    assert "no condition since" in unknown["detail"]


async def test_search_in_memory_fills_pages_exactly(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chimes.services.runs._SCAN_BATCH", 4)
    runs = [
        a_run(
            id=f"r{n:02}",
            schedule_name="even" if n % 2 == 0 else "odd",
            planned_at=NOW,
            created_at=NOW + timedelta(seconds=n),
        )
        for n in range(20)
    ]
    await rig.store.add_runs(runs)
    seen: list[str] = []
    url: str | None = "/api/v1/runs?q=even&limit=3"
    while url is not None:
        answer = await rig.client.get(url)
        page = [each["id"] for each in answer.json()["items"]]
        assert len(page) <= 3
        seen += page
        url = answer.links.get("next", {}).get("url")
    assert seen == [run.id for run in reversed(runs) if run.schedule_name == "even"]


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
        ("q", "x" * 501),
        ("q", "status:purple"),
        ("q", "staus:failed"),
        ("q", "owner:anna"),
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
