"""Secrets in URLs, bodies and arguments are shown as `***`, and kept when it is sent back."""

from __future__ import annotations

import json
import re
from typing import Any

from chimes.model.access import Role
from chimes.model.target import ActionTarget, HttpTarget
from chimes.web.compat.ksana.routes import ksana_router
from chimes.web.compat.kweaver.routes import kweaver_router
from tests.builders import ALICE
from tests.web.compat.kweaver.requests import KN1
from tests.web.compat.kweaver.requests import create as create_action
from tests.web.dashboard.browsing import browsing
from tests.web.dashboard.form_helpers import fields_on, fill
from tests.web.rig import HTTP, Rig, definition, serving

URL = "http://127.0.0.1:9/hook?token=hush-1&page=2&sig=hush-2"
BODY = '{"user": "ann",  "login": {"password": "hush-3", "n": [1, {"api_key": "hush-4"}]}}'
HOOK = "https://hooks.example.com/x?access_token=hush-5"
TARGET = HTTP | {"url": URL, "body": BODY}
DELIVERY = [{"channel": "webhook", "to": HOOK, "on": ["failure"]}]
SHOWN_URL = "http://127.0.0.1:9/hook?token=***&page=2&sig=***"
SHOWN_BODY = '{"user": "ann",  "login": {"password": "***", "n": [1, {"api_key": "***"}]}}'
SHOWN_HOOK = "https://hooks.example.com/x?access_token=***"


async def stored(rig: Rig, made: dict[str, Any]) -> HttpTarget:
    found = await rig.store.get_schedule(made["id"])
    assert found is not None
    assert isinstance(found.target, HttpTarget)
    return found.target


async def test_url_and_body_are_masked_in_schedules_runs_audit_and_kept(any_rig: Rig) -> None:
    rig = any_rig
    answer = await rig.client.post(
        "/api/v1/schedules", json=definition(target=TARGET, delivery=DELIVERY)
    )
    made = answer.json()
    assert "hush" not in answer.text
    assert made["target"]["url"] == SHOWN_URL
    assert made["target"]["body"] == SHOWN_BODY
    assert made["delivery"][0]["to"] == SHOWN_HOOK
    path = f"/api/v1/schedules/{made['id']}"
    started = await rig.client.post(f"{path}/run", json={})
    run_id = started.json()["id"]
    pages = [
        started,
        await rig.client.get(path),
        await rig.client.get("/api/v1/schedules"),
        await rig.client.get("/api/v1/runs"),
        await rig.client.get(f"/api/v1/runs/{run_id}"),
        await rig.client.get("/api/v1/audit"),
    ]
    assert [page.url for page in pages if "hush" in page.text or page.status_code >= 300] == []
    # Sent back as it was read, with a change beside each secret.
    back = {
        "target": {
            "url": SHOWN_URL.replace("page=2", "page=3"),
            "body": SHOWN_BODY.replace("ann", "bob"),
        },
        "delivery": made["delivery"],
    }
    changed = await rig.client.patch(path, json=back)
    assert (changed.status_code, "hush" in changed.text) == (200, False)
    target = await stored(rig, made)
    assert target.url == URL.replace("page=2", "page=3")
    assert target.body == BODY.replace("ann", "bob")
    kept = await rig.store.get_schedule(made["id"])
    assert kept is not None
    assert kept.policy.delivery[0].to == HOOK
    run = await rig.store.get_run(run_id)
    assert run is not None
    assert (run.target.url, run.target.body) == (URL, BODY), "executed with the secrets"


async def test_a_body_sent_as_json_and_new_secrets_replace_the_stored_ones(rig: Rig) -> None:
    made = await rig.create(target=TARGET)
    path = f"/api/v1/schedules/{made['id']}"
    shown = json.loads(SHOWN_BODY)
    shown["login"]["password"] = "hush-new"
    await rig.client.patch(path, json={"target": {"body": shown}})
    login = json.loads((await stored(rig, made)).body)["login"]
    assert login == {"password": "hush-new", "n": [1, {"api_key": "hush-4"}]}
    # A single run likewise.
    again = await rig.client.post(f"{path}/run", json={"body": SHOWN_BODY})
    run = await rig.store.get_run(again.json()["id"])
    assert run is not None
    assert json.loads(run.target.body)["login"] == login


async def test_two_recipients_that_differ_in_their_secret_keep_theirs(rig: Rig) -> None:
    delivery = [*DELIVERY, {**DELIVERY[0], "to": HOOK.replace("hush-5", "hush-6")}]
    made = await rig.create(delivery=delivery)
    path = f"/api/v1/schedules/{made['id']}"
    await rig.client.patch(path, json={"delivery": made["delivery"]})
    kept = await rig.store.get_schedule(made["id"])
    assert kept is not None
    assert [each.to for each in kept.policy.delivery] == [each["to"] for each in delivery]


async def test_urls_and_documents_in_arguments_are_masked_and_kept(rig: Rig) -> None:
    params = {"level": 3, "auth": {"user": "hush-1"}, "callback": HOOK, "raw": BODY}
    target = {
        "kind": "action",
        "kn_id": "kn",
        "action_type_id": "restart",
        "identities": [{"id": "a", "token": "hush-2"}],
        "params": params,
    }
    answer = await rig.client.post("/api/v1/schedules", json=definition(target=target))
    made = answer.json()
    assert (answer.status_code, "hush" in answer.text) == (201, False)
    assert made["target"]["params"]["callback"] == SHOWN_HOOK
    back = {key: made["target"][key] for key in ("identities", "params")}
    back["params"]["level"] = 4
    path = f"/api/v1/schedules/{made['id']}"
    assert (await rig.client.patch(path, json={"target": back})).status_code == 200
    kept = await rig.store.get_schedule(made["id"])
    assert kept is not None
    assert isinstance(kept.target, ActionTarget)
    assert kept.target.params == params | {"level": 4}
    assert kept.target.identities == ({"id": "a", "token": "hush-2"},)
    assert "hush" not in (await rig.client.get("/api/v1/audit")).text


async def test_compatibility_apis_mask_for_readers_and_keep_for_writers() -> None:
    async with serving(routers=[ksana_router, kweaver_router], fixed_keys=["root"]) as rig:
        root = {"Authorization": "Bearer root"}
        job = {
            "name": "ping",
            "http": {"method": "POST", "url": URL, "body": BODY},
            "schedule": {"kind": "every", "every": "5m"},
        }
        made = (await rig.client.post("/jobs", json=job, headers=root)).json()
        assert made["http"]["url"] == URL, "a writer reads what it may send back"
        operator = await rig.key(Role.OPERATOR, ALICE)
        seen = await rig.client.get(f"/jobs/{made['id']}", headers=operator)
        assert (seen.status_code, "hush" in seen.text) == (200, False)
        assert seen.json()["http"]["url"] == SHOWN_URL
        patch = {"http": seen.json()["http"]}
        sent = await rig.client.patch(f"/jobs/{made['id']}", json=patch, headers=root)
        assert sent.status_code == 200, sent.text
        target = await stored(rig, made)
        assert (target.url, target.body) == (URL, BODY)
        params = {"password": "hush-1", "n": 1}
        action = await create_action(rig, headers=root, dynamic_params=params)
        entry = await rig.client.get(f"{KN1}/{action}", headers=operator)
        assert entry.json()["dynamic_params"] == {"password": "***", "n": 1}
        put = {"dynamic_params": {"password": "***", "n": 2}}
        assert (await rig.client.put(f"{KN1}/{action}", json=put, headers=root)).is_success
        literal = await rig.client.get(f"{KN1}/{action}", headers=root)
        assert literal.json()["dynamic_params"] == {"password": "hush-1", "n": 2}


async def test_pages_mask_and_the_form_keeps_secrets() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(target=TARGET, delivery=DELIVERY)
        page = f"/ui/schedules/{made['id']}"
        run = await browser.rig.client.post(f"/api/v1/schedules/{made['id']}/run", json={})
        run_page = f"/ui/runs/{run.json()['id']}"
        pages = [
            *(page, f"{page}/definition", f"{page}/definition?format=json", f"{page}/copy"),
            *(f"{page}/run", f"{page}/deliveries", f"{page}/edit", "/ui/schedules"),
            *(run_page, f"{run_page}?tab=exchange", f"{run_page}?tab=input", f"{run_page}?tab=raw"),
            "/ui/system/audit",
        ]
        shown = {path: await browser.get(path) for path in pages}
        assert [path for path, each in shown.items() if "hush" in each.text] == []
        assert [path for path, each in shown.items() if each.status_code != 200] == []
        await browser.get(f"{page}/edit")
        fields = fields_on(browser.page)
        assert (fields["url"], fields["body"]) == (SHOWN_URL, SHOWN_BODY)
        url, body = SHOWN_URL.replace("page=2", "page=3"), SHOWN_BODY.replace("ann", "bob")
        saved = await browser.follow(await fill(browser, f"{page}/edit", url=url, body=body))
        assert "hush" not in saved.text
        target = await stored(browser.rig, made)
        assert target.url == URL.replace("page=2", "page=3")
        assert target.body == BODY.replace("ann", "bob")
        kept = await browser.rig.store.get_schedule(made["id"])
        assert kept is not None
        assert kept.policy.delivery[0].to == HOOK


FORM_BODY = "client_id=a&client_secret=hush-7&run={{ run_id }}&name=Bob Smith"


async def test_a_form_with_placeholders_and_spaces_is_masked_and_kept(rig: Rig) -> None:
    answer = await rig.client.post(
        "/api/v1/schedules", json=definition(target=HTTP | {"body": FORM_BODY})
    )
    made = answer.json()
    shown = FORM_BODY.replace("hush-7", "***")
    assert (made["target"]["body"], "hush" in answer.text) == (shown, False)
    patch = {"target": {"body": shown.replace("Bob", "Ann")}}
    assert (await rig.client.patch(f"/api/v1/schedules/{made['id']}", json=patch)).is_success
    assert (await stored(rig, made)).body == FORM_BODY.replace("Bob", "Ann")


SIGNING = "whsec_" + "aHVzaC1odXNoLWh1c2gtaHVzaC1odXNoLWh1c2g="
#: Stored fields, what an edit sends beside the new URL, and the secrets that it would keep.
KEPT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"headers": {"Authorization": "hush-1", "X-A": "b"}}, {}, "headers.Authorization"),
    (
        {"headers": {"Authorization": "hush-1", "X-Token": "hush-2"}},
        {"headers": {"Authorization": "new", "x-token": "***"}},
        "headers.x-token",
    ),
    ({"body": BODY}, {}, "body"),
    ({"body": BODY}, {"body": SHOWN_BODY}, "body"),
    ({"body": FORM_BODY}, {"body": "client_secret=***"}, "body"),
    ({"signing_secrets": [SIGNING]}, {}, "signing_secrets"),
    ({"signing_secrets": [SIGNING]}, {"signing_secrets": ["***"]}, "signing_secrets"),
]
OTHER_ORIGINS = ["http://127.0.0.1:10/hook", "https://127.0.0.1:9/hook", "http://127.0.0.2:9/hook"]


async def test_stored_secrets_do_not_follow_the_url_to_another_origin(rig: Rig) -> None:
    for number, (fields, sent, names) in enumerate(KEPT):
        made = await rig.create(name=f"s{number}", target=HTTP | fields)
        before = await stored(rig, made)
        for url in OTHER_ORIGINS:
            patch = {"target": {"url": url, **sent}}
            answer = await rig.client.patch(f"/api/v1/schedules/{made['id']}", json=patch)
            assert (answer.status_code, "hush" in answer.text) == (422, False), (patch, answer.text)
            (error,) = answer.json()["errors"]
            assert (error["code"], error["detail"].rpartition(": ")[2]) == ("masked", names)
            assert await stored(rig, made) == before
        same = {"target": {"url": "HTTP://127.0.0.1:9/other", **sent}}
        answer = await rig.client.patch(f"/api/v1/schedules/{made['id']}", json=same)
        assert answer.status_code == 200, answer.text


async def test_a_masked_url_is_not_kept_for_another_host(rig: Rig) -> None:
    made = await rig.create(target=HTTP | {"url": URL})
    path = f"/api/v1/schedules/{made['id']}"
    other = SHOWN_URL.replace(":9/", ":10/")
    answer = await rig.client.patch(path, json={"target": {"url": other}})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "masked")
    entered = other.replace("***", "new")
    assert (await rig.client.patch(path, json={"target": {"url": entered}})).is_success
    assert (await stored(rig, made)).url == entered


async def test_secrets_that_are_entered_again_or_removed_allow_another_host(rig: Rig) -> None:
    fields = {"headers": {"Authorization": "hush-1"}, "body": BODY, "signing_secrets": [SIGNING]}
    made = await rig.create(target=HTTP | fields)
    path = f"/api/v1/schedules/{made['id']}"
    again = {"target": {"url": OTHER_ORIGINS[0], **fields}}
    assert (await rig.client.patch(path, json=again)).is_success
    assert (await stored(rig, made)).headers == {"Authorization": "hush-1"}
    without = {"headers": {"X-A": "b"}, "body": '{"a": 1}', "signing_secrets": []}
    removed = {"target": {"url": OTHER_ORIGINS[2], **without}}
    assert (await rig.client.patch(path, json=removed)).is_success
    # Nothing is secret any more.
    assert (await rig.client.patch(path, json={"target": {"url": HTTP["url"]}})).is_success


async def test_pages_do_not_send_secrets_to_another_host() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(target=HTTP | {"headers": {"Authorization": "hush-1"}})
        path, page = f"/api/v1/schedules/{made['id']}", f"/ui/schedules/{made['id']}"
        await browser.get(f"{page}/edit")
        answer = await fill(browser, f"{page}/edit", url=OTHER_ORIGINS[0])
        assert answer.status_code == 422
        assert "headers.Authorization" in answer.text
        await browser.get(f"/ui/schedules/new?from={made['id']}")
        copied = await fill(browser, "/ui/schedules/new", url=OTHER_ORIGINS[0])
        assert copied.status_code == 422
        assert (await stored(browser.rig, made)).url == HTTP["url"]
        # An earlier version of another host does not get the secret of today.
        moved = {"url": OTHER_ORIGINS[0], "headers": {"Authorization": "hush-2"}}
        assert (await browser.rig.client.patch(path, json={"target": moved})).is_success
        shown = (await browser.get(f"{page}/definition")).text
        (restore,) = re.findall(r'action="([^"]+/versions/\d+/restore)"', shown)
        refused = await browser.send(restore)
        assert (refused.status_code, "headers.Authorization" in refused.text) == (422, True)
        assert (await stored(browser.rig, made)).url == OTHER_ORIGINS[0]
