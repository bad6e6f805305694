"""Who will read a message: in which language, by which clock, and whether it may be sent there."""

from __future__ import annotations

import json
from collections.abc import Mapping

from chimes.config import Settings
from chimes.delivery.base import Refused
from chimes.delivery.words import USUAL
from chimes.model.access import Owner, OwnerType
from chimes.model.delivery import Delivery
from chimes.model.ids import ScheduleId
from chimes.model.recipient import Channel
from chimes.service.preferences import Preferences, PreferenceService
from chimes.service.recipients import LINKED_CHAT
from chimes.store.port import Store
from chimes.triggers import Cron, Once
from chimes.wording import say


class Readers:
    """One object serves one batch, and asks for each reader once."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._preferences = PreferenceService(store)
        self._settings = settings
        self._owners: dict[Owner, Preferences] = {}
        self._chats: dict[str, Mapping[str, object]] = {}
        self._zones: dict[ScheduleId, str] = {}

    async def of(self, delivery: Delivery) -> tuple[str, str]:
        """Language and zone: the recipient's own, else the chat's, else the owner's; for want of
        any other the zone is the schedule's."""
        recipient, owner = delivery.recipient, delivery.owner
        chat: Mapping[str, object] = {}
        if recipient.channel is Channel.TELEGRAM:
            chat = await self._chat(recipient.to)
        if owner not in self._owners:
            self._owners[owner] = await self._preferences.of(owner)
        liked = self._owners[owner]
        language = recipient.language or _text(chat, "language") or liked.language or USUAL
        zone = _text(chat, "timezone") or liked.timezone
        if not zone and recipient.digest is not None:
            zone = recipient.digest.zone
        return language, zone or await self._zone(delivery.schedule_id, self._usual_zone(owner))

    async def refusal(self, delivery: Delivery) -> Refused | None:
        """Whether nothing may go there, whoever saved it when: what is allowed may have changed
        since (S05)."""
        recipient = delivery.recipient
        match recipient.channel:
            case Channel.TELEGRAM:
                return await self._refused_chat(recipient.to, delivery.owner)
            case Channel.EMAIL:
                return _refused_address(recipient.to, self._settings.smtp_allowed)
            case _:
                return None

    async def _refused_chat(self, to: str, owner: Owner) -> Refused | None:
        """What a chat made goes to it as long as it is allowed to make it; what a user made, as
        long as the chat is the user's. What the system's own keys made goes where they said."""
        if owner == Owner(type=OwnerType.CHAT, id=to):
            if to in self._settings.telegram_allowed_chats:
                return None
            error = say(
                "chat {chat} is not allowed any more: CHIMES_TELEGRAM_ALLOWED_CHATS", chat=to
            )
            return Refused(error=error, code="not_allowed")
        if owner.type is not OwnerType.USER:
            return None
        chat = await self._chat(to)
        linked, left = _text(chat, "owner"), _text(chat, "left")
        if (linked and linked != str(owner)) or (not linked and left == str(owner)):
            error = say(
                "chat {chat} is not linked to {owner} any more: link it again", chat=to, owner=owner
            )
            return Refused(error=error, code="not_linked")
        return None

    def _usual_zone(self, owner: Owner) -> str:
        in_chat = owner.type is OwnerType.CHAT
        settings = self._settings
        return settings.softnix_default_timezone if in_chat else settings.default_timezone

    async def _zone(self, schedule_id: ScheduleId | None, usual: str) -> str:
        if schedule_id is None:
            return usual
        if schedule_id not in self._zones:
            schedule = await self._store.get_schedule(schedule_id)
            trigger = None if schedule is None else schedule.trigger
            # The others go by no wall clock.
            self._zones[schedule_id] = (
                trigger.with_default_zone(usual).zone if isinstance(trigger, Cron | Once) else usual
            )
        return self._zones[schedule_id]

    async def _chat(self, chat: str) -> Mapping[str, object]:
        if chat not in self._chats:
            kept = await self._store.read_state(LINKED_CHAT + chat)
            self._chats[chat] = {} if kept is None else _read(kept.value)
        return self._chats[chat]


def _refused_address(to: str, allowed: tuple[str, ...]) -> Refused | None:
    domain = to.rpartition("@")[2].lower()
    if not allowed or domain in {each.lower().removeprefix("@") for each in allowed}:
        return None
    error = say("nothing may be sent to addresses of {domain}: CHIMES_SMTP_ALLOWED", domain=domain)
    return Refused(error=error, code="not_allowed")


def _read(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(found: Mapping[str, object], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""
