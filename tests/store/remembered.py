"""What a process remembers of rows (`KnownRows`)."""

from __future__ import annotations

from chimes.store.sql import SqlStore


async def forget(store: SqlStore) -> None:
    """Makes the store read its rows again, as a process that starts now. For tests that change rows
    behind the back of the store."""
    await store._database.read(lambda tx: tx.known.clear())
