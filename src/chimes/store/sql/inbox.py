"""The inboxes of owners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import bindparam, delete, func, select, update

from chimes.errors import NotFound
from chimes.model.delivery import InboxItem
from chimes.model.ids import InboxId
from chimes.model.listing import InboxQuery, Page
from chimes.store.sql.base import SqlBase
from chimes.store.sql.database import Tx
from chimes.store.sql.listing import inbox_conditions, page_of
from chimes.store.sql.message_tables import inbox
from chimes.store.sql.rows.messages import item_of, item_values
from chimes.wording import say

_ITEM = select(inbox).where(inbox.c.id == bindparam("item_id"))
_CHANGE = update(inbox).where(inbox.c.id == bindparam("item_id"))
OLD_ITEMS = (
    select(inbox.c.id)
    .where(inbox.c.created_at < bindparam("before"), inbox.c.starred == 0)
    .order_by(inbox.c.created_at, inbox.c.id)
    .limit(bindparam("most"))
)


class SqlInbox(SqlBase):
    async def add_inbox(self, item: InboxItem) -> InboxItem:
        def work(tx: Tx) -> InboxItem:
            if tx.run(tx.dialect.insert_new(inbox), item_values(item)):
                return item
            row = tx.first(_ITEM, {"item_id": item.id})
            assert row is not None, "an item whose id is taken can be read"
            return item_of(row)

        return await self._database.write(work)

    async def list_inbox(self, query: InboxQuery) -> Page[InboxItem]:
        return await self._database.look(
            lambda tx: page_of(
                tx, inbox.c.created_at, query, inbox_conditions(query), item_of, descending=True
            )
        )

    async def count_unread(self, query: InboxQuery) -> int:
        conditions = inbox_conditions(replace(query, unread=True))
        statement = select(func.count()).select_from(inbox).where(*conditions)
        row = await self._database.look(lambda tx: tx.first(statement))
        return 0 if row is None else int(row[0])

    async def change_inbox(
        self, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
    ) -> InboxItem:
        def work(tx: Tx) -> InboxItem:
            row = tx.first(tx.held(_ITEM, inbox.c.id), {"item_id": item_id})
            if row is None:
                raise NotFound(say("inbox item {id} not found", id=item_id))
            after = change(item_of(row), tx.now())
            tx.run(_CHANGE, {"item_id": item_id, **item_values(after)})
            return after

        return await self._database.write(work)

    async def forget_inbox(self, item_ids: Sequence[InboxId]) -> int:
        def work(tx: Tx) -> int:
            these = tx.dialect.among(inbox.c.id, "ids")
            return tx.run(delete(inbox).where(these), {"ids": tx.dialect.listed(item_ids)})

        return await self._database.write(work) if item_ids else 0


def add_items(tx: Tx, items: Sequence[InboxItem]) -> None:
    """Those that are there already stay as they are."""
    if items:
        rows = sorted(items, key=lambda item: item.id)
        tx.run(tx.dialect.insert_new(inbox), [item_values(row) for row in rows])
