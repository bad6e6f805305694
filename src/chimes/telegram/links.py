"""Which chat belongs to whom. A chat is on its own (`chat:<id>`) until somebody who is
logged in asks for a code, sends it from the chat, and then confirms the chat."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.audit import AuditEntry
from chimes.notifications.telegram_api import BotApi, BotApiError
from chimes.services.audit import entry
from chimes.store.port import Store

CODE_LASTS = timedelta(minutes=10)
_CODE_BYTES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """What is known of a chat. Without an owner it is its own."""

    id: str
    owner: str = ""
    #: Who speaks for the owner: nobody else in that chat is listened to.
    user_id: str = ""
    language: str = ""
    timezone: str = ""
    #: Whose it was last, until it is linked again: nothing of theirs is sent to it any more.
    left: str = ""

    @property
    def acts_for(self) -> Owner:
        return owner_of(self.owner) if self.owner else Owner(type=OwnerType.CHAT, id=self.id)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A chat that sent a code and waits to be confirmed."""

    chat_id: str
    user_id: str
    until: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NewCode:
    #: Shown once; only its hash is kept.
    text: str
    expires_at: datetime


class Links:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def chat(self, chat_id: str) -> Chat:
        found = await self._read(_chat_key(chat_id))
        known = {name: str(found[name]) for name in _CHAT_FIELDS if found.get(name)}
        return Chat(id=chat_id, **known)

    async def keep(self, chat: Chat, note: AuditEntry | None = None) -> None:
        fields = {name: value for name, value in asdict(chat).items() if value and name != "id"}
        await self._store.set_state(_chat_key(chat.id), _dump(fields) if fields else None, note)

    async def new_code(self, actor: Actor) -> NewCode:
        now = await self._store.now()
        code = secrets.token_urlsafe(_CODE_BYTES)
        until = now + CODE_LASTS
        # One code of an owner at a time: those that nobody used must not pile up.
        before = await self._store.set_state(_newest_key(actor.owner), _code_key(code))
        if before is not None:
            await self._store.set_state(before.value, None)
        value = {"owner": str(actor.owner), "until": until.isoformat()}
        note = entry(actor, "telegram_code", "owner", str(actor.owner), at=now, owner=actor.owner)
        await self._store.set_state(_code_key(code), _dump(value), note)
        return NewCode(text=code, expires_at=until)

    async def use_code(self, code: str, chat_id: str, user_id: str) -> Owner | None:
        """The owner who may confirm the chat now. A code is used once, whoever has it."""
        taken = await self._store.set_state(_code_key(code), None)
        if taken is None:
            return None
        found = _load(taken.value)
        now = await self._store.now()
        if datetime.fromisoformat(str(found["until"])) <= now:
            return None
        owner = owner_of(str(found["owner"]))
        until = (now + CODE_LASTS).isoformat()
        asked = {"user_id": user_id, "until": until}
        await self._change_links(owner, lambda known: {**_fresh(known, now), chat_id: asked})
        return owner

    async def waiting(self, owner: Owner) -> list[Asked]:
        """Chats that want to belong to this owner."""
        now = await self._store.now()
        found = await self._read(_links_key(owner))
        return [each for each in _asked(found) if datetime.fromisoformat(each.until) > now]

    async def linked(self, owner: Owner) -> list[Chat]:
        found = await self._read(_links_key(owner))
        chats = [await self.chat(chat_id) for chat_id in found]
        return [chat for chat in chats if chat.owner == str(owner)]

    async def confirm(self, actor: Actor, chat_id: str) -> Chat:
        """Only the owner whose code the chat has sent; NotFound otherwise."""
        waiting = {each.chat_id: each for each in await self.waiting(actor.owner)}
        if chat_id not in waiting:
            raise NotFound(_("no chat {id} waits to be confirmed", id=chat_id))
        before = await self.chat(chat_id)
        chat = Chat(
            id=chat_id,
            owner=str(actor.owner),
            user_id=waiting[chat_id].user_id,
            language=before.language,
            timezone=before.timezone,
        )
        now = await self._store.now()
        note = entry(
            actor, "telegram_link", "chat", chat_id, at=now, owner=actor.owner,
            changes={"owner": [before.owner, chat.owner]},
        )  # fmt: skip
        await self.keep(chat, note)
        await self._change_links(
            actor.owner, lambda known: {**known, chat_id: {"user_id": chat.user_id, "until": ""}}
        )
        return chat

    async def unlink(self, actor: Actor, chat: Chat) -> None:
        """The chat is its own again; what it has made stays with its owner."""
        owner = chat.acts_for
        now = await self._store.now()
        note = entry(
            actor, "telegram_unlink", "chat", chat.id, at=now, owner=owner,
            changes={"owner": [chat.owner, ""]},
        )  # fmt: skip
        own = Chat(id=chat.id, language=chat.language, timezone=chat.timezone, left=chat.owner)
        await self.keep(own, note)
        await self._change_links(
            owner, lambda known: {each: said for each, said in known.items() if each != chat.id}
        )

    async def _change_links(
        self,
        owner: Owner,
        change: Callable[[Mapping[str, object]], Mapping[str, object]],
    ) -> None:
        """The store only swaps whole values: what another node put in between is merged and
        written again."""
        name = _links_key(owner)
        seen = await self._store.read_state(name)
        base = expected = seen.value if seen else None
        while True:
            changed = _dump(change(_load(base) if base else {}))
            before = await self._store.set_state(name, changed)
            if (before.value if before else None) == expected:
                return
            base, expected = before.value if before else None, changed

    async def _read(self, name: str) -> Mapping[str, object]:
        found = await self._store.read_state(name)
        return _load(found.value) if found else {}


_CHAT_FIELDS = ("owner", "user_id", "language", "timezone", "left")


def owner_of(text: str) -> Owner:
    kind, _unused, owner_id = text.partition(":")
    return Owner(type=OwnerType(kind), id=owner_id)


def _asked(found: Mapping[str, object]) -> list[Asked]:
    waiting = []
    for chat_id, said in found.items():
        if isinstance(said, Mapping) and said.get("until"):
            user_id, until = str(said.get("user_id", "")), str(said["until"])
            waiting.append(Asked(chat_id=chat_id, user_id=user_id, until=until))
    return waiting


def _fresh(known: Mapping[str, object], now: datetime) -> dict[str, object]:
    """Without those that waited in vain."""
    over = {each.chat_id for each in _asked(known) if datetime.fromisoformat(each.until) <= now}
    return {chat_id: said for chat_id, said in known.items() if chat_id not in over}


def _chat_key(chat_id: str) -> str:
    return f"telegram:chat:{chat_id}"


def _code_key(code: str) -> str:
    return f"telegram:link:{hashlib.sha256(code.encode()).hexdigest()}"


def _newest_key(owner: Owner) -> str:
    return f"telegram:code:{owner}"


def _links_key(owner: Owner) -> str:
    return f"telegram:links:{owner}"


def _dump(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _load(text: str) -> dict[str, object]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


# @@ The name by which people call the bot.


class Username:
    """Asked for once; empty while Telegram does not say."""

    def __init__(self, api: BotApi) -> None:
        self._api = api
        self._known = ""

    async def __call__(self) -> str:
        if not self._known:
            try:
                me = await self._api.call("getMe", {})
            except BotApiError:
                return ""
            self._known = str(me.get("username", "")) if isinstance(me, dict) else ""
        return self._known
