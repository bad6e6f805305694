"""Links between chats and owners. A chat belongs to itself (`chat:<id>`) until a user requests a
code, sends it from the chat and confirms the chat."""

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

CODE_LIFETIME = timedelta(minutes=10)
_CODE_BYTES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """Stored data of a chat. Without an owner it belongs to itself."""

    id: str
    owner: str = ""
    #: The linked Telegram user; messages of others in the chat are ignored.
    user_id: str = ""
    language: str = ""
    timezone: str = ""
    #: The former owner: its notifications are no longer sent to the chat.
    left: str = ""

    @property
    def acts_for(self) -> Owner:
        return owner_of(self.owner) if self.owner else Owner(type=OwnerType.CHAT, id=self.id)


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingChat:
    """A chat that sent a code and waits for confirmation."""

    chat_id: str
    user_id: str
    until: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NewCode:
    #: Only its hash is stored.
    text: str
    expires_at: datetime


class Links:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def chat(self, chat_id: str) -> Chat:
        found = await self._read(_chat_key(chat_id))
        known = {name: str(found[name]) for name in _CHAT_FIELDS if found.get(name)}
        return Chat(id=chat_id, **known)

    async def save(self, chat: Chat, audit: AuditEntry | None = None) -> None:
        fields = {name: value for name, value in asdict(chat).items() if value and name != "id"}
        await self._store.set_checkpoint(
            _chat_key(chat.id), _dump(fields) if fields else None, audit
        )

    async def new_code(self, actor: Actor) -> NewCode:
        now = await self._store.now()
        code = secrets.token_urlsafe(_CODE_BYTES)
        until = now + CODE_LIFETIME
        # One code per owner: unused codes must not accumulate.
        before = await self._store.set_checkpoint(_newest_key(actor.owner), _code_key(code))
        if before is not None:
            await self._store.set_checkpoint(before.value, None)
        value = {"owner": str(actor.owner), "until": until.isoformat()}
        audit = entry(actor, "telegram_code", "owner", str(actor.owner), at=now, owner=actor.owner)
        await self._store.set_checkpoint(_code_key(code), _dump(value), audit)
        return NewCode(text=code, expires_at=until)

    async def use_code(self, code: str, chat_id: str, user_id: str) -> Owner | None:
        """Consumes a code. Returns the owner who may confirm the chat, or None."""
        consumed = await self._store.set_checkpoint(_code_key(code), None)
        if consumed is None:
            return None
        found = _load(consumed.value)
        now = await self._store.now()
        if datetime.fromisoformat(str(found["until"])) <= now:
            return None
        owner = owner_of(str(found["owner"]))
        until = (now + CODE_LIFETIME).isoformat()
        pending = {"user_id": user_id, "until": until}
        await self._change_links(
            owner, lambda known: {**_without_expired(known, now), chat_id: pending}
        )
        return owner

    async def waiting(self, owner: Owner) -> list[PendingChat]:
        """Chats that wait for confirmation by this owner."""
        now = await self._store.now()
        found = await self._read(_links_key(owner))
        return [each for each in _pending_chats(found) if datetime.fromisoformat(each.until) > now]

    async def linked(self, owner: Owner) -> list[Chat]:
        found = await self._read(_links_key(owner))
        chats = [await self.chat(chat_id) for chat_id in found]
        return [chat for chat in chats if chat.owner == str(owner)]

    async def confirm(self, actor: Actor, chat_id: str) -> Chat:
        """Links a chat that sent a code of this owner. Raises NotFound otherwise."""
        waiting = {each.chat_id: each for each in await self.waiting(actor.owner)}
        if chat_id not in waiting:
            raise NotFound(_("no chat {id} is waiting for confirmation", id=chat_id))
        before = await self.chat(chat_id)
        chat = Chat(
            id=chat_id,
            owner=str(actor.owner),
            user_id=waiting[chat_id].user_id,
            language=before.language,
            timezone=before.timezone,
        )
        now = await self._store.now()
        audit = entry(
            actor, "telegram_link", "chat", chat_id, at=now, owner=actor.owner,
            changes={"owner": [before.owner, chat.owner]},
        )  # fmt: skip
        await self.save(chat, audit)
        await self._change_links(
            actor.owner, lambda known: {**known, chat_id: {"user_id": chat.user_id, "until": ""}}
        )
        return chat

    async def unlink(self, actor: Actor, chat: Chat) -> None:
        """Unlinks a chat; its schedules stay with the owner."""
        owner = chat.acts_for
        now = await self._store.now()
        audit = entry(
            actor, "telegram_unlink", "chat", chat.id, at=now, owner=owner,
            changes={"owner": [chat.owner, ""]},
        )  # fmt: skip
        own = Chat(id=chat.id, language=chat.language, timezone=chat.timezone, left=chat.owner)
        await self.save(own, audit)
        await self._change_links(
            owner,
            lambda known: {each: details for each, details in known.items() if each != chat.id},
        )

    async def _change_links(
        self,
        owner: Owner,
        change: Callable[[Mapping[str, object]], Mapping[str, object]],
    ) -> None:
        """Compare and swap: merges and writes again if another node has changed the value."""
        name = _links_key(owner)
        seen = await self._store.get_checkpoint(name)
        base = expected = seen.value if seen else None
        while True:
            changed = _dump(change(_load(base) if base else {}))
            before = await self._store.set_checkpoint(name, changed)
            if (before.value if before else None) == expected:
                return
            base, expected = before.value if before else None, changed

    async def _read(self, name: str) -> Mapping[str, object]:
        found = await self._store.get_checkpoint(name)
        return _load(found.value) if found else {}


_CHAT_FIELDS = ("owner", "user_id", "language", "timezone", "left")


def owner_of(text: str) -> Owner:
    kind, _unused, owner_id = text.partition(":")
    return Owner(type=OwnerType(kind), id=owner_id)


def _pending_chats(found: Mapping[str, object]) -> list[PendingChat]:
    waiting = []
    for chat_id, details in found.items():
        if isinstance(details, Mapping) and details.get("until"):
            user_id, until = str(details.get("user_id", "")), str(details["until"])
            waiting.append(PendingChat(chat_id=chat_id, user_id=user_id, until=until))
    return waiting


def _without_expired(known: Mapping[str, object], now: datetime) -> dict[str, object]:
    """Removes expired requests."""
    expired = {
        each.chat_id for each in _pending_chats(known) if datetime.fromisoformat(each.until) <= now
    }
    return {chat_id: details for chat_id, details in known.items() if chat_id not in expired}


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


class Username:
    """The user name of the bot, read once; empty until Telegram has answered."""

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
