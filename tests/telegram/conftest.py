from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from chimes.config import Settings
from chimes.notifications.telegram_api import Action, decode
from chimes.services.manual_runs import ManualRuns
from chimes.services.preferences import PreferenceService
from chimes.services.proposals import ProposalService
from chimes.services.runs import RunService
from chimes.services.schedules.changeset import ChangesetService
from chimes.services.schedules.rules import ScheduleRules, agent_policy
from chimes.services.schedules.service import ScheduleService
from chimes.services.schedules.setup import SetupService
from chimes.store.memory import MemoryStore
from chimes.telegram.commands import Verb
from chimes.telegram.conversation import Conversation, Services, UpdateResult
from chimes.telegram.updates import read_update
from chimes.testing import SettableClock
from chimes.web.api.proposals import changes_reader
from tests.telegram.bot_api import TOKEN, BotApiStub, message

#: A Monday, 08:00 in Bangkok.
NOW = datetime(2026, 2, 9, 1, 0, tzinfo=UTC)


@dataclass
class Chats:
    """The conversation of a bot that allows chats 7 and 8, without the Bot API."""

    clock: SettableClock
    store: MemoryStore
    schedules: ScheduleService
    manual_runs: ManualRuns
    proposals: ProposalService
    conversation: Conversation
    number: int = 100
    result: list[UpdateResult] = field(default_factory=list)

    async def say(self, text: str, chat: int = 7, **more: Any) -> str:
        self.number += 1
        return await self.handle_update(message(self.number, text, chat, **more))

    async def handle_update(self, update: dict[str, Any]) -> str:
        """Handles an update and returns the reply, or an empty text."""
        incoming = read_update(update)
        if incoming is None:
            return ""
        result = await self.conversation.handle(incoming)
        self.result.append(result)
        return "\n---\n".join(reply.text for reply in result.replies)


def pressed(data: str, chat: str) -> tuple[Verb, str] | None:
    verbs = {
        Action.RUN: Verb.RUN,
        Action.RETRY: Verb.RETRY,
        Action.PAUSE: Verb.PAUSE,
        Action.SNOOZE: Verb.SNOOZE,
        Action.DONE: Verb.DONE,
        Action.APPROVE: Verb.APPROVE,
        Action.REJECT: Verb.REJECT,
        Action.APPROVE_STEP: Verb.APPROVE_STEP,
        Action.REJECT_STEP: Verb.REJECT_STEP,
        Action.KNOWN: Verb.KNOWN,
    }
    found = decode(data, chat=chat, token=TOKEN)
    return (verbs[found.action], found.object_id) if found else None


async def chimes_bot() -> str:
    return "chimes_bot"


def proposals_on(store: MemoryStore, schedules: ScheduleService) -> ProposalService:
    settings = Settings()
    setup = SetupService(store, schedules.rules, settings)
    changesets = ChangesetService(store, schedules, setup, settings)
    return ProposalService(store, schedules, changesets, changes_reader(settings))


def chats_on(store: MemoryStore, clock: SettableClock, **given: Any) -> Chats:
    schedules = ScheduleService(store, ScheduleRules(store, check_target=lambda target: None))
    proposals = proposals_on(store, schedules)
    services = Services(
        store=store,
        schedules=schedules,
        runs=RunService(store),
        preferences=PreferenceService(store),
        proposals=lambda: proposals,
    )
    settings: dict[str, Any] = {
        "allowed": ("7", "8", "-100"),
        "per_minute": 30,
        "policy": agent_policy(Settings()),
        "default_zone": "Asia/Bangkok",
        "read_button": pressed,
        "username": chimes_bot,
    }
    return Chats(
        clock=clock,
        store=store,
        schedules=schedules,
        proposals=proposals,
        manual_runs=ManualRuns(store, schedules.rules),
        conversation=Conversation(services, **settings | given),
    )


@pytest.fixture
def chats() -> Chats:
    clock = SettableClock(NOW)
    return chats_on(MemoryStore(clock), clock)


@pytest.fixture
async def bot_api() -> AsyncIterator[BotApiStub]:
    stub = await BotApiStub().start()
    yield stub
    await stub.stop()
