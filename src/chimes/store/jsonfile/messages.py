"""Messages that have left the file for `messages-<yyyymm>.jsonl`: deliveries that were delivered,
and inbox items, whose text does not change any more.

jobs.json goes on saying which of them there are, and of an item what its owner made of it: read,
starred, archived, snoozed. So whatever is forgotten needs no word here, and a line that nobody
refers to is only waste, which goes when there is much of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from pathlib import Path

from chimes.errors import InvalidInput
from chimes.model.delivery import Delivery, InboxItem
from chimes.model.ids import DeliveryId, InboxId
from chimes.store.codec.messages import (
    delivery_from_plain,
    delivery_to_plain,
    inbox_from_plain,
    inbox_to_plain,
)
from chimes.store.jsonfile.archive import REWRITE_FROM, Archive
from chimes.store.jsonfile.encoding import encode_line
from chimes.store.plain import Reader
from chimes.wording import say


class MessageArchive:
    def __init__(self, directory: Path) -> None:
        self._archive = Archive(directory, "messages")
        #: Lines that nobody refers to, after they were last thrown away.
        self._waste = 0

    @property
    def unreadable(self) -> int:
        return self._archive.unreadable

    def append(self, deliveries: Iterable[Delivery], items: Iterable[InboxItem]) -> None:
        self._archive.append(
            [
                *(
                    (each.created_at, encode_line({"delivery": delivery_to_plain(each)}))
                    for each in deliveries
                ),
                *(
                    (item.created_at, encode_line({"inbox": inbox_to_plain(item)}))
                    for item in items
                ),
            ]
        )

    def read(self) -> tuple[dict[DeliveryId, Delivery], dict[InboxId, InboxItem]]:
        deliveries: dict[DeliveryId, Delivery] = {}
        items: dict[InboxId, InboxItem] = {}

        def one(data: object) -> None:
            row = _row(data)
            if isinstance(row, Delivery):
                deliveries[row.id] = row
            else:
                items[row.id] = row

        self._archive.read(one)
        return deliveries, items

    def tidy(self, deliveries: Collection[DeliveryId], items: Collection[InboxId]) -> None:
        """Once jobs.json refers to these only."""
        used = len(deliveries) + len(items)
        waste = sum(self._archive.rows.values()) - used
        much = waste >= self._waste + REWRITE_FROM and waste >= used
        if not much and (used or not waste):
            return

        def keep(data: object) -> bool:
            row = _row(data)
            return row.id in (deliveries if isinstance(row, Delivery) else items)

        with contextlib.suppress(OSError):  # tried again with the next
            for path in list(self._archive.rows):
                self._archive.rewrite(path, keep)
                if not self._archive.rows[path]:
                    del self._archive.rows[path]
        self._waste = sum(self._archive.rows.values()) - used


def _row(data: object) -> Delivery | InboxItem:
    read = Reader(data)
    if read.has("delivery"):
        return read.read("delivery", delivery_from_plain)
    if read.has("inbox"):
        return read.read("inbox", inbox_from_plain)
    raise InvalidInput(say("it is neither a delivery nor an inbox item"))
