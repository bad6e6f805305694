"""Who will read a message: in which language, and by which clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from chimes.config import Settings
from chimes.delivery.words import USUAL
from chimes.model.access import Owner, OwnerType
from chimes.model.delivery import Delivery
from chimes.model.recipient import Channel
from chimes.store.port import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    language: str
    zone: str


class Readers:
    """Preferences are kept states; one object serves one batch, and asks for each state once."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._known: dict[str, Mapping[str, object]] = {}

    async def of(self, delivery: Delivery) -> Reader:
        """The recipient's own language, else the chat's, else the owner's."""
        recipient = delivery.recipient
        found: list[Mapping[str, object]] = []
        if recipient.channel is Channel.TELEGRAM:
            found.append(await self._state(f"telegram:chat:{recipient.to}"))
        found.append(await self._state(f"me:{delivery.owner}"))
        return Reader(
            language=recipient.language or _first(found, "language") or USUAL,
            zone=_first(found, "timezone") or self._usual_zone(delivery.owner),
        )

    def _usual_zone(self, owner: Owner) -> str:
        in_chat = owner.type is OwnerType.CHAT
        settings = self._settings
        return settings.softnix_default_timezone if in_chat else settings.default_timezone

    async def _state(self, name: str) -> Mapping[str, object]:
        if name not in self._known:
            kept = await self._store.read_state(name)
            self._known[name] = {} if kept is None else _object(kept.value)
        return self._known[name]


def _object(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _first(states: list[Mapping[str, object]], key: str) -> str:
    texts = (state.get(key) for state in states)
    return next((text for text in texts if isinstance(text, str) and text), "")
