"""Small JSON documents with atomic changes, on every store."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from chimes.errors import StoreUnavailable
from chimes.i18n import _
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import MAX_CHECKPOINT_LENGTH
from chimes.store.port import Store

_LOCK_SCOPE = "changing"
#: The lock expires, because its holder may have died.
_LOCK_LIFETIME = timedelta(seconds=10)
_LOCK_TRIES, _LOCK_PAUSE = 400, 0.03

Document = dict[str, object]


class DocumentStore:
    """One named JSON object. Stored states have no version, so changes are made under a lock."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    async def read(self) -> Document:
        """Empty if it does not exist or is corrupt."""
        state = await self._store.get_checkpoint(self._name)
        if state is None:
            return {}
        try:
            document = json.loads(state.value)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}

    async def write(self, document: Document, audit: AuditEntry | None = None) -> None:
        """Only under `lock`. An empty document is deleted."""
        if not document:
            await self._store.set_checkpoint(self._name, None, audit)
            return
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        if len(text) > MAX_CHECKPOINT_LENGTH:
            raise StoreUnavailable(_("{name} is too large", name=self._name))
        await self._store.set_checkpoint(self._name, text, audit)

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[Document]:
        """The current document under an exclusive lock. Raises StoreUnavailable if the lock is held
        for too long."""
        token = secrets.token_hex(8)
        for _try in range(_LOCK_TRIES):
            holder = await self._store.remember_request(
                _LOCK_SCOPE, self._name, token, keep=_LOCK_LIFETIME
            )
            if holder is None:
                break
            await asyncio.sleep(_LOCK_PAUSE)
        else:
            raise StoreUnavailable(_("{name} is locked by another request", name=self._name))
        try:
            yield await self.read()
        finally:
            await self._store.forget_request(_LOCK_SCOPE, self._name)
