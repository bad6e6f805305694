"""Monitors over HTTP: changes, pings, badges, limits, access and import."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

from chimes.errors import StoreUnavailable
from chimes.model.access import Role
from chimes.model.listing import AuditQuery
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.web.pings import MISS_BURST, PING_BURST
from tests.builders import ALICE, BOB
from tests.engine.rig import Faults
from tests.web.rig import Rig, serving

CRON = {"kind": "cron", "expression": "0 2 * * *", "timezone": "Europe/Berlin"}
EVERY = {"kind": "every", "every": "PT10M"}


async def create(rig: Rig, **given: Any) -> dict[str, Any]:
    body = {"name": "backup", "trigger": EVERY, "grace": "5m"} | given
    answer = await rig.client.post("/api/v1/monitors", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def read(rig: Rig, monitor_id: str) -> dict[str, Any]:
    answer = await rig.client.get(f"/api/v1/monitors/{monitor_id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_monitor_is_new_then_up_late_down_and_up_again(any_rig: Rig) -> None:
    rig = any_rig
    made = await create(rig)
    assert made["status"] == "new"
    assert made["grace"] == "PT5M"
    ping = made["ping_url"]
    assert ping.startswith("http://localhost:7100/ping/")

    started = await rig.client.post(f"{ping}/start")
    assert (started.status_code, started.text) == (200, "OK\n")
    assert (await read(rig, made["id"]))["running"] is True
    rig.clock.advance(timedelta(seconds=90))
    ended = await rig.client.post(ping, content=b"copied 12 files\npassword=hunter2 done")
    assert ended.status_code == 200
    found = await read(rig, made["id"])
    assert (found["status"], found["last_duration"], found["running"]) == ("up", "PT1M30S", False)

    rig.clock.advance(timedelta(minutes=10))
    assert (await read(rig, made["id"]))["status"] == "late"
    rig.clock.advance(timedelta(minutes=5))
    assert (await read(rig, made["id"]))["status"] == "down"
    assert (await rig.client.get(ping)).status_code == 200
    found = await read(rig, made["id"])
    assert (found["status"], found["down"]) == ("up", None)

    failed = await rig.client.get(f"{ping}/7")
    assert failed.status_code == 200
    found = await read(rig, made["id"])
    assert found["status"] == "down"
    assert found["down"]["cause"] == "failed"
    assert found["down"]["exit_code"] == 7
    history = (await rig.client.get(f"/api/v1/monitors/{made['id']}/pings")).json()
    assert [each["kind"] for each in history["items"]] == ["fail", "success", "success", "start"]
    assert [each["kind"] for each in history["events"]] == ["down", "recovered", "down"]
    log = history["items"][2]["log"]
    assert "copied 12 files" in log
    assert history["items"][2]["size"] == 37


async def test_pings_need_the_token_only_and_reveal_nothing(rig: Rig) -> None:
    made = await create(rig, trigger=CRON, delivery=[{"channel": "inbox", "on": ["failure"]}])
    ping = made["ping_url"]
    # From anywhere: no key, another name of the server, another origin.
    for method in ("GET", "HEAD", "POST"):
        answer = await rig.client.request(
            method, ping, headers={"Host": "backup.example.org", "Origin": "https://other.example"}
        )
        assert answer.status_code == 200, method
        assert "access-control-allow-origin" not in answer.headers
    wrong = f"{ping[:-1]}{'a' if ping[-1] != 'a' else 'b'}"
    unknown = {wrong: "", ping[:-3]: "", f"{ping}x": "", "/ping/no": "", f"{ping}/restart": ""}
    for url in unknown:
        answer = await rig.client.get(url)
        assert (answer.status_code, answer.text) == (404, "not found\n"), url
        assert answer.headers["content-type"].startswith("text/plain")
    assert (await rig.client.get(f"{ping}/256")).status_code == 400
    assert (await rig.client.get(f"{ping}?rid=a b")).status_code == 400
    too_large = await rig.client.post(ping, content=b"x" * (100 * 1024 + 1))
    assert too_large.status_code == 413
    assert too_large.headers["content-type"].startswith("text/plain")

    # Chunked, as by `curl -T -`.
    async def parts() -> Any:
        yield b"a" * 9_000
        yield b"b" * 9_000

    assert (await rig.client.post(f"{ping}?rid=job-1", content=parts())).status_code == 200
    history = (await rig.client.get(f"/api/v1/monitors/{made['id']}/pings")).json()
    newest = history["items"][0]
    assert (newest["rid"], newest["size"], len(newest["log"])) == ("job-1", 18_000, 10_000)
    assert newest["log"].startswith("a" * 1000)


async def test_pings_are_limited_in_rate(rig: Rig) -> None:
    first, second = await create(rig), await create(rig, name="other")
    limited = 0
    for _again in range(PING_BURST + 5):
        answer = await rig.client.get(first["ping_url"])
        limited += answer.status_code == 429
    assert limited == 5
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["content-type"].startswith("text/plain")
    assert (await rig.client.get(second["ping_url"])).status_code == 200
    rig.clock.advance(timedelta(minutes=1))
    assert (await rig.client.get(first["ping_url"])).status_code == 200
    statuses = [
        (await rig.client.get(f"/ping/{'0' * 33}{number:03}")).status_code
        for number in range(MISS_BURST + 5)
    ]
    assert statuses.count(404) == MISS_BURST
    assert statuses.count(429) == 5
    # A valid token of the same address still works.
    assert (await rig.client.get(second["ping_url"])).status_code == 200


async def test_a_store_that_does_not_answer_is_503_with_a_time_to_retry() -> None:
    clock = SettableClock()
    faults = Faults(MemoryStore(clock))
    async with serving(faults.store, clock) as rig:
        made = await create(rig)
        faults.down = StoreUnavailable()
        answer = await rig.client.post(made["ping_url"])
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["content-type"].startswith("text/plain")
        faults.down = None
        assert (await rig.client.post(made["ping_url"])).status_code == 200


async def test_badges_show_the_status_without_external_requests(rig: Rig) -> None:
    made = await create(rig, name='a<b> & "c"')
    badge = made["badge_url"]
    for ping, word in (("", "up"), ("/fail", "down")):
        await rig.client.get(made["ping_url"] + ping)
        answer = await rig.client.get(badge)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "image/svg+xml"
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        root = ElementTree.fromstring(answer.text)
        texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
        assert texts == ['a<b> & "c"', word]
        assert root.attrib["aria-label"] == f'a<b> & "c": {word}'
        assert "href" not in answer.text
    rig.clock.advance(timedelta(days=1))
    # The badge cannot be used for pings, and the ping token shows no badge.
    token = badge.rpartition("/")[2].removesuffix(".svg")
    assert (await rig.client.get(f"/ping/{token}")).status_code == 404
    ping_token = made["ping_url"].rpartition("/")[2]
    assert (await rig.client.get(f"/badge/{ping_token}.svg")).status_code == 404


async def test_changes_lists_and_audit(rig: Rig) -> None:
    made = await create(rig, tags=["db"], delivery=[{"channel": "inbox"}])
    path = f"/api/v1/monitors/{made['id']}"
    await create(rig, name="zeta")
    changed = await rig.client.patch(path, json={"grace": "1h"}, headers={"If-Match": '"1"'})
    assert changed.status_code == 200
    assert (changed.json()["grace"], changed.json()["version"]) == ("PT1H", 2)
    assert changed.json()["tags"] == ["db"]
    stale = await rig.client.patch(path, json={"grace": "2h"}, headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    assert (await rig.client.post(f"{path}/pause")).json()["status"] == "paused"
    await rig.client.get(f"{made['ping_url']}/fail")
    assert (await read(rig, made["id"]))["status"] == "paused"
    assert (await rig.client.post(f"{path}/resume")).json()["status"] == "up"
    page = (await rig.client.get("/api/v1/monitors", params={"limit": 1})).json()
    assert [each["name"] for each in page["items"]] == ["backup"]
    assert page["counts"] == {"new": 1, "up": 1, "late": 0, "down": 0, "paused": 0}
    params = {"limit": 1, "cursor": page["next_cursor"]}
    rest = (await rig.client.get("/api/v1/monitors", params=params)).json()
    assert [each["name"] for each in rest["items"]] == ["zeta"]
    assert rest["next_cursor"] is None
    only = (await rig.client.get("/api/v1/monitors", params={"status": "new"})).json()
    assert [each["name"] for each in only["items"]] == ["zeta"]
    rotated = (await rig.client.post(f"{path}/rotate")).json()
    assert rotated["ping_url"] != made["ping_url"]
    assert (await rig.client.get(made["ping_url"])).status_code == 404
    assert (await rig.client.get(rotated["ping_url"])).status_code == 200
    assert "chimes_monitors" in (await rig.client.get("/metrics")).text
    assert (await rig.client.delete(path)).status_code == 204
    assert (await rig.client.get(path)).status_code == 404
    assert (await rig.client.get(rotated["ping_url"])).status_code == 404
    entries = await rig.store.list_audit(AuditQuery(limit=100))
    verbs = [each.verb for each in entries if each.object_kind == "monitor"]
    assert verbs == [
        *("delete_monitor", "rotate_monitor", "resume_monitor", "pause_monitor"),
        *("update_monitor", "create_monitor", "create_monitor"),
    ]
    # No token is in the audit log, nor in any other entry.
    text = repr(entries)
    for url in (made["ping_url"], rotated["ping_url"]):
        assert url.rpartition("/")[2][12:] not in text


BAD: dict[str, tuple[dict[str, Any], str | None]] = {
    "no name": ({"name": " "}, "missing"),
    "short grace": ({"grace": "PT0.5S"}, "out_of_range"),
    "long grace": ({"grace": "P400D"}, "out_of_range"),
    "no trigger": ({"trigger": {"kind": "cron", "expression": "99 * * * *"}}, None),
    "never": ({"trigger": {"kind": "once", "at": "2020-01-01T00:00:00Z"}}, "never_fires"),
    "event": ({"trigger": {"kind": "webhook"}}, "not_supported"),
    "max_runs": ({"trigger": EVERY | {"max_runs": 3}}, "not_supported"),
    "unknown field": ({"colour": "red"}, "unknown_field"),
    "tags": ({"tags": ["x" * 60]}, "too_many"),
    "escalation": (
        {"delivery": [{"channel": "inbox", "on": ["failure"], "after": "5m"}]},
        "not_supported",
    ),
    "recipient": ({"delivery": [{"channel": "webhook", "to": "nowhere"}]}, None),
}


async def test_bad_input_is_refused_and_changes_nothing(rig: Rig) -> None:
    made = await create(rig)
    before = await rig.snapshot()
    for name, (fields, code) in BAD.items():
        body = {"name": "backup", "trigger": EVERY, "grace": "5m"} | fields
        answer = await rig.client.post("/api/v1/monitors", json=body)
        assert answer.status_code == 422, name
        assert code is None or answer.json()["code"] == code, (name, answer.json())
        patched = await rig.client.patch(f"/api/v1/monitors/{made['id']}", json=fields)
        assert patched.status_code == 422, name
    assert await rig.snapshot() == before


async def test_a_repeated_request_creates_one_monitor(rig: Rig) -> None:
    body = {"name": "backup", "trigger": EVERY}
    headers = {"Idempotency-Key": "once"}
    first = await rig.client.post("/api/v1/monitors", json=body, headers=headers)
    again = await rig.client.post("/api/v1/monitors", json=body, headers=headers)
    assert first.json()["id"] == again.json()["id"]
    assert (await rig.client.get("/api/v1/monitors")).json()["counts"]["new"] == 1


async def test_roles_see_and_change_what_they_may(rig: Rig) -> None:
    owned = {"owner": {"type": "user", "id": "alice"}}
    made = await create(rig, **owned)
    keys = {
        "member": await rig.key(Role.MEMBER, ALICE),
        "viewer": await rig.key(Role.VIEWER, ALICE),
        "operator": await rig.key(Role.OPERATOR),
        "admin": await rig.key(Role.ADMIN),
        "stranger": await rig.key(Role.MEMBER, BOB),
    }
    path = f"/api/v1/monitors/{made['id']}"
    for name, headers in keys.items():
        found = await rig.client.get(path, headers=headers)
        assert found.status_code == (404 if name == "stranger" else 200)
        listed = (await rig.client.get("/api/v1/monitors", headers=headers)).json()
        assert len(listed["items"]) == (0 if name == "stranger" else 1)
        if name == "stranger":
            continue
        shown = not found.json()["ping_url"].endswith("***")
        assert shown == (name in ("member", "admin")), name
        patched = await rig.client.patch(path, json={"grace": "9m"}, headers=headers)
        assert patched.status_code == (200 if name in ("member", "admin") else 403), name
        paused = await rig.client.post(f"{path}/pause", headers=headers)
        assert paused.status_code == (403 if name == "viewer" else 200), name
    other = {"name": "x", "trigger": EVERY} | owned
    refused = await rig.client.post("/api/v1/monitors", json=other, headers=keys["stranger"])
    assert refused.status_code == 403
    # Without a key only pings are answered.
    assert (await rig.client.get(path)).status_code == 401
    assert (await rig.client.get(made["ping_url"])).status_code == 200


HEALTHCHECKS = {
    "checks": [
        {"name": "hourly", "slug": "hourly", "tags": "prod db", "grace": 600, "timeout": 3600},
        {
            "name": "nightly",
            "tags": "",
            "grace": 1800,
            "schedule": "0 2 * * *",
            "tz": "Europe/Berlin",
            "status": "paused",
            "desc": "x",
        },
        {"name": "oncalendar", "grace": 60, "schedule": "Mon..Fri 09:00", "tz": "UTC"},
        {"name": "backup", "grace": 60, "timeout": 60},
        {"name": "broken", "timeout": "soon"},
    ]
}


async def test_checks_of_healthchecks_are_imported_after_a_preview(rig: Rig) -> None:
    await create(rig)
    before = await rig.snapshot()
    body = {"data": HEALTHCHECKS, "dry_run": True}
    plan = (await rig.client.post("/api/v1/monitors/import", json=body)).json()
    actions = ["create", "create", "error", "skip", "error"]
    assert [each["action"] for each in plan["items"]] == actions
    assert await rig.snapshot() == before
    done = (await rig.client.post("/api/v1/monitors/import", json={"data": HEALTHCHECKS})).json()
    assert done["applied"]
    assert [each["action"] for each in done["items"]] == actions
    hourly = await read(rig, done["items"][0]["id"])
    assert (hourly["trigger"], hourly["grace"], hourly["tags"], hourly["status"]) == (
        {"kind": "every", "every": "PT1H"},
        "PT10M",
        ["prod", "db"],
        "new",
    )
    nightly = await read(rig, done["items"][1]["id"])
    assert nightly["trigger"]["timezone"] == "Europe/Berlin"
    assert nightly["status"] == "paused"
    assert (await rig.client.get(done["items"][0]["ping_url"])).status_code == 200
    again = (await rig.client.post("/api/v1/monitors/import", json={"data": HEALTHCHECKS})).json()
    assert [each["action"] for each in again["items"]][:2] == ["skip", "skip"]
    bad = await rig.client.post("/api/v1/monitors/import", json={"data": {"a": 1}})
    assert bad.status_code == 422


async def test_monitors_are_part_of_an_export(rig: Rig) -> None:
    made = await create(rig)
    await rig.client.post(made["ping_url"], content=b"fine")
    items = [item async for item in rig.store.dump()]
    clock = SettableClock(rig.clock.now())
    other = MemoryStore(clock)
    await other.load(items)
    async with serving(other, clock) as restored:
        found = await read(restored, made["id"])
        assert (found["status"], found["ping_url"]) == ("up", made["ping_url"])
        assert (await restored.client.get(made["ping_url"])).status_code == 200
