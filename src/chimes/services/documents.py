"""Small JSON documents, changed with compare-and-set on every store (ADR 37)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from chimes.errors import StaleVersion, StoreBusy, StoreUnavailable
from chimes.i18n import _
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import MAX_CHECKPOINT_LENGTH, Checkpoint, version_of
from chimes.store.port import Store

_TRIES = 50
#: Seconds before the second try, doubled with each further one.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5

Document = dict[str, object]
#: Returns the new document and its audit entry.
Change = Callable[[Document], tuple[Document, AuditEntry | None]]
#: Value, audit entry and, by name, the expected version.
Write = Callable[..., Awaitable[object]]


class DocumentTooLarge(StoreUnavailable):
    """The document has more characters than it may have"""


class DocumentStore:
    """One named JSON object."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        write: Write | None = None,
        limit: int = MAX_CHECKPOINT_LENGTH,
    ) -> None:
        """`write` replaces `set_checkpoint` where the store has a method for the document. `limit`:
        most characters of its JSON."""
        self._limit = limit
        self._store = store
        self._name = name
        self._write = write or self._set

    def _set(self, *given: Any, expected: int | None) -> Awaitable[object]:
        return self._store.set_checkpoint(self._name, *given, expected=expected)

    async def read(self) -> Document:
        """Empty if it does not exist or is corrupt."""
        return _parse(await self._store.get_checkpoint(self._name))

    async def change(self, change: Change) -> Document:
        """Stores what the function makes of the current document, and returns it. An empty document
        is deleted. The function is called again if another request was faster; keep it pure. Raises
        StoreUnavailable after too many conflicts."""
        pause = _FIRST_PAUSE
        for _try in range(_TRIES):
            stored = await self._store.get_checkpoint(self._name)
            document, audit = change(_parse(stored))
            if audit is None and document == _parse(stored):
                return document
            text = self._to_text(document)
            try:
                await self._write(text, audit, expected=version_of(stored))
            except StaleVersion:
                await asyncio.sleep(random.uniform(0, pause))  # noqa: S311
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return document
        raise StoreBusy(_("too many concurrent changes; try again"))

    def _to_text(self, document: Document) -> str | None:
        if not document:
            return None
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        if len(text) > self._limit:
            raise DocumentTooLarge(_("{name} is too large", name=self._name))
        return text


def _parse(stored: Checkpoint | None) -> Document:
    try:
        document = json.loads(stored.value) if stored is not None else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
