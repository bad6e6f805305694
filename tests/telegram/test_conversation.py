"""Commands of chats and their replies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from chimes.i18n import in_language
from chimes.model.access import Actor, Owner, OwnerType, Quota, Role
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, InboxQuery, RunQuery, ScheduleQuery
from chimes.model.notification import InboxItem
from chimes.model.recipient import Channel
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget
from chimes.notifications.telegram_api import Action, encode
from chimes.services.attention import KnownFailures
from chimes.services.schedules.rules import Limits, ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.telegram.commands import EXAMPLE, LANGUAGES
from chimes.testing import SettableClock
from chimes.triggers import Cron, Once
from tests.builders import a_run, an_item
from tests.telegram.bot_api import TOKEN
from tests.telegram.conftest import NOW, Chats, chats_on

THAI = "/schedule ทุกวัน 09:00 สรุปข่าว AI"
SEVEN = Owner(type=OwnerType.CHAT, id="7")


def id_in(answer: str) -> str:
    return answer.partition("Schedule created: ")[2].splitlines()[0]


async def only_schedule(chats: Chats) -> Schedule:
    page = await chats.store.list_schedules(ScheduleQuery())
    (schedule,) = page.items
    return schedule


async def test_thai_sentence_creates_a_schedule(chats: Chats) -> None:
    answer = await chats.say(THAI)
    schedule = await only_schedule(chats)
    assert id_in(answer) == schedule.id
    assert len(schedule.id) == 12
    assert "cron=0 9 * * *" in answer
    assert "timezone=Asia/Bangkok" in answer
    assert "next_run_at=2026-02-09T02:00:00+00:00" in answer
    assert "ทุกวัน" in answer
    assert (schedule.owner, schedule.namespace) == (SEVEN, "softnix")
    assert isinstance(schedule.target, AgentTarget)
    assert schedule.target.prompt == "สรุปข่าว AI"
    (recipient,) = schedule.policy.delivery
    assert (recipient.channel, recipient.to) == (Channel.TELEGRAM, "7")


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("วันนี้ 09:30 เช็คเว็บ", Once("2026-02-09T09:30:00", timezone="Asia/Bangkok")),
        ("tomorrow at 14:30 call home", Once("2026-02-10T14:30:00", timezone="Asia/Bangkok")),
        ("每周一 08:30 写周报", Cron("30 8 * * 1", timezone="Asia/Bangkok")),
    ],
)
async def test_message_without_command_creates_a_schedule(
    chats: Chats, text: str, trigger: object
) -> None:
    assert "Schedule created" in await chats.say(text)
    assert (await only_schedule(chats)).trigger == trigger


# The clarification is in the language of the chat, and nothing is created.
@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("/schedule วันนี้ 07:00 เช็คเว็บ", "ตัวอย่าง"),
        ("/schedule ทุกวัน สรุปข่าว", "ตัวอย่าง"),
        ("/schedule every day water the plants", "For example"),
        ("/schedule 每天12点提醒我", "例如"),
    ],
)
async def test_unclear_sentence_gets_a_clarification(chats: Chats, text: str, telling: str) -> None:
    answer = await chats.say(text)
    assert "Schedule parse error: " in answer
    assert telling in answer
    assert not (await chats.store.list_schedules(ScheduleQuery())).items


async def test_time_without_a_task_gets_a_clarification(chats: Chats) -> None:
    assert "Write the task" in await chats.say("/schedule every day at 9:00")
    assert not (await chats.store.list_schedules(ScheduleQuery())).items


async def test_commands_list_pause_resume_run_and_delete(chats: Chats) -> None:
    found = id_in(await chats.say(THAI))
    listed = await chats.say("/schedules")
    assert found in listed
    assert "สรุปข่าว AI" in listed
    assert "Schedule paused" in await chats.say(f"/schedule_pause {found}")
    assert not (await only_schedule(chats)).enabled
    assert "Schedule resumed" in await chats.say(f"/schedule_resume {found}")
    assert (await only_schedule(chats)).enabled
    started = await chats.say(f"/schedule_run {found}")
    (run,) = (await chats.store.list_runs(RunQuery())).items
    assert run.id in started
    assert run.id in await chats.say(f"/schedule_runs {found}")
    assert "Schedule paused" in await chats.say(f"/schedule_disable {found}")
    assert "Schedule resumed" in await chats.say(f"/schedule_enable {found}")
    assert "Schedule snoozed until" in await chats.say(f"/schedule_snooze {found}")
    assert not (await only_schedule(chats)).enabled
    assert "Schedule deleted" in await chats.say(f"/schedule_delete {found}")
    assert "Schedule not found" in await chats.say(f"/schedule_runs {found}")
    routers = {each.interface for each in await chats.store.list_audit(AuditQuery(limit=100))}
    assert routers == {"telegram"}


async def test_every_command_is_audited(chats: Chats) -> None:
    await chats.say(THAI)
    await chats.say("/schedule_delete nothing")
    entries = await chats.store.list_audit(AuditQuery(verb="telegram_command"))
    shown = [(e.changes["command"], e.changes["ok"], e.object_id) for e in entries]
    assert shown == [("schedule_delete", False, "7"), ("schedule", True, "7")]


@pytest.mark.parametrize(
    "command", ["schedule_pause", "schedule_resume", "schedule_run", "schedule_delete"]
)
async def test_schedule_of_another_chat_is_not_found(chats: Chats, command: str) -> None:
    found = id_in(await chats.say(THAI))
    before = await only_schedule(chats)
    theirs = await chats.say(f"/{command} {found}", chat=8)
    nobodys = await chats.say(f"/{command} ffffffffffff", chat=8)
    assert theirs.replace(found, "ID") == nobodys.replace("ffffffffffff", "ID")
    assert "Schedule not found" in theirs
    assert await only_schedule(chats) == before
    assert found not in await chats.say("/schedules", chat=8)


async def test_unauthorized_chat_gets_one_reply_per_hour(chats: Chats) -> None:
    assert await chats.say(THAI, chat=99) == "Unauthorized chat"
    assert await chats.say("/schedules", chat=99) == ""
    chats.clock.advance(timedelta(hours=1))
    assert await chats.say("/schedules", chat=99) == "Unauthorized chat"
    assert not (await chats.store.list_schedules(ScheduleQuery())).items


async def test_empty_list_of_allowed_chats_allows_none() -> None:
    clock = SettableClock(NOW)
    chats = chats_on(MemoryStore(clock), clock, allowed=())
    assert await chats.say(THAI) == "Unauthorized chat"


@pytest.mark.parametrize(
    "mark",
    [{"forward_origin": {}}, {"via_bot": {"id": 5}}, {"sender_chat": {"id": 7}}],
    ids=lambda mark: next(iter(mark)),
)
async def test_forwarded_and_bot_messages_are_ignored(chats: Chats, mark: dict[str, Any]) -> None:
    assert await chats.say(THAI, **mark) == ""
    assert not (await chats.store.list_schedules(ScheduleQuery())).items


@pytest.mark.parametrize("kind", ["edited_message", "channel_post", "my_chat_member"])
async def test_other_kinds_of_updates_are_ignored(chats: Chats, kind: str) -> None:
    fields = {"message_id": 1, "chat": {"id": 7}, "from": {"id": 7}, "text": THAI}
    assert await chats.handle_update({"update_id": 5, kind: fields}) == ""
    assert not (await chats.store.list_schedules(ScheduleQuery())).items


async def test_group_messages_need_a_command_to_the_bot(chats: Chats) -> None:
    assert await chats.say("tomorrow at 9:00 we meet", chat=-100, chat_type="supergroup") == ""
    assert "Schedule created" in await chats.say(
        "/schedule@chimes_bot tomorrow at 9:00 we meet", chat=-100, chat_type="supergroup"
    )
    other = "/schedule@another_bot tomorrow at 9:00 we meet"
    assert await chats.say(other, chat=-100, chat_type="supergroup") == ""


async def test_old_command_changes_nothing(chats: Chats) -> None:
    found = id_in(await chats.say(THAI))
    old = int((NOW - timedelta(minutes=11)).timestamp())
    assert "too late" in await chats.say(f"/schedule_delete {found}", date=old, language_code="en")
    assert (await only_schedule(chats)).id == found
    # Read-only commands are still answered.
    assert found in await chats.say("/schedules", date=old)
    recent = int((NOW - timedelta(minutes=9)).timestamp())
    assert "Schedule deleted" in await chats.say(f"/schedule_delete {found}", date=recent)


async def test_messages_are_limited_to_thirty_per_minute(chats: Chats) -> None:
    answers = [await chats.say("/schedules") for _ in range(40)]
    assert all("No schedules" in each for each in answers[:30])
    assert "Too many messages" in answers[30]
    assert set(answers[31:]) == {""}
    # Another chat has its own limit, and the limit refills over time.
    assert "No schedules" in await chats.say("/schedules", chat=8)
    chats.clock.advance(59.0)
    assert await chats.say("/schedules") == ""
    chats.clock.advance(1.0)
    assert "No schedules" in await chats.say("/schedules")


async def test_repeated_update_creates_one_schedule(chats: Chats) -> None:
    chats.number = 500
    first = await chats.say(THAI)
    chats.number = 500
    assert await chats.say(THAI) == first
    assert (await only_schedule(chats)).id == id_in(first)


async def test_repeated_update_starts_one_run(chats: Chats) -> None:
    found = id_in(await chats.say(THAI))
    chats.number = 500
    first = await chats.say(f"/schedule_run {found}")
    chats.number = 500
    assert await chats.say(f"/schedule_run {found}") == first
    assert len((await chats.store.list_runs(RunQuery())).items) == 1


async def test_exceeded_quota_is_reported(chats: Chats) -> None:
    limits = Limits(quotas=lambda owner: (Quota(limit=2, active=True),))
    tight = ScheduleService(
        chats.store,
        ScheduleRules(chats.store, check_target=lambda target: None, limits=lambda: limits),
    )
    chats.conversation._schedules = tight
    for number in range(2):
        assert "Schedule created" in await chats.say(f"/schedule every day at 0{number}:00 x")
    assert "already have 2 active" in await chats.say("/schedule every day at 09:00 x")


async def inbox_of(chats: Chats) -> tuple[InboxItem, ...]:
    return (await chats.store.list_inbox(InboxQuery(archived=None))).items


class TestButtons:
    async def pressed(self, chats: Chats, data: str, chat: int = 7) -> str:
        chats.number += 1
        query = {
            "id": "q1",
            "from": {"id": chat},
            "data": data,
            "message": {"message_id": 3, "chat": {"id": chat, "type": "private"}, "date": 1},
        }
        return await chats.handle_update({"update_id": chats.number, "callback_query": query})

    async def test_each_button_executes_its_action(self, chats: Chats) -> None:
        found = id_in(await chats.say(THAI))

        def data(action: Action) -> str:
            made = encode(action, found, chat="7", token=TOKEN)
            assert made is not None
            return made

        assert "Run started" in await self.pressed(chats, data(Action.RUN))
        assert "snoozed" in await self.pressed(chats, data(Action.SNOOZE))
        schedule = await only_schedule(chats)
        assert schedule.pause_until == NOW + timedelta(hours=1)
        assert "Schedule paused" in await self.pressed(chats, data(Action.PAUSE))
        assert (await only_schedule(chats)).pause_until is None

    async def test_done_archives_the_inbox_item_of_the_owner(self, chats: Chats) -> None:
        mine, theirs = Owner(type=OwnerType.CHAT, id="7"), Owner(type=OwnerType.CHAT, id="8")
        run = a_run(owner=mine)
        item, other = an_item(owner=mine, run_id=run.id), an_item(owner=theirs, run_id=run.id)
        await chats.store.load([run, item, other])
        made = encode(Action.DONE, run.id, chat="7", token=TOKEN)
        assert made is not None
        assert "Done" in await self.pressed(chats, made)
        found = {each.id: each for each in await inbox_of(chats)}
        assert found[item.id].archived_at is not None
        assert found[item.id].read_at is not None
        assert found[other.id] == other
        audit = await chats.store.list_audit(AuditQuery(object_id=run.id))
        assert [(each.verb, each.interface) for each in audit] == [("done", "telegram")]
        # A run of another owner is not revealed.
        of_others = encode(Action.DONE, "no such run", chat="8", token=TOKEN)
        assert of_others is not None
        await self.pressed(chats, of_others, chat=8)
        assert await chats.store.list_audit(AuditQuery(object_id="no such run")) == ()

    async def test_a_failure_is_acknowledged(self, chats: Chats) -> None:
        mine = Owner(type=OwnerType.CHAT, id="7")
        run = a_run(owner=mine, status=RunStatus.FAILED, error="boom", finished_at=NOW)
        await chats.store.load([run])
        made = encode(Action.KNOWN, run.id, chat="7", token=TOKEN)
        assert made is not None
        assert "not escalated" in await self.pressed(chats, made)
        known = await KnownFailures(chats.store).get_for_run(run)
        assert known is not None
        assert known.run_id == run.id
        # A run of another owner cannot be marked.
        theirs = encode(Action.KNOWN, run.id, chat="8", token=TOKEN)
        assert theirs is not None
        assert "not found" in await self.pressed(chats, theirs, chat=8)

    async def test_forged_button_data_is_ignored(self, chats: Chats) -> None:
        found = id_in(await chats.say(THAI))
        good = encode(Action.PAUSE, found, chat="7", token=TOKEN)
        assert good is not None
        before = await only_schedule(chats)
        other = encode(Action.PAUSE, found, chat="7", token="1:another")
        assert other is not None
        for bad in (good[:-1] + ("A" if good[-1] != "A" else "B"), other, "", "r", "💥" * 10):
            assert await self.pressed(chats, bad) == ""
        # A button is signed for its chat only.
        assert await self.pressed(chats, good, chat=8) == ""
        assert await only_schedule(chats) == before


class TestLanguage:
    async def test_language_command_sets_the_language(self, chats: Chats) -> None:
        assert "ภาษา: ไทย" in await chats.say("/language th")
        assert "ยังไม่มีกำหนดการ" in await chats.say("/schedules", language_code="en")
        assert "语言: 中文" in await chats.say("/language zh")
        assert "还没有计划" in await chats.say("/schedules")

    @pytest.mark.parametrize(
        ("code", "telling"), [("th", "ยังไม่มี"), ("zh-hans", "还没有"), ("de", "No schedules")]
    )
    async def test_language_of_the_client_is_the_default(
        self, chats: Chats, code: str, telling: str
    ) -> None:
        assert telling in await chats.say("/schedules", language_code=code)

    @pytest.mark.parametrize("language", LANGUAGES)
    async def test_example_of_the_help_creates_a_schedule(
        self, chats: Chats, language: str
    ) -> None:
        example = in_language(EXAMPLE, language)
        assert example in await chats.say("/help", language_code=language)
        answer = await chats.say(f"/schedule {example}", language_code=language)
        assert (await only_schedule(chats)).id == id_in(answer)

    async def test_timezone_command_sets_the_zone(self, chats: Chats) -> None:
        assert "Europe/Berlin" in await chats.say("/timezone Europe/Berlin")
        answer = await chats.say("/schedule every day at 9:00 stretch")
        assert "timezone=Europe/Berlin" in answer
        assert "Mars" in await chats.say("/timezone Mars/Base")
        assert "ไม่รู้จักเขตเวลา" in await chats.say("/timezone Mars/Base", language_code="th")

    async def test_interval_starts_at_a_whole_second(self, chats: Chats) -> None:
        chats.clock.advance(0.25)
        answer = await chats.say("/schedule every 15 minutes check the site")
        assert "cron=@every 15m0s" in answer
        assert "timezone=Asia/Bangkok" in answer
        assert (await only_schedule(chats)).next_run_at == NOW + timedelta(minutes=15)


class TestLinks:
    ANNA = Actor(owner=Owner(type=OwnerType.USER, id="anna"), role=Role.MEMBER)

    async def linked(self, chats: Chats, sender: int = 70) -> None:
        links = chats.conversation.links
        code = await links.new_code(self.ANNA)
        assert "confirm" in await chats.say(f"/link {code.text}", sender=sender)
        await links.confirm(self.ANNA, "7")

    async def test_a_linked_chat_acts_for_its_owner(self, chats: Chats) -> None:
        await self.linked(chats)
        await chats.say(THAI, sender=70)
        assert (await only_schedule(chats)).owner == self.ANNA.owner
        (chat,) = await chats.conversation.links.linked(self.ANNA.owner)
        assert (chat.id, chat.user_id) == ("7", "70")

    async def test_other_users_of_a_linked_chat_are_ignored(self, chats: Chats) -> None:
        await self.linked(chats)
        assert await chats.say(THAI, sender=71) == ""
        assert not (await chats.store.list_schedules(ScheduleQuery())).items

    async def test_link_code_works_once(self, chats: Chats) -> None:
        code = await chats.conversation.links.new_code(self.ANNA)
        assert "confirm" in await chats.say(f"/start {code.text}")
        assert "not valid" in await chats.say(f"/start {code.text}", chat=8)
        assert [a.chat_id for a in await chats.conversation.links.waiting(self.ANNA.owner)] == ["7"]

    async def test_link_code_expires_after_ten_minutes(self, chats: Chats) -> None:
        code = await chats.conversation.links.new_code(self.ANNA)
        chats.clock.advance(timedelta(minutes=10))
        assert "not valid" in await chats.say(f"/link {code.text}")

    async def test_unconfirmed_link_has_no_effect(self, chats: Chats) -> None:
        code = await chats.conversation.links.new_code(self.ANNA)
        await chats.say(f"/link {code.text}")
        await chats.say(THAI)
        assert (await only_schedule(chats)).owner == SEVEN

    async def test_link_code_is_not_stored(self, chats: Chats) -> None:
        code = await chats.conversation.links.new_code(self.ANNA)
        await chats.say(f"/link {code.text}")
        async for item in chats.store.dump():
            assert code.text not in repr(item)

    async def test_linked_chat_keeps_access_to_its_earlier_schedules(self, chats: Chats) -> None:
        before = id_in(await chats.say(THAI, sender=70))
        await self.linked(chats)
        assert before in await chats.say("/schedules", sender=70)
        assert "Schedule paused" in await chats.say(f"/schedule_pause {before}", sender=70)
        assert "Schedule deleted" in await chats.say(f"/schedule_delete {before}", sender=70)

    async def test_new_code_replaces_earlier_codes(self, chats: Chats) -> None:
        codes = [await chats.conversation.links.new_code(self.ANNA) for _ in range(5)]
        assert "not valid" in await chats.say(f"/link {codes[0].text}")
        assert "confirm" in await chats.say(f"/link {codes[-1].text}")
        kept = [item async for item in chats.store.dump() if isinstance(item, Checkpoint)]
        assert not [state for state in kept if state.name.startswith("telegram:link:")]

    async def test_unlink_removes_the_link(self, chats: Chats) -> None:
        await self.linked(chats)
        assert "no longer linked" in await chats.say("/unlink", sender=70)
        await chats.say(THAI, sender=71)
        assert (await only_schedule(chats)).owner == SEVEN
        assert not await chats.conversation.links.linked(self.ANNA.owner)


async def test_invalid_updates_are_ignored(chats: Chats) -> None:
    updates: list[Any] = [
        {},
        {"update_id": "5"},
        {"update_id": 1},
        {"update_id": 2, "message": None},
        {"update_id": 3, "message": {"text": "x"}},
        {"update_id": 4, "message": {"chat": {"id": 7}, "text": "\0\ud800 /"}},
        {"update_id": 5, "message": {"chat": {"id": 7}, "text": "/schedule_pause \0"}},
        {"update_id": 6, "message": {"chat": {"id": 7}, "text": "/" + "x" * 5000}},
        {"update_id": 7, "message": {"chat": {"id": 7}, "text": "every " * 2000}},
        {"update_id": 8, "message": {"chat": {"id": 7}, "date": 2**60, "text": "/help"}},
        {"update_id": 9, "callback_query": {"data": "x"}},
    ]
    for update in updates:
        await chats.handle_update(update)
    assert not (await chats.store.list_schedules(ScheduleQuery())).items


async def test_runs_are_listed_newest_first(chats: Chats) -> None:
    found = ScheduleId(id_in(await chats.say(THAI)))
    actor = Actor(owner=SEVEN, role=Role.MEMBER)
    made = []
    for _ in range(2):
        chats.clock.advance(1.0)
        made.append((await chats.manual_runs.run_now(actor, found)).id)
    reply = await chats.say(f"/schedule_runs {found}")
    places = [reply.index(run_id) for run_id in reversed(made)]
    assert all(a < b for a, b in pairwise(places))
    assert datetime(2026, 2, 9, 8, 0, tzinfo=UTC).strftime("%H:%M") in reply
