"""Small documents that people change: one at a time, whatever the store and however many nodes.

A kept state has no version to compare, so a change is made under a mark that only one can set.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from chimes.errors import StoreUnavailable
from chimes.model.audit import AuditEntry
from chimes.model.kept_state import LONGEST_STATE
from chimes.store.port import Store
from chimes.wording import say

_SCOPE = "changing"
#: Who holds the mark may have died.
_HOLD = timedelta(seconds=10)
_TRIES, _PAUSE = 400, 0.03

Document = dict[str, object]


class DocumentStore:
    """A named JSON object."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    async def read(self) -> Document:
        """Empty if there is none, or if it was damaged."""
        state = await self._store.read_state(self._name)
        if state is None:
            return {}
        try:
            found = json.loads(state.value)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    async def write(self, document: Document, audit: AuditEntry | None = None) -> None:
        """Only within `changing`. An empty one is forgotten."""
        if not document:
            await self._store.set_state(self._name, None, audit)
            return
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        if len(text) > LONGEST_STATE:
            raise StoreUnavailable(say("{name} has grown too large", name=self._name))
        await self._store.set_state(self._name, text, audit)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[Document]:
        """The document as it is, while nobody else changes it. StoreUnavailable if somebody does
        for too long."""
        mine = secrets.token_hex(8)
        for _ in range(_TRIES):
            holder = await self._store.remember_request(_SCOPE, self._name, mine, keep=_HOLD)
            if holder is None:
                break
            await asyncio.sleep(_PAUSE)
        else:
            raise StoreUnavailable(say("somebody else is changing {name}", name=self._name))
        try:
            yield await self.read()
        finally:
            await self._store.forget_request(_SCOPE, self._name)
