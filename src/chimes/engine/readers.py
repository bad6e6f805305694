"""Who will read a message: in which language, and by which clock."""

from __future__ import annotations

import json

from chimes.config import Settings
from chimes.delivery.words import USUAL
from chimes.model.access import Owner, OwnerType
from chimes.model.delivery import Delivery
from chimes.model.recipient import Channel
from chimes.service.preferences import Preferences, PreferenceService
from chimes.service.recipients import LINKED_CHAT
from chimes.store.port import Store

_NOTHING = Preferences()


class Readers:
    """One object serves one batch, and asks for each reader once."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._preferences = PreferenceService(store)
        self._settings = settings
        self._owners: dict[Owner, Preferences] = {}
        self._chats: dict[str, Preferences] = {}

    async def of(self, delivery: Delivery) -> tuple[str, str]:
        """Language and zone: the recipient's own, else the chat's, else the owner's."""
        recipient, owner = delivery.recipient, delivery.owner
        chat = _NOTHING
        if recipient.channel is Channel.TELEGRAM:
            chat = await self._chat(recipient.to)
        if owner not in self._owners:
            self._owners[owner] = await self._preferences.of(owner)
        liked = self._owners[owner]
        language = recipient.language or chat.language or liked.language or USUAL
        return language, chat.timezone or liked.timezone or self._usual_zone(owner)

    def _usual_zone(self, owner: Owner) -> str:
        in_chat = owner.type is OwnerType.CHAT
        settings = self._settings
        return settings.softnix_default_timezone if in_chat else settings.default_timezone

    async def _chat(self, chat: str) -> Preferences:
        if chat not in self._chats:
            kept = await self._store.read_state(LINKED_CHAT + chat)
            self._chats[chat] = _NOTHING if kept is None else _read(kept.value)
        return self._chats[chat]


def _read(text: str) -> Preferences:
    try:
        found = json.loads(text)
    except ValueError:
        return _NOTHING
    if not isinstance(found, dict):
        return _NOTHING
    language, timezone = found.get("language"), found.get("timezone")
    return Preferences(
        language=language if isinstance(language, str) else None,
        timezone=timezone if isinstance(timezone, str) else None,
    )
