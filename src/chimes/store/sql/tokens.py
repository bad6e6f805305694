"""Buckets of tokens that all nodes share, by the database's clock: one statement each."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from sqlalchemy import bindparam, delete

from chimes.store.messages import Taken
from chimes.store.plain import MICROSECOND
from chimes.store.sql.base import SqlBase
from chimes.store.sql.database import Tx
from chimes.store.sql.dialects.base import Asked
from chimes.store.sql.message_tables import buckets
from chimes.store.sql.rows.parts import micros
from chimes.store.tokens import answered

_FULL = delete(buckets).where(buckets.c.full_at < bindparam("now"))
_NAME_ROOM = 255
#: Longer than that nothing is kept, however slowly it fills.
_LONGEST = timedelta(days=366)


class SqlTokens(SqlBase):
    async def take_tokens(self, name: str, *, rate: float, burst: int, count: int = 1) -> Taken:
        granted = count if count <= burst else 0
        asked = Asked(
            name=name if len(name) <= _NAME_ROOM else hashlib.sha256(name.encode()).hexdigest(),
            rate=rate,
            burst=burst,
            wanted=count,
            first_granted=granted,
            first_tokens=float(burst - granted),
            fills_in=min(burst / rate, _LONGEST.total_seconds())
            * timedelta(seconds=1)
            // MICROSECOND,
        )
        tokens, granted = await self._database.write(
            lambda tx: tx.dialect.take_tokens(tx.connection, tx.set_clock(), asked)
        )
        return answered(tokens, granted=granted, rate=rate, count=count)


def forget_full(tx: Tx) -> None:
    """They begin full anyway."""
    tx.run(_FULL, {"now": micros(tx.now())})
