"""Who speaks in a chat, and whether it is listened to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.doors.telegram.links import Chat, Links
from chimes.doors.telegram.replies import Reply
from chimes.doors.telegram.texts import Language, language_of, language_of_text
from chimes.doors.telegram.updates import Incoming
from chimes.doors.telegram.window import MinuteWindow
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.service.preferences import PreferenceService
from chimes.store.port import Store
from chimes.wording import in_language, say

DOOR = "telegram"
#: After this time nothing is changed because of an old message (S58).
TOO_OLD = timedelta(minutes=10)
#: One `Unauthorized chat` an hour for each stranger (S56).
_STRANGERS = 1 / 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """What came of an update: for the chat, and for the record."""

    replies: tuple[Reply, ...] = ()
    event: str = "ignored"
    command: str = ""
    ok: bool = True
    #: Shown to the one who pressed a button.
    notice: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speaker:
    """On whose behalf, and in which language, an update is dealt with."""

    chat: Chat
    actor: Actor
    language: Language
    zone: str
    update_id: int
    sender_id: str
    now: datetime

    @property
    def actors(self) -> tuple[Actor, ...]:
        """A chat that acts for a user still has what it made before."""
        own = Owner(type=OwnerType.CHAT, id=self.chat.id)
        if self.actor.owner == own:
            return (self.actor,)
        return (self.actor, replace(self.actor, owner=own))


class Doorkeeper:
    def __init__(
        self,
        store: Store,
        links: Links,
        preferences: PreferenceService,
        *,
        allowed: Collection[str],
        per_minute: int,
        default_zone: str,
    ) -> None:
        self._store = store
        self._links = links
        self._preferences = preferences
        self._allowed = frozenset(allowed)
        self._per_minute = per_minute
        self._window = MinuteWindow(per_minute)
        self._default_zone = default_zone

    def knows(self, chat_id: str) -> bool:
        return chat_id in self._allowed

    async def turn_away(self, incoming: Incoming) -> Settled:
        """A stranger: told once an hour, and then on record (S56)."""
        bucket = f"telegram:stranger:{incoming.chat_id}"
        taken = await self._store.take_tokens(bucket, rate=_STRANGERS, burst=1)
        replies: tuple[Reply, ...] = ()
        if taken.granted and not incoming.second_hand:
            replies = (Reply(chat_id=incoming.chat_id, text=str(say("Unauthorized chat"))),)
        return Settled(replies=replies, event="unauthorized", ok=False)

    async def admit(self, incoming: Incoming) -> Speaker | Settled:
        """The speaker, or how the matter ends without one."""
        chat = await self._links.chat(incoming.chat_id)
        if incoming.second_hand or (chat.user_id and incoming.sender_id != chat.user_id):
            return Settled(event="not_listened_to", ok=False)
        speaker = await self._speaker(incoming, chat)
        return await self._too_many(speaker) or speaker

    async def _speaker(self, incoming: Incoming, chat: Chat) -> Speaker:
        owner = chat.acts_for
        own = await self._preferences.of(owner)
        language = (
            language_of(chat.language)
            or language_of(own.language or "")
            or language_of(incoming.language_code)
            or language_of_text(incoming.text)
            or "en"
        )
        return Speaker(
            chat=chat,
            actor=Actor(owner=owner, role=Role.MEMBER, door=DOOR, address=f"chat:{chat.id}"),
            language=language,
            zone=chat.timezone or own.timezone or self._default_zone,
            update_id=incoming.update_id,
            sender_id=incoming.sender_id,
            now=await self._store.now(),
        )

    async def _too_many(self, speaker: Speaker) -> Settled | None:
        """R1.37: across all nodes. The first refusal is said, the rest is silence."""
        name, rate = f"telegram:chat:{speaker.chat.id}", self._per_minute / 60
        wait = self._window.wait(speaker.chat.id, speaker.now)
        if wait is None:
            taken = await self._store.take_tokens(name, rate=rate, burst=self._per_minute)
            if taken.granted:
                return None
            wait = taken.wait
        told = await self._store.take_tokens(f"{name}:told", rate=1 / 60, burst=1)
        replies: tuple[Reply, ...] = ()
        if told.granted:
            busy = say(
                "Too many messages; try again in {seconds} s.",
                seconds=max(1, round(wait.total_seconds())),
            )
            text = in_language(busy, speaker.language)
            replies = (Reply(chat_id=speaker.chat.id, text=text),)
        return Settled(replies=replies, event="rate_limited", ok=False)


def too_old(incoming: Incoming, now: datetime) -> bool:
    return incoming.sent_at is not None and now - incoming.sent_at > TOO_OLD
