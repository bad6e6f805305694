"""Links between chats and owners. A chat belongs to itself (`chat:<id>`) until a user requests a
code, sends it from the chat and confirms the chat."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.audit import AuditEntry, entry
from chimes.notifications.telegram_api import BotApi, BotApiError
from chimes.services.documents import Document, DocumentStore
from chimes.services.schedules.rules import LINKED_CHAT, LINKED_CHATS
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
        return _read_chat(chat_id, await self._chat_document(chat_id).read())

    async def change_chat(
        self, chat_id: str, change: Callable[[Chat], Chat], audit: AuditEntry | None = None
    ) -> Chat:
        def changed(stored: Document) -> tuple[Document, AuditEntry | None]:
            fields = asdict(change(_read_chat(chat_id, stored)))
            return {name: fields[name] for name in _CHAT_FIELDS if fields[name]}, audit

        return _read_chat(chat_id, await self._chat_document(chat_id).change(changed))

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
        await self._store.set_checkpoint(_code_key(code), json.dumps(value), audit)
        return NewCode(text=code, expires_at=until)

    async def use_code(self, code: str, chat_id: str, user_id: str) -> Owner | None:
        """Consumes a code. Returns the owner who may confirm the chat, or None."""
        consumed = await self._store.set_checkpoint(_code_key(code), None)
        if consumed is None:
            return None
        found = json.loads(consumed.value)
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
        found = await self._links(owner).read()
        return [each for each in _pending_chats(found) if datetime.fromisoformat(each.until) > now]

    async def linked(self, owner: Owner) -> list[Chat]:
        found = await self._links(owner).read()
        chats = [await self.chat(chat_id) for chat_id in found]
        return [chat for chat in chats if chat.owner == str(owner)]

    async def confirm(self, actor: Actor, chat_id: str) -> Chat:
        """Links a chat that sent a code of this owner. Raises NotFound otherwise."""
        waiting = {each.chat_id: each for each in await self.waiting(actor.owner)}
        if chat_id not in waiting:
            raise NotFound(_("no chat {id} is waiting for confirmation", id=chat_id))
        owner, user_id = str(actor.owner), waiting[chat_id].user_id
        now = await self._store.now()
        audit = entry(
            actor, "telegram_link", "chat", chat_id, at=now, owner=actor.owner,
            changes={"owner": [(await self.chat(chat_id)).owner, owner]},
        )  # fmt: skip
        chat = await self.change_chat(
            chat_id, lambda before: replace(before, owner=owner, user_id=user_id, left=""), audit
        )
        await self._change_links(
            actor.owner, lambda known: {**known, chat_id: {"user_id": user_id, "until": ""}}
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
        await self.change_chat(
            chat.id,
            lambda before: replace(before, owner="", user_id="", left=before.owner or before.left),
            audit,
        )
        await self._change_links(
            owner,
            lambda known: {each: details for each, details in known.items() if each != chat.id},
        )

    async def _change_links(
        self,
        owner: Owner,
        change: Callable[[Mapping[str, object]], Mapping[str, object]],
    ) -> None:
        await self._links(owner).change(lambda known: (dict(sorted(change(known).items())), None))

    def _links(self, owner: Owner) -> DocumentStore:
        return DocumentStore(self._store, f"{LINKED_CHATS}{owner}")

    def _chat_document(self, chat_id: str) -> DocumentStore:
        return DocumentStore(self._store, f"{LINKED_CHAT}{chat_id}")


_CHAT_FIELDS = ("owner", "user_id", "language", "timezone", "left")


def _read_chat(chat_id: str, stored: Document) -> Chat:
    return Chat(
        id=chat_id, **{name: str(stored[name]) for name in _CHAT_FIELDS if stored.get(name)}
    )


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


def _code_key(code: str) -> str:
    return f"telegram:link:{hashlib.sha256(code.encode()).hexdigest()}"


def _newest_key(owner: Owner) -> str:
    return f"telegram:code:{owner}"


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
