"""A store as JSON Lines: a first line that says what follows, then one line per item."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final

from chimes import __version__
from chimes.errors import ChimesError, InvalidInput
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.delivery import Delivery, InboxItem
from chimes.model.ids import RunId
from chimes.model.kept_state import KeptState
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.store.codec.messages import (
    delivery_from_plain,
    delivery_to_plain,
    inbox_from_plain,
    inbox_to_plain,
)
from chimes.store.codec.records import (
    audit_from_plain,
    audit_to_plain,
    kept_state_from_plain,
    kept_state_to_plain,
    key_from_plain,
    key_to_plain,
)
from chimes.store.codec.run import log_from_plain, log_to_plain, run_from_plain, run_to_plain
from chimes.store.codec.schedule import schedule_from_plain, schedule_to_plain
from chimes.store.plain import Plain, Reader
from chimes.store.port import Item, RunLog, Store
from chimes.wording import say

FORMAT: Final = 1
_BATCH = 500
_LONGEST_LINE = 64 * 1024 * 1024


def to_plain(item: Item) -> tuple[str, Plain]:
    match item:
        case Schedule():
            return "schedule", schedule_to_plain(item)
        case Run():
            return "run", run_to_plain(item)
        case RunLog():
            entries = [log_to_plain(entry) for entry in item.entries]
            return "log", {"run_id": item.run_id, "entries": entries}
        case AuditEntry():
            return "audit", audit_to_plain(item)
        case ApiKey():
            return "key", key_to_plain(item)
        case KeptState():
            return "state", kept_state_to_plain(item)
        case Delivery():
            return "delivery", delivery_to_plain(item)
        case InboxItem():
            return "inbox", inbox_to_plain(item)


def _log(data: object) -> RunLog:
    read = Reader(data)
    entries = tuple(log_from_plain(entry) for entry in read.items("entries"))
    return RunLog(run_id=RunId(read.text("run_id")), entries=entries)


_READERS: dict[str, Callable[[object], Item]] = {
    "schedule": schedule_from_plain,
    "run": run_from_plain,
    "log": _log,
    "audit": audit_from_plain,
    "key": key_from_plain,
    "state": kept_state_from_plain,
    "delivery": delivery_from_plain,
    "inbox": inbox_from_plain,
}


async def exported(items: AsyncIterator[Item]) -> AsyncIterator[str]:
    yield json.dumps({"chimes_export": FORMAT, "version": __version__})
    async for item in items:
        kind, plain = to_plain(item)
        yield json.dumps({"kind": kind, "value": plain}, ensure_ascii=False, separators=(",", ":"))


def imported(lines: Iterable[str]) -> Iterator[Item]:
    """The items of an export; InvalidInput names the line that is wrong."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if len(line) > _LONGEST_LINE:
                raise InvalidInput(say("it is too long"))
            data = json.loads(line)
            if number == 1:
                _check_head(data)
                continue
            read = Reader(data)
            kind = read.text("kind")
            if kind not in _READERS:
                raise InvalidInput(say("unknown kind {kind!r}", kind=kind))
            yield read.read("value", _READERS[kind])
        except (ValueError, KeyError, TypeError, RecursionError, ChimesError) as error:
            why = error.message if isinstance(error, ChimesError) else str(error)
            raise InvalidInput(
                say("line {number}: {reason}", number=number, reason=why), code="bad_export"
            ) from None


def _check_head(data: object) -> None:
    if not isinstance(data, dict) or "chimes_export" not in data:
        raise InvalidInput(say("this is not an export of Chimes"))
    if data["chimes_export"] != FORMAT:
        raise InvalidInput(
            say(
                "this export has format {found}, known is {known}",
                found=data["chimes_export"],
                known=FORMAT,
            )
        )


async def load_all(store: Store, items: AsyncIterator[Item]) -> tuple[int, int]:
    """How many items there were, and how many of them were new."""
    seen = new = 0
    batch: list[Item] = []
    async for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            seen, new, batch = seen + len(batch), new + await store.load(batch), []
    return seen + len(batch), new + (await store.load(batch) if batch else 0)
