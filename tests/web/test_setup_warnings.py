"""Warnings about schedules that are valid and cannot work, because a setting is missing."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from chimes.config import Settings
from chimes.egress import EgressRules, ModeEgress
from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.listing import Page, ScheduleQuery
from chimes.model.node import Node
from chimes.model.policy import Policy, RunDefaults
from chimes.model.schedule import Schedule
from chimes.model.validation import check_target
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import NOW, a_node
from tests.web.dashboard.browsing import browsing
from tests.web.dashboard.form_helpers import fill
from tests.web.rig import HTTP, Rig, definition, serving

EMAIL = {"channel": "email", "to": "ada@example.com", "on": ["failure"]}
TELEGRAM = {"channel": "telegram", "to": "4711", "on": ["failure"]}
AGENT = {"kind": "agent", "prompt": "Summarise the news"}


async def codes(rig: Rig, **given: Any) -> list[tuple[str, str]]:
    name = f"report {uuid.uuid4().hex}"
    answer = await rig.client.post("/api/v1/schedules", json=definition(name=name, **given))
    assert answer.status_code == 201, answer.text
    made = answer.json()
    read = (await rig.client.get(f"/api/v1/schedules/{made['id']}")).json()
    assert read["warnings"] == made["warnings"]
    return [(each["code"], each["field"]) for each in made["warnings"]]


async def test_creating_and_editing_warns_of_missing_settings(any_rig: Rig) -> None:
    rig = any_rig
    assert await codes(rig) == []
    recipients = [{"channel": "inbox", "to": "", "on": ["always"]}, EMAIL, TELEGRAM]
    assert await codes(rig, delivery=recipients) == [
        ("channel_not_configured", "delivery[1]"),
        ("channel_not_configured", "delivery[2]"),
    ]
    assert await codes(rig, target=AGENT) == [("no_pipeline", "target")]
    action = {"kind": "action", "kn_id": "k", "action_type_id": "a", "identities": [{"id": "1"}]}
    assert await codes(rig, target=action) == [("no_action_service", "target")]
    made = await rig.create()
    path = f"/api/v1/schedules/{made['id']}"
    (warning,) = (await rig.client.patch(path, json={"delivery": [EMAIL]})).json()["warnings"]
    assert "CHIMES_SMTP_URL" in warning["message"]
    thai = await rig.client.get(path, headers={"Accept-Language": "th"})
    assert thai.json()["warnings"][0]["message"] != warning["message"]
    system = (await rig.client.get("/api/v1/system")).json()["warnings"]
    assert {each["code"] for each in system} == {
        *("channel_not_configured", "no_pipeline", "no_action_service")
    }
    assert made["id"] in {each["schedule_id"] for each in system}


async def test_what_live_nodes_offer_decides_and_not_the_settings_of_the_api_node() -> None:
    settings = Settings(smtp_url="smtp://mail.example.com", smtp_from="a@example.com")
    async with serving(settings=settings) as rig:
        assert await codes(rig, delivery=[EMAIL]) == [], "without a live worker, its own settings"
        able = a_node(
            "able",
            capabilities=("agent", "http", "channel:telegram"),
            defaults={"agent": RunDefaults(policy=Policy())},
        )
        await rig.store.join(able, timedelta(minutes=1))
        await rig.store.join(
            replace(able, id="plain", capabilities=("agent",), defaults={}), timedelta(minutes=5)
        )
        assert await codes(rig, delivery=[TELEGRAM], target=AGENT) == []
        assert await codes(rig, delivery=[EMAIL]) == [("channel_not_configured", "delivery[0]")]
        rig.clock.advance(timedelta(minutes=2))
        # The lease of the node that has them is over.
        assert await codes(rig, delivery=[TELEGRAM], target=AGENT) == [
            ("no_pipeline", "target"),
            ("channel_not_configured", "delivery[0]"),
        ]


async def test_a_mask_without_a_stored_secret_warns(rig: Rig) -> None:
    target = HTTP | {"url": "http://127.0.0.1:9/?token=***", "body": '{"password": "***"}'}
    assert await codes(rig, target=target) == [("masked", "target.url"), ("masked", "target.body")]
    plain = HTTP | {"body": '{"text": "***bold***"}'}
    assert await codes(rig, target=plain) == []


def with_egress(rig: Rig, rules: EgressRules) -> Rig:
    """The rig with the rules of a real server for private addresses."""
    access = rig.context.access
    egress = ModeEgress(
        open_mode=lambda: access.open_mode,
        while_open=replace(rules, open_mode=True),
        with_keys=rules,
    )
    checked = ScheduleRules(
        rig.store, check_target=lambda target: check_target(target, egress=egress), egress=egress
    )
    object.__setattr__(rig.context, "schedules", ScheduleService(rig.store, checked))
    return rig


async def test_the_first_key_lists_the_callbacks_that_it_denies(rig: Rig) -> None:
    with_egress(rig, EgressRules(open_mode=False, allow=("10.0.0.1:8080",)))
    private = await rig.create(name="private", target=HTTP | {"url": "http://10.1.2.3:8080/"})
    await rig.create(name="named", target=HTTP | {"url": "http://localhost:9000/"})
    await rig.create(name="allowed", target=HTTP | {"url": "http://10.0.0.1:8080/"})
    await rig.create(name="public", target=HTTP | {"url": "http://93.184.216.34/"})
    body = {"name": "first", "role": "admin"}
    made = (await rig.client.post("/api/v1/keys", json=body)).json()
    denied = {each["schedule_name"]: each for each in made["warnings"]}
    assert set(denied) == {"private", "named"}
    assert denied["private"]["schedule_id"] == private["id"]
    assert "egress_allow" in denied["private"]["message"]
    headers = {"Authorization": f"Bearer {made['key']}"}
    second = await rig.client.post("/api/v1/keys", json=body, headers=headers)
    assert second.json()["warnings"] == []
    # The schedule itself warns from then on.
    path = f"/api/v1/schedules/{private['id']}"
    (warning,) = (await rig.client.get(path, headers=headers)).json()["warnings"]
    assert (warning["code"], warning["field"]) == ("egress_denied", "target.url")


async def test_the_first_user_lists_the_callbacks_that_it_denies(rig: Rig) -> None:
    with_egress(rig, EgressRules(open_mode=False))
    await rig.create(name="private", target=HTTP | {"url": "http://10.1.2.3:8080/"})
    await rig.create(name="public", target=HTTP | {"url": "http://93.184.216.34/"})
    body = {"name": "anna", "password": "correct horse battery", "role": "admin"}
    made = (await rig.client.post("/api/v1/users", json=body)).json()
    assert [each["schedule_name"] for each in made["warnings"]] == ["private"]
    assert "egress_allow" in made["warnings"][0]["message"]


async def test_pages_show_warnings_in_needs_attention_the_editor_and_with_a_new_key() -> None:
    async with browsing() as browser:
        with_egress(browser.rig, EgressRules(open_mode=False))
        await browser.rig.create(
            name="mailing", delivery=[EMAIL], target=HTTP | {"url": "http://127.0.0.1:9000/"}
        )
        page = await browser.get("/ui/")
        assert "It cannot work: no node has the channel email: set CHIMES_SMTP_URL" in page.text
        await browser.get("/ui/schedules/new")
        fields = {"name": "x", "kind": "http", "url": "http://127.0.0.1:9/", "when": "every"}
        shown = await fill(
            browser, "/ui/schedules/new", do_="preview", notify0_channel="telegram", **fields
        )
        assert "Notifications fail: no node has the channel telegram" in shown.text
        made = await browser.send(
            "/ui/system/access/keys", on="/ui/system/access", name="first", role="admin"
        )
        assert "the callbacks of these schedules are denied" in made.text
        assert "127.0.0.1:9000 is a private address" in made.text


class UnavailableReads(MemoryStore):
    """Nodes and lists of schedules cannot be read once `unavailable` is set."""

    unavailable = False

    async def nodes(self) -> tuple[Node, ...]:
        if self.unavailable:
            raise StoreUnavailable("the store does not answer")
        return await super().nodes()

    async def list_schedules(self, query: ScheduleQuery) -> Page[Schedule]:
        if self.unavailable:
            raise StoreUnavailable("the store does not answer")
        return await super().list_schedules(query)


async def test_a_change_is_answered_although_its_warnings_cannot_be_found() -> None:
    """Else a repetition with the same Idempotency-Key would skip another slot."""
    clock = SettableClock(NOW)
    store = UnavailableReads(clock)
    async with serving(store, clock) as rig:
        made = await rig.create(delivery=[EMAIL])
        store.unavailable = True
        path, headers = f"/api/v1/schedules/{made['id']}/skip", {"Idempotency-Key": "once"}
        answers = [await rig.client.post(path, headers=headers) for _ in range(2)]
        assert [each.status_code for each in answers] == [200, 200]
        assert answers[0].json()["warnings"] == []
        assert answers[0].json()["next_run_at"] == answers[1].json()["next_run_at"]


async def test_the_first_key_is_shown_although_denied_callbacks_cannot_be_found() -> None:
    clock = SettableClock(NOW)
    store = UnavailableReads(clock)
    async with serving(store, clock) as rig:
        store.unavailable = True
        made = await rig.client.post("/api/v1/keys", json={"name": "first", "role": "admin"})
        assert made.status_code == 201
        assert made.json()["warnings"] == []
        headers = {"Authorization": f"Bearer {made.json()['key']}"}
        assert (await rig.client.get("/api/v1/keys", headers=headers)).status_code == 200
