"""Inbox over ASGI: folders, messages, actions and owners."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Owner, OwnerType, Role
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import AuditQuery, DeliveryQuery, InboxQuery
from chimes.model.notification import DeliveryState, InboxItem
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import Run, RunStatus
from chimes.model.target import AgentTarget, HttpTarget
from chimes.model.validation import MAX_PROMPT_BYTES
from chimes.notifications.base import DeliveryAttempt
from chimes.notifications.inbox import Inbox
from chimes.notifications.message import build_test_message
from chimes.notifications.outcomes import completion_of
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.inbox.routes import safe_html
from chimes.web.dashboard.inbox.views import parse_filter, snooze_choices
from tests.builders import NOW, a_delivery, an_entry, an_item, with_definition
from tests.notifications.attempts import an_ended_run
from tests.web.dashboard.browsing import Browser, browsing

ANNA = Owner(type=OwnerType.USER, id="anna")
HOSTILE = """# Report <script>alert(1)</script>

<img src=x onerror=alert(1)> ![spy](https://evil.example/p.png) [press](javascript:alert(1))
[data](data:text/html,x) [good](https://example.org/a?b=1&c=2) [mail](mailto:a@example.org)

| a | b |
|:--|--:|
| 1 | 2 |

```html
<b>raw</b>
```
"""


async def item_in(browser: Browser, **given: object) -> InboxItem:
    return await browser.rig.store.add_inbox(an_item(**{"owner": SYSTEM_OWNER, **given}))


async def stored_item(browser: Browser, item: InboxItem) -> InboxItem:
    query = InboxQuery(archived=None)
    found = (await browser.rig.store.list_inbox(query)).items
    return next(each for each in found if each.id == item.id)


async def test_an_empty_inbox_explains_itself_and_the_next_step() -> None:
    async with browsing() as browser:
        page = (await browser.get("/ui/inbox")).text
        assert "Nothing yet – connect Telegram or send yourself a test" in page
        assert 'href="/ui/telegram"' in page
        assert "Mark all as read" not in page


async def test_a_test_notification_arrives_in_the_inbox() -> None:
    async with browsing() as browser:
        store = browser.rig.store

        async def delivered() -> None:
            async with asyncio.timeout(60):
                while not (found := (await store.list_deliveries(DeliveryQuery())).items):
                    await store.wait_for_work(store.changes(), None)
            (test,) = found
            letter = DeliveryAttempt(
                delivery_id=test.id,
                recipient=test.recipient,
                owner=test.owner,
                message=build_test_message(test, language="en", zone="UTC"),
                now=NOW,
            )
            sent = await Inbox().send(letter)
            await store.finish_deliveries([completion_of(test, letter, sent)])

        await browser.get("/ui/inbox")
        answer, _ = await asyncio.gather(browser.send("/ui/inbox/test"), delivered())
        page = (await browser.follow(answer)).text
        assert "Test notification delivered (inbox)." in page
        assert "<b>Test notification</b>" in page
        assert '<span class="badge">test</span>' in page


def an_answer(**given: Any) -> Run:
    target = AgentTarget(prompt="What is six times seven?", model="big", max_tokens=99)
    values = {"owner": SYSTEM_OWNER, "target": target, "schedule_name": "Deep thought"}
    return an_ended_run("The **answer** is 42", **(values | given))


# A reply starts a run of the same agent with the previous prompt and answer.
async def test_a_reply_is_a_new_run_of_the_agent() -> None:
    async with browsing() as browser:
        store = browser.rig.store
        run = an_answer()
        await store.load([run])
        item = await item_in(browser, run_id=run.id, title="Deep thought: succeeded")
        address = f"/ui/inbox/{item.id}"
        page = await browser.get(address)
        assert "Reply to the agent" in page.text
        answer = await browser.send(f"{address}/reply", text="And times two?")
        assert answer.status_code == 303
        new = await store.get_run(RunId(answer.headers["location"].rpartition("/")[2]))
        assert new is not None
        assert isinstance(new.target, AgentTarget)
        assert (new.target.model, new.target.max_tokens) == ("big", 99)
        prompt = new.target.prompt
        places = [prompt.index(each) for each in ("six times", "is 42", "And times two?")]
        assert places == sorted(places)
        assert (new.owner, new.schedule_name) == (SYSTEM_OWNER, "Deep thought")
        assert [each.channel for each in new.policy.delivery] == [Channel.INBOX]
        audit = await store.list_audit(AuditQuery(object_id=new.id))
        assert [each.verb for each in audit] == ["start"]
        # The same form sent twice is one run.
        browser.page = page.text
        again = await browser.send(f"{address}/reply", text="And times two?")
        assert again.headers["location"] == answer.headers["location"]


# Up to four bytes per character: earlier text is truncated to the limit of a prompt.
@pytest.mark.parametrize("letter", ["ก", "中", "😀", "a"])
async def test_the_longest_reply_to_the_longest_answer_is_accepted(letter: str) -> None:
    async with browsing() as browser:
        store = browser.rig.store
        run = an_answer(result={"text": letter * 60_000})
        prompt = letter * (MAX_PROMPT_BYTES // len(letter.encode()))
        assert isinstance(run.target, AgentTarget)
        run = with_definition(run, target=replace(run.target, prompt=prompt))
        await store.load([run])
        item = await item_in(browser, run_id=run.id)
        await browser.get(f"/ui/inbox/{item.id}")
        answer = await browser.send(f"/ui/inbox/{item.id}/reply", text=letter * 4000)
        assert answer.status_code == 303
        new = await store.get_run(RunId(answer.headers["location"].rpartition("/")[2]))
        assert new is not None
        assert isinstance(new.target, AgentTarget)
        assert new.target.prompt.endswith(letter * 4000)
        assert "\ufffd" not in new.target.prompt


@pytest.mark.parametrize("text", ["", "   ", "x" * 4001])
async def test_an_empty_or_too_long_reply_is_rejected(text: str) -> None:
    async with browsing() as browser:
        run = an_answer()
        await browser.rig.store.load([run])
        item = await item_in(browser, run_id=run.id)
        await browser.get(f"/ui/inbox/{item.id}")
        answer = await browser.send(f"/ui/inbox/{item.id}/reply", text=text)
        assert answer.status_code == 422


async def test_only_agents_accept_replies() -> None:
    async with browsing() as browser:
        plain = an_answer(target=HttpTarget(url="http://127.0.0.1:9/"))
        await browser.rig.store.load([plain])
        item = await item_in(browser, run_id=plain.id)
        forgotten = await item_in(browser, run_id=RunId("gone"))
        for each in (item, forgotten):
            page = await browser.get(f"/ui/inbox/{each.id}")
            assert page.status_code == 200
            assert "Reply to the agent" not in page.text
        token = re.findall(r'name="csrf" value="([^"]+)"', browser.page)[0]
        answer = await browser.post(f"/ui/inbox/{item.id}/reply", {"csrf": token, "text": "x"})
        assert answer.status_code == 409
        assert "only an ended run of an agent can be replied to" in answer.text


async def test_the_telegram_delivery_and_button_presses_are_shown() -> None:
    async with browsing() as browser:
        store = browser.rig.store
        run = RunId("run-1")
        chat = Recipient(channel=Channel.TELEGRAM, to="4711")
        sent = a_delivery(
            run_id=run,
            owner=SYSTEM_OWNER,
            recipient=chat,
            state=DeliveryState.DELIVERED,
            finished_at=NOW,
        )
        await store.load([sent])
        item = await item_in(browser, run_id=run, schedule_id=ScheduleId("s1"), created_at=NOW)
        for verb, about, interface in (
            ("pause", "s1", "telegram"),
            ("done", run, "telegram"),
            ("pause", "s1", "web"),
            ("edit", "s1", "telegram"),
        ):
            await store.append_audit(
                an_entry(
                    verb=verb, object_id=about, interface=interface, at=NOW + timedelta(minutes=1)
                )
            )
        listed = (await browser.get("/ui/inbox")).text
        assert re.search(r"Telegram: <span class=.status succeeded.>.*sent</span>", listed)
        page = (await browser.get(f"/ui/inbox/{item.id}")).text
        assert page.count("<b>Button pressed</b>") == 2
        assert re.search(r"Button pressed</b> <span>Pause</span>", page)
        assert re.search(r"Button pressed</b> <span>Done</span>", page)


async def test_folders_are_in_the_address() -> None:
    async with browsing() as browser:
        later = NOW + timedelta(days=1)
        await item_in(browser, title="plain one")
        await item_in(browser, title="read one", read_at=NOW)
        await item_in(browser, title="star one", starred=True, archived_at=NOW)
        await item_in(browser, title="put away", archived_at=NOW)
        await item_in(browser, title="sleeping", snoozed_until=later)
        render_inbox = {
            "": {"plain one", "read one"},
            "?show=unread": {"plain one"},
            "?show=starred": {"star one"},
            "?show=archived": {"star one", "put away"},
            "?show=snoozed": {"sleeping"},
            "?show=nonsense": {"plain one", "read one"},
        }
        every = set().union(*render_inbox.values())
        for query, wanted in render_inbox.items():
            page = (await browser.get(f"/ui/inbox{query}")).text
            assert {title for title in every if f"<b>{title}</b>" in page} == wanted, query


EVERY_TITLE = (
    "a failed",
    "a timeout",
    "a succeeded",
    "a digest",
    "a test",
    "a notice",
    "read failure",
)


async def test_kinds_combine_with_folders_in_the_address() -> None:
    async with browsing() as browser:
        for status in ("failed", "timeout", "succeeded", "digest", "test", ""):
            await item_in(browser, title=f"a {status or 'notice'}", status=status)
        await item_in(browser, title="read failure", status="failed", read_at=NOW)
        render_inbox = {
            "?of=alerts": {"a failed", "a timeout", "read failure"},
            "?show=unread&of=alerts": {"a failed", "a timeout"},
            "?of=results": {"a succeeded"},
            "?of=digests": {"a digest"},
            "?of=nonsense": set(EVERY_TITLE),
        }
        every = render_inbox["?of=nonsense"]
        for query, wanted in render_inbox.items():
            page = (await browser.get(f"/ui/inbox{query}")).text
            assert {title for title in every if f"<b>{title}</b>" in page} == wanted, query
        assert (
            'href="/ui/inbox?show=unread&amp;of=digests"'
            in (await browser.get("/ui/inbox?of=digests")).text
        )


async def test_the_messages_of_one_schedule() -> None:
    async with browsing() as browser:
        await item_in(
            browser, title="of it", schedule_id=ScheduleId("s1"), schedule_name="report <1>"
        )
        await item_in(browser, title="of another", schedule_id=ScheduleId("s2"))
        page = (await browser.get("/ui/inbox?schedule=s1")).text
        assert "of it" in page
        assert "of another" not in page
        assert "report &lt;1&gt;" in page
        assert "report <1>" not in page


async def test_opening_a_message_does_not_mark_it_as_read() -> None:
    async with browsing() as browser:
        item = await item_in(browser, text="**bold**")
        page = await browser.get(f"/ui/inbox/{item.id}")
        assert "<strong>bold</strong>" in page.text
        assert (await stored_item(browser, item)).read_at is None
        seen = await browser.send(f"/ui/inbox/{item.id}/seen")
        assert seen.status_code == 303
        assert (await stored_item(browser, item)).read_at is not None
        assert f"/ui/inbox/{item.id}/seen" not in (await browser.get(f"/ui/inbox/{item.id}")).text


# An open message is marked as read, also in the folder that it leaves.
@pytest.mark.parametrize("folder", ["", "?folder=unread"])
async def test_a_read_message_is_updated_in_the_list(folder: str) -> None:
    async with browsing() as browser:
        item = await item_in(browser)
        await item_in(browser, title="another")
        address = f"/ui/inbox/{item.id}"
        page = (await browser.get(address + folder)).text
        row = f'id="message-{item.id}" class="message'
        assert f"{row} unread current" in page
        assert "2 unread" in page
        token = re.search(r'name="csrf" value="([^"]+)"', page)
        assert token is not None
        fields = {"csrf": token[1], "back": address + folder}
        answer = await browser.post(f"{address}/seen", fields, **{"HX-Request": "true"})
        assert answer.status_code == 200
        assert f"{row} current" in answer.text
        assert "1 unread" in answer.text
        for part in re.findall(r'hx-select-oob="([^"]+)"', page)[0].split(","):
            assert answer.text.count(f'id="{part.removeprefix("#")}"') == 1, part


def test_line_breaks_of_a_message_are_kept() -> None:
    html = safe_html("Reason: exception\nError: ValueError: no")
    assert html == "<p>Reason: exception<br />\nError: ValueError: no</p>\n"


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("star", {}, {"starred": True}),
        ("unstar", {"starred": True}, {"starred": False}),
        ("archive", {}, {"archived_at": NOW, "read_at": NOW}),
        ("unarchive", {"archived_at": NOW}, {"archived_at": None}),
        ("unread", {"read_at": NOW}, {"read_at": None}),
        ("wake", {"snoozed_until": NOW + timedelta(days=1)}, {"snoozed_until": None}),
    ],
)
async def test_each_action_does_what_it_says(
    action: str, before: dict[str, object], after: dict[str, object]
) -> None:
    async with browsing() as browser:
        item = await item_in(browser, **before)
        page = f"/ui/inbox/{item.id}"
        done = await browser.send(f"{page}/{action}", on=page)
        assert done.status_code == 303
        found = await stored_item(browser, item)
        assert {name: getattr(found, name) for name in after} == after
        assert (await browser.follow(done)).status_code == 200


async def test_archiving_can_be_undone() -> None:
    async with browsing() as browser:
        item = await item_in(browser)
        page = f"/ui/inbox/{item.id}"
        done = await browser.send(f"{page}/archive", on=page)
        assert done.headers["location"] == "/ui/inbox", "archiving returns to the inbox"
        await browser.follow(done)
        await browser.send(f"{page}/unarchive")
        assert (await stored_item(browser, item)).archived_at is None


async def test_a_snooze_is_in_the_viewers_zone() -> None:
    async with browsing() as browser:
        item = await item_in(browser)
        page = f"/ui/inbox/{item.id}"
        browser.client.cookies.set("chimes_look", "zone=Asia/Tokyo")
        day = NOW + timedelta(days=3)
        until = f"{day:%Y-%m-%d}T07:30"
        await browser.send(f"{page}/snooze", on=page, until=until)
        wanted = datetime(day.year, day.month, day.day, 7, 30, tzinfo=UTC) - timedelta(hours=9)
        assert (await stored_item(browser, item)).snoozed_until == wanted
        late = await browser.send(f"{page}/snooze", on=page, until="2001-01-01T07:30")
        assert (late.status_code, "is in the past" in late.text) == (422, True)
        empty = await browser.send(f"{page}/snooze", on=page)
        assert (empty.status_code, "choose a time" in empty.text) == (422, True)


def test_snooze_choices_are_mornings_in_the_viewers_zone() -> None:
    """Also near midnight, and in zones with an offset of half an hour."""
    now = datetime(2026, 11, 15, 15, 30, tzinfo=UTC)  # Monday 00:30 in Tokyo, Sunday 21:00 in India
    tokyo = {
        each.name: each.until for each in snooze_choices(DisplayPreferences(zone="Asia/Tokyo"), now)
    }
    assert tokyo["tomorrow"] == datetime(2026, 11, 16, 23, tzinfo=UTC)
    assert tokyo["monday"] == datetime(2026, 11, 22, 23, tzinfo=UTC)
    india = {
        each.name: each.until
        for each in snooze_choices(DisplayPreferences(zone="Asia/Kolkata"), now)
    }
    assert india["tomorrow"] == datetime(2026, 11, 16, 2, 30, tzinfo=UTC)
    assert india["monday"] == datetime(2026, 11, 16, 2, 30, tzinfo=UTC)
    assert tokyo["hour"] == now + timedelta(hours=1)


async def test_all_messages_of_a_folder_are_marked_as_read() -> None:
    async with browsing() as browser:
        one = await item_in(browser, schedule_id=ScheduleId("s1"))
        other = await item_in(browser, schedule_id=ScheduleId("s2"))
        done = await browser.send("/ui/inbox/read-all", on="/ui/inbox?schedule=s1")
        assert "1 message marked as read." in (await browser.follow(done)).text
        assert (await stored_item(browser, one)).read_at is not None
        assert (await stored_item(browser, other)).read_at is None


async def test_other_deliveries_of_the_run_are_shown() -> None:
    async with browsing() as browser:
        run = RunId("run-1")
        telegram = Recipient(channel=Channel.TELEGRAM, to="4711")
        await browser.rig.store.load(
            [
                a_delivery(
                    run_id=run,
                    owner=SYSTEM_OWNER,
                    recipient=telegram,
                    state=DeliveryState.DEAD,
                    error="blocked <by> the user",
                    finished_at=NOW,
                )
            ]
        )
        item = await item_in(browser, run_id=run)
        page = (await browser.get(f"/ui/inbox/{item.id}")).text
        assert "Other deliveries" in page
        assert "<b>Telegram</b>" in page
        assert "blocked &lt;by&gt; the user" in page
        assert 'href="/ui/runs/run-1"' in page


async def test_messages_of_other_owners_are_not_found() -> None:
    async with browsing() as browser:
        theirs = await item_in(
            browser, title="secret of bob", owner=Owner(type=OwnerType.USER, id="bob")
        )
        mine = await item_in(browser, title="for anna", owner=ANNA)
        made = await browser.rig.key(Role.MEMBER, ANNA)
        key = made["Authorization"].removeprefix("Bearer ")
        await browser.send("/ui/login", on="/ui/login", key=key)
        for address in ("/ui/inbox", "/ui/inbox?owner=user:bob", "/ui/inbox?show=unread"):
            page = (await browser.get(address)).text
            assert "for anna" in page
            assert "secret of bob" not in page
        assert (await browser.get(f"/ui/inbox/{theirs.id}")).status_code == 404
        page = (await browser.get(f"/ui/inbox/{mine.id}")).text
        token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
        taken = await browser.post(f"/ui/inbox/{theirs.id}/star", {"csrf": token})
        assert taken.status_code == 404
        assert not (await stored_item(browser, theirs)).starred


async def test_an_operator_reads_other_inboxes_by_owner_and_cannot_mark() -> None:
    async with browsing() as browser:
        item = await item_in(browser, title="for anna", owner=ANNA)
        made = await browser.rig.key(Role.OPERATOR, Owner(type=OwnerType.USER, id="olga"))
        key = made["Authorization"].removeprefix("Bearer ")
        await browser.send("/ui/login", on="/ui/login", key=key)
        assert "for anna" not in (await browser.get("/ui/inbox")).text
        assert "for anna" in (await browser.get("/ui/inbox?owner=user:anna")).text
        page = await browser.get(f"/ui/inbox/{item.id}")
        assert page.status_code == 200
        assert "/seen" not in page.text
        assert "/archive" not in page.text
        wrong = await browser.get("/ui/inbox?owner=nobody")
        assert wrong.status_code == 422


async def test_new_messages_are_counted_until_shown() -> None:
    async with browsing() as browser:
        await item_in(browser)
        await item_in(browser)
        answer = await browser.get("/ui/inbox/newer?known=1")
        assert answer.json() == {"count": 1, "text": "1 new message – show"}
        assert (await browser.get("/ui/inbox/newer?known=x")).status_code == 422


async def test_messages_are_rendered_as_safe_html() -> None:
    """No scripts, no external requests, no dangerous links, no styles."""
    async with browsing() as browser:
        item = await item_in(browser, title="<b>t</b>", text=HOSTILE)
        page = (await browser.get(f"/ui/inbox/{item.id}")).text
        body = page[page.index('<div class="markdown">') :]
        body = body[: body.index("</article>")]
        for forbidden in ("<script", "<img", 'javascript:alert(1)"', 'href="data:', "style="):
            assert forbidden not in body, forbidden
        assert "&lt;script&gt;" in body
        assert 'href="https://example.org/a?b=1&amp;c=2"' in body
        assert 'rel="noopener noreferrer nofollow"' in body
        assert "<h3>" in body
        assert "<table>" in body
        assert "&lt;b&gt;raw&lt;/b&gt;" in body
        assert "<b>t</b>" not in page


@pytest.mark.parametrize("text", ["a" * 60_000, "[" * 4000, "> " * 200 + "deep", "*" * 3500])
def test_too_complex_markdown_stays_plain_text(text: str) -> None:
    html = str(safe_html(text))
    assert html.startswith("<pre>")
    assert "<blockquote>" not in html


def test_the_filter_round_trips_through_the_address() -> None:
    filter_ = parse_filter({"show": "starred", "schedule": "s1", "owner": "user:anna"})
    assert filter_.address() == "/ui/inbox?show=starred&schedule=s1&owner=user%3Aanna"
    assert filter_.in_folder("inbox").address("i1") == "/ui/inbox/i1?schedule=s1&owner=user%3Aanna"
    assert filter_.of_schedule(None).fields == {"show": "starred", "owner": "user:anna"}
    with pytest.raises(InvalidInput):
        parse_filter({"owner": "king:anna"})


async def test_a_failure_is_acknowledged_from_its_message() -> None:
    async with browsing() as browser:
        run = an_ended_run("boom", status=RunStatus.FAILED, owner=SYSTEM_OWNER)
        run = with_definition(run, schedule_id=None)
        await browser.rig.store.load([run])
        item = await item_in(browser, run_id=run.id, status="failed")
        here = f"/ui/inbox/{item.id}"
        path = f"/ui/runs/{run.id}/known"
        assert path in (await browser.get(here)).text
        await browser.send(path, on=here, sure="yes", reason="looking <into> it")
        page = (await browser.get(here)).text
        assert path not in page
        assert "looking &lt;into&gt; it" in page
