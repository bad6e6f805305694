"""Notifications in the editor: lateness, digests, quiet hours, test notifications."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chimes.model.listing import DeliveryQuery
from chimes.model.notification import DeliveryCompletion
from chimes.model.recipient import NotifyOn
from chimes.services.notifications import TEST_BURST
from chimes.web.dashboard.editor.form import form_field_for
from chimes.web.dashboard.editor.recipient_fields import recipient_fields, recipients_body
from tests.web.dashboard.browsing import browsing
from tests.web.dashboard.form_helpers import fields_on, fill

NEW = "/ui/schedules/new"
FULL: dict[str, Any] = {
    "channel": "email",
    "to": "ada@example.com",
    "on": ["failure", "late"],
    "language": "th",
    "signing_secrets": [],
    "late_after": "5m",
    "quiet": {"from": "22:00", "to": "07:00", "zone": "Asia/Tokyo", "except": ["failure"]},
    "digest": {
        "every": "weekly",
        "at": "09:15",
        "on": "friday",
        "zone": "Asia/Bangkok",
        "except": ["failure", "late"],
    },
}
BARE: dict[str, Any] = {
    "channel": "inbox",
    "to": "",
    "on": ["always"],
    "language": "",
    "signing_secrets": [],
}


def test_recipient_fields_round_trip() -> None:
    assert recipients_body(recipient_fields([FULL, BARE])) == [FULL, BARE]


def test_fields_hidden_for_the_inbox_are_not_sent() -> None:
    """The fields are hidden when the channel is chosen, and may contain old values."""
    fields = recipient_fields([FULL | {"channel": "inbox"}])
    (plain,) = recipients_body(fields)
    assert (plain["to"], "quiet" in plain, "digest" in plain) == ("", False, True)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("delivery.0.quiet.to", "notify2_quiet_to"),
        ("delivery[0].quiet", "notify2_quiet_from"),
        ("delivery.0.quiet.except.0", "notify2_quiet_but"),
        ("delivery.0.digest.every", "notify2_digest"),
        ("delivery[0].digest.zone", "notify2_digest_zone"),
        ("delivery.0.late_after", "notify2_late"),
        ("delivery.0.on.1", "notify2_on"),
        ("delivery[0].signing_secrets[0]", "notify2_secrets"),
        ("delivery.0", "notify2_channel"),
    ],
)
def test_errors_of_recipients_map_to_their_field(name: str, place: str) -> None:
    assert form_field_for(name, {"notify2_channel": "inbox"}) == place


async def test_all_notification_settings_can_be_saved_and_changed() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(delivery=[FULL | {"late_after": "PT5M"}])
        address = f"/ui/schedules/{made['id']}/edit"
        page = await browser.get(address)
        shown = fields_on(page.text)
        assert (shown["notify0_digest"], shown["notify0_digest_day"]) == ("weekly", "friday")
        assert (shown["notify0_quiet_from"], shown["notify0_late"]) == ("22:00", "5m")
        assert shown["notify0_quiet_but"] == "failure"
        assert shown["notify0_digest_but"] == ["failure", "late"]
        done = await fill(browser, address, notify0_digest="daily", notify0_digest_at="10:00")
        assert done.status_code == 303
        now = (await browser.rig.client.get(f"/api/v1/schedules/{made['id']}")).json()["delivery"]
        digest = now[0].pop("digest")
        assert (digest["every"], digest["at"], digest["zone"]) == ("daily", "10:00", "Asia/Bangkok")
        before = made["delivery"][0]
        del before["digest"]
        assert now == [before]


async def test_half_of_a_quiet_time_is_reported_at_the_other_half() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(
            browser,
            NEW,
            when="cron",
            expression="0 9 * * *",
            kind="http",
            url="http://127.0.0.1:9/",
            notify0_channel="email",
            notify0_to="ada@example.com",
            notify0_quiet_from="22:00",
        )
        assert page.status_code == 422
        assert 'id="e-notify0_quiet_to" data-error="notify0_quiet_to" role="alert"' in page.text


async def test_a_test_notification_is_sent_to_one_recipient() -> None:
    async with browsing() as browser:
        store = browser.rig.store

        async def delivered() -> None:
            async with asyncio.timeout(60):
                while not (found := (await store.list_deliveries(DeliveryQuery())).items):
                    await store.wait_for_work(store.changes(), None)
            (test,) = found
            assert (test.notify_on, test.recipient.to) == (NotifyOn.TEST, "ada@example.com")
            await store.finish_deliveries(
                [DeliveryCompletion(delivery_id=test.id, fence=test.fence, sent=True)]
            )

        await browser.get(NEW)
        page, _ = await asyncio.gather(
            fill(browser, NEW, do_="test:0", notify0_channel="email", notify0_to="ada@example.com"),
            delivered(),
        )
        assert page.status_code == 200
        assert "Test notification delivered (e-mail)." in page.text
        assert (await browser.rig.client.get("/api/v1/schedules")).json()["items"] == []
        assert fields_on(page.text)["notify0_to"] == "ada@example.com"


async def test_a_failed_test_notification_reports_field_and_reason() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="test:0", notify0_channel="email", notify0_to="nobody")
        assert page.status_code == 422
        assert 'id="e-notify0_to" data-error="notify0_to" role="alert"' in page.text
        page = await fill(browser, NEW, do_="test:0", notify0_channel="")
        assert page.status_code == 422
        assert "choose a channel" in page.text
        taken = await browser.rig.store.take_tokens(
            "test:system:default", rate=0.001, burst=TEST_BURST, count=TEST_BURST
        )
        assert taken.granted
        page = await fill(browser, NEW, do_="test:0", notify0_channel="inbox", notify0_to="")
        assert "try again in a minute" in page.text
