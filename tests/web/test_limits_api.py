"""Named limits and `auto_pause_after` over the API and in the dashboard."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from chimes.model.access import Owner, OwnerType, Role
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery
from chimes.model.planning import plan
from chimes.model.run import AttemptEnd, RunStatus
from tests.builders import ALICE, BOB, a_completion, a_node, claim_request
from tests.web.dashboard.browsing import browsing
from tests.web.rig import Rig, serving

LIMITS = "/api/v1/limits"
SCHEDULES = "/api/v1/schedules"
EVERY = {"kind": "every", "every": "1m"}


async def test_a_limit_is_set_replaced_used_and_deleted() -> None:
    async with serving() as rig:
        put = await rig.client.put(f"{LIMITS}/api.example.com", json={"rate": "10/s", "burst": 20})
        assert put.status_code == 200, put.text
        made = put.json()
        assert {key: made[key] for key in ("name", "concurrency", "rate", "burst", "breaker")} == {
            "name": "api.example.com",
            "concurrency": None,
            "rate": "10/s",
            "burst": 20,
            "breaker": None,
        }
        assert made["use"]["available"] == 20
        schedule = await rig.create(policy={"limits": ["api.example.com"], "auto_pause_after": 3})
        assert schedule["policy"]["limits"] == ["api.example.com"]
        assert schedule["policy"]["auto_pause_after"] == 3
        body = {"concurrency": 5, "breaker": {"failures": 5, "pause": "1m"}}
        replaced = (await rig.client.put(f"{LIMITS}/api.example.com", json=body)).json()
        assert (replaced["rate"], replaced["burst"], replaced["concurrency"]) == (None, None, 5)
        assert replaced["breaker"] == {"failures": 5, "pause": "PT1M"}
        assert replaced["use"]["breaker"] == "closed"
        assert replaced["created_at"] == made["created_at"]
        (listed,) = (await rig.client.get(LIMITS)).json()["items"]
        assert listed["schedules"] == [{"id": schedule["id"], "name": schedule["name"]}]
        assert (await rig.client.get(f"{LIMITS}/api.example.com")).json() == listed
        refused = await rig.client.delete(f"{LIMITS}/api.example.com")
        assert (refused.status_code, refused.json()["code"]) == (409, "limit_in_use")
        assert schedule["id"] in refused.json()["detail"]
        path = f"{SCHEDULES}/{schedule['id']}"
        changed = await rig.client.patch(path, json={"policy": {"limits": []}})
        assert changed.json()["policy"]["limits"] == []
        assert (await rig.client.delete(f"{LIMITS}/api.example.com")).status_code == 204
        assert (await rig.client.delete(f"{LIMITS}/api.example.com")).status_code == 404
        assert (await rig.client.get(LIMITS)).json() == {"items": []}
        verbs = [each.verb for each in await rig.store.list_audit(AuditQuery())]
        assert (verbs.count("set_limit"), verbs.count("delete_limit")) == (2, 1)


async def test_bad_input_is_refused_and_changes_nothing() -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("api", {}, "empty_limit"),
        ("api", {"burst": 3}, "burst_without_rate"),
        ("api", {"rate": "fast"}, "bad_rate"),
        ("api", {"rate": "0/s"}, "bad_rate"),
        ("api", {"rate": "10/w"}, "bad_rate"),
        ("api", {"rate": "-1/s"}, "bad_rate"),
        ("api", {"concurrency": 0}, "greater_than_equal"),
        ("api", {"concurrency": 1001}, "less_than_equal"),
        ("api", {"rate": "1/s", "burst": 0}, "greater_than_equal"),
        ("api", {"breaker": {"failures": 0, "pause": "1m"}}, "greater_than_equal"),
        ("api", {"breaker": {"failures": 1, "pause": "1ms"}}, "out_of_range"),
        ("api", {"breaker": {"failures": 1, "pause": "2 moons"}}, "bad_duration"),
        ("api", {"breaker": {"failures": 1}}, "missing"),
        ("api", {"speed": 3}, "unknown"),
        ("a b", {"concurrency": 1}, "limit_name"),
        ("-a", {"concurrency": 1}, "limit_name"),
        ("a" * 65, {"concurrency": 1}, "limit_name"),
    ]
    policies: list[tuple[dict[str, Any], str]] = [
        ({"limits": ["nowhere"]}, "unknown_limit"),
        ({"limits": ["a b"]}, "limit_name"),
        ({"limits": ["known", "known"]}, "twice"),
        ({"limits": [f"l{number}" for number in range(9)]}, "too_long"),
        ({"auto_pause_after": 0}, "out_of_range"),
        ({"auto_pause_after": 101}, "out_of_range"),
    ]
    async with serving() as rig:
        await rig.client.put(f"{LIMITS}/known", json={"concurrency": 1})
        before = await rig.snapshot()
        failed = []
        for name, body, code in wrong:
            answer = await rig.client.put(f"{LIMITS}/{name}", json=body)
            if answer.status_code not in (400, 422) or code not in answer.text:
                failed.append((name, body, answer.status_code, answer.text))
        for policy, code in policies:
            for path, body in (
                (SCHEDULES, {"name": "x", "trigger": EVERY, "policy": policy}),
                ("/api/v1/runs", {"policy": policy}),
            ):
                target = {"kind": "http", "url": "https://example.com/"}
                answer = await rig.client.post(path, json={"target": target, **body})
                if answer.status_code != 422 or code not in answer.text:
                    failed.append((path, policy, answer.status_code, answer.text))
        assert not failed, "\n".join(map(str, failed))
        assert await rig.snapshot() == before


async def test_limits_of_others_do_not_exist_and_shared_ones_belong_to_admins() -> None:
    async with serving() as rig:
        admin = await rig.key(Role.ADMIN)
        alice, bob = await rig.key(Role.MEMBER, ALICE), await rig.key(Role.MEMBER, BOB)
        viewer = await rig.key(Role.VIEWER, ALICE)

        async def ask(method: str, path: str, who: dict[str, str], **given: Any) -> tuple[int, Any]:
            answer = await rig.client.request(method, f"{LIMITS}{path}", headers=who, **given)
            return answer.status_code, answer.json() if answer.content else None

        one = {"concurrency": 1}
        assert (await ask("PUT", "/mine", alice, json=one))[0] == 200
        assert (await ask("PUT", "/mine", viewer, json=one))[0] == 403
        assert (await ask("GET", "/mine", bob))[0] == 404
        assert (await ask("GET", f"?owner={ALICE}", bob))[0] == 404
        assert (await ask("DELETE", f"/mine?owner={ALICE}", bob))[0] == 404
        assert (await ask("PUT", "/all?shared=true", alice, json=one))[0] == 403
        assert (await ask("PUT", "/all?shared=true", admin, json=one))[0] == 200
        listed = (await ask("GET", "", bob))[1]["items"]
        assert [(each["name"], each["shared"], each["owner"]) for each in listed] == [
            ("all", True, None)
        ]
        assert (await ask("DELETE", "/all?shared=true", bob))[0] == 403
        seen = (await ask("GET", f"?owner={ALICE}", admin))[1]["items"]
        assert [each["name"] for each in seen] == ["all", "mine"]
        # Schedules of every owner keep a shared limit in use.
        body = {
            "name": "of bob",
            "trigger": EVERY,
            "target": {"kind": "http", "url": "https://example.com/"},
            "policy": {"limits": ["all"]},
        }
        made = await rig.client.post(SCHEDULES, json=body, headers=bob)
        assert made.status_code == 201, made.text
        status, problem = await ask("DELETE", "/all?shared=true", admin)
        assert (status, "of bob" in problem["detail"]) == (409, True)


async def fail_once(rig: Rig, schedule_id: str) -> None:
    rig.clock.advance(60)
    await rig.store.join(a_node(), timedelta(days=1))
    await rig.store.fire_due(plan, limit=10)
    for run in await rig.store.claim(claim_request()):
        completion = a_completion(run, rig.clock.now(), AttemptEnd.FAILED, error="no answer")
        await rig.store.finish([completion])


async def test_a_schedule_that_pauses_itself_is_shown_and_resumed_with_one_click() -> None:
    async with browsing() as browser:
        rig = browser.rig
        made = await rig.create(trigger=EVERY, policy={"auto_pause_after": 2})
        for _number in range(2):
            await fail_once(rig, made["id"])
        path = f"{SCHEDULES}/{made['id']}"
        shown = (await rig.client.get(path)).json()
        assert (shown["enabled"], shown["pause"]["note"]) == (
            False,
            "paused after 2 failures in a row",
        )
        rig.clock.advance(120)
        why = (await rig.client.get(f"{path}/why")).json()
        assert "paused after 2 failures in a row" in str(why)
        today = (await browser.get("/ui/")).text
        assert "Stopped: paused after 2 failures in a row" in today
        assert "no answer" in today
        detail = (await browser.get(f"/ui/schedules/{made['id']}")).text
        assert "paused after 2 failures in a row" in detail
        await browser.send(f"/ui/schedules/{made['id']}/resume", on="/ui/")
        resumed = await rig.store.get_schedule(ScheduleId(made["id"]))
        assert resumed is not None
        assert (resumed.enabled, resumed.pause_note) == (True, "")
        assert resumed.last_status is RunStatus.FAILED
        assert "Stopped" not in (await browser.get("/ui/")).text


async def test_limits_in_the_dashboard() -> None:
    here = "/ui/system/limits"
    async with browsing() as browser:
        assert "No limits" in (await browser.get(here)).text
        bad = await browser.send(here, on=here, name="api", rate="often")
        assert bad.status_code == 422
        assert "is not a rate" in bad.text
        await browser.follow(await browser.send(here, on=here, name="api", rate="10/s", burst="7"))
        await browser.follow(
            await browser.send(
                here, on=here, name="shop", concurrency="3", failures="5", pause="1m"
            )
        )
        page = (await browser.get(here)).text
        assert "7 of 7 at once" in page
        assert "0 of 3" in page
        assert "closed" in page
        gone = await browser.send(f"{here}/api/remove", on=here, sure="yes")
        await browser.follow(gone)
        page = (await browser.get(here)).text
        assert ("7 of 7" in page, "shop" in page) == (False, True)


def test_owners_have_separate_documents() -> None:
    from chimes.model.run import owner_key

    owners = [
        Owner(type=OwnerType.USER, id=each) for each in ("a", "a/b", "%", "*", "x" * 300, "x" * 301)
    ]
    assert len({owner_key(each) for each in owners}) == len(owners)
    assert all("/" not in owner_key(each) for each in owners)
