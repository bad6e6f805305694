"""Archives of old rows in `<stem>-<yyyymm>.jsonl`, which keep jobs.json small.

A row is appended and synced before the first jobs.json without it is written. After a crash in
between it is in both, and the one in jobs.json wins.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from pathlib import Path

from chimes.envelope import NO_KEYS, Keyring, keys_in
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.audit import AuditEntry
from chimes.model.ids import DeliveryId, InboxId
from chimes.model.notification import Delivery, InboxItem
from chimes.model.run import LogEntry, Run
from chimes.store.codec.records import (
    audit_from_plain,
    audit_to_plain,
    delivery_from_plain,
    delivery_to_plain,
    inbox_from_plain,
    inbox_to_plain,
    log_from_plain,
    log_to_plain,
    run_from_plain,
    run_to_plain,
)
from chimes.store.codec.values import Reader, open_parts, seal_plain
from chimes.store.jsonfile import files as disk
from chimes.store.jsonfile.document import encode_line
from chimes.store.jsonfile.state import Mark, age

#: An archive is rewritten when this many of its rows, and at least half of them, are deleted.
REWRITE_FROM = 1000

_log = logging.getLogger("chimes.store")


class Archive:
    """Append-only files, one per month."""

    def __init__(self, directory: Path, stem: str) -> None:
        self._directory = directory
        self._stem = stem
        #: Readable rows in each file.
        self.rows: dict[Path, int] = {}
        #: Lines that could not be read; they stay in the file.
        self.unreadable = 0

    def path_for(self, moment: datetime) -> Path:
        return self._directory / f"{self._stem}-{moment:%Y%m}.jsonl"

    def append(self, rows: Iterable[tuple[datetime, bytes]]) -> None:
        by_file: dict[Path, list[bytes]] = {}
        for moment, line in rows:
            by_file.setdefault(self.path_for(moment), []).append(line)
        for path, lines in by_file.items():
            disk.append(path, b"".join(lines))
            self.rows[path] = self.rows.get(path, 0) + len(lines)
        if by_file:
            disk.sync_directory(self._directory)

    def read(self, take: Callable[[object], None]) -> None:
        for path in sorted(self._directory.glob(f"{self._stem}-*.jsonl")):
            disk.protect(path)
            self.rows[path] = 0
            content = disk.read(path) or b""
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                # The process died during the append; jobs.json still has these rows.
                disk.cut(path, whole)
            for number, line in enumerate(content[:whole].splitlines(), 1):
                try:
                    take(json.loads(line))
                    self.rows[path] += 1
                except (InvalidInput, ValueError, TypeError) as error:
                    self.unreadable += 1
                    _log.warning("%s line %d cannot be read: %s", path.name, number, error)

    def rewrite(self, path: Path, keep: Callable[[object], bool]) -> None:
        """Rewrite without deleted rows; unreadable lines stay."""
        left: list[bytes] = []
        self.rows[path] = 0
        for line in (disk.read(path) or b"").splitlines(keepends=True):
            try:
                stays = keep(json.loads(line))
                self.rows[path] += stays
            except (InvalidInput, ValueError, TypeError):
                stays = True
            if stays:
                left.append(line)
        if left:
            disk.replace(path, b"".join(left))
        else:
            disk.remove(path)
        disk.sync_directory(self._directory)

    def reseal(self, encode: Callable[[object], dict[str, object]]) -> int:
        """Replaces lines whose secrets `encode` encrypts with another key; returns how many."""
        count = 0
        for path in sorted(self._directory.glob(f"{self._stem}-*.jsonl")):
            lines = (disk.read(path) or b"").splitlines(keepends=True)
            replaced = 0
            for at, line in enumerate(lines):
                try:
                    new = encode_line(encode(json.loads(line)))
                except (InvalidInput, ValueError, TypeError):
                    continue
                if keys_in(new) != keys_in(line):
                    lines[at] = new
                    replaced += 1
            if replaced:
                disk.replace(path, b"".join(lines))
                disk.sync_directory(self._directory)
            count += replaced
        return count


class RunArchive:
    """Ended runs with their logs."""

    def __init__(self, directory: Path, keyring: Keyring = NO_KEYS) -> None:
        self._keyring = keyring
        self._archive = Archive(directory, "runs")
        self._forgotten: dict[Path, int] = {}

    @property
    def unreadable(self) -> int:
        return self._archive.unreadable

    def append(self, runs: Iterable[tuple[Run, Iterable[LogEntry]]]) -> None:
        self._archive.append((age(run)[0], encode_line(self._plain(run, log))) for run, log in runs)

    def reseal(self) -> int:
        return self._archive.reseal(lambda data: self._plain(*_run(data)))

    def read(self, pruned_until: Mark | None, take: Callable[[Run, list[LogEntry]], None]) -> None:
        def one(data: object) -> None:
            run, log = _run(data)
            if pruned_until is None or age(run) > pruned_until:
                take(run, log)
            else:
                self._count_forgotten(run)

        self._archive.read(one)

    def forget(self, runs: Iterable[Run], pruned_until: Mark) -> None:
        """Call after jobs.json records that these are deleted."""
        for run in runs:
            self._count_forgotten(run)
        for path, count in list(self._forgotten.items()):
            rows = self._archive.rows.get(path, 0)
            if count >= rows or (count >= REWRITE_FROM and 2 * count >= rows):
                with contextlib.suppress(OSError):  # retried next time
                    self._archive.rewrite(path, lambda data: age(_run(data)[0]) > pruned_until)
                    del self._forgotten[path]

    def _plain(self, run: Run, log: Iterable[LogEntry]) -> dict[str, object]:
        sealed = seal_plain(run_to_plain(run), self._keyring)
        return {"run": sealed, "logs": [log_to_plain(entry) for entry in log]}

    def _count_forgotten(self, run: Run) -> None:
        path = self._archive.path_for(age(run)[0])
        self._forgotten[path] = self._forgotten.get(path, 0) + 1


def _run(data: object) -> tuple[Run, list[LogEntry]]:
    read = Reader(data)
    run = read.read("run", lambda plain: run_from_plain(open_parts(plain)))
    return run, [log_from_plain(line) for line in read.items("logs")]


class AuditArchive:
    def __init__(self, directory: Path) -> None:
        self._archive = Archive(directory, "audit")

    @property
    def unreadable(self) -> int:
        return self._archive.unreadable

    def append(self, entries: Iterable[AuditEntry]) -> None:
        self._archive.append((entry.at, encode_line(audit_to_plain(entry))) for entry in entries)

    def forget(self, entries: Collection[AuditEntry]) -> None:
        """Call after jobs.json records that these are deleted."""
        last = max(entry.number for entry in entries)
        for path in {self._archive.path_for(entry.at) for entry in entries}:
            # An error leaves lines that are not read again.
            with contextlib.suppress(OSError):
                self._archive.rewrite(path, lambda data: audit_from_plain(data).number > last)

    def read(self) -> dict[int, AuditEntry]:
        found: dict[int, AuditEntry] = {}

        def one(data: object) -> None:
            entry = audit_from_plain(data)
            found[entry.number] = entry

        self._archive.read(one)
        return found


# --- archive of delivered deliveries and inbox items in `messages-<yyyymm>.jsonl`. jobs.json keeps
# their ids and the marks of items (read, starred, archived, snoozed). A line without a reference is
# garbage, removed when there is much of it.


class MessageArchive:
    def __init__(self, directory: Path, keyring: Keyring = NO_KEYS) -> None:
        self._keyring = keyring
        self._archive = Archive(directory, "messages")
        #: Lines without a reference after the last cleanup.
        self._waste = 0

    @property
    def unreadable(self) -> int:
        return self._archive.unreadable

    def append(self, deliveries: Iterable[Delivery], items: Iterable[InboxItem]) -> None:
        rows: list[Delivery | InboxItem] = [*deliveries, *items]
        self._archive.append((each.created_at, encode_line(self._plain(each))) for each in rows)

    def reseal(self) -> int:
        return self._archive.reseal(lambda data: self._plain(_row(data)))

    def _plain(self, row: Delivery | InboxItem) -> dict[str, object]:
        if isinstance(row, Delivery):
            return {"delivery": seal_plain(delivery_to_plain(row), self._keyring)}
        return {"inbox": inbox_to_plain(row)}

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
        """Call after jobs.json refers only to these."""
        used = len(deliveries) + len(items)
        waste = sum(self._archive.rows.values()) - used
        much = waste >= self._waste + REWRITE_FROM and waste >= used
        if not much and (used or not waste):
            return

        def keep(data: object) -> bool:
            row = _row(data)
            return row.id in (deliveries if isinstance(row, Delivery) else items)

        with contextlib.suppress(OSError):  # retried next time
            for path in list(self._archive.rows):
                self._archive.rewrite(path, keep)
                if not self._archive.rows[path]:
                    del self._archive.rows[path]
        self._waste = sum(self._archive.rows.values()) - used


def _row(data: object) -> Delivery | InboxItem:
    read = Reader(data)
    if read.has("delivery"):
        return read.read("delivery", lambda plain: delivery_from_plain(open_parts(plain)))
    if read.has("inbox"):
        return read.read("inbox", inbox_from_plain)
    raise InvalidInput(_("it is neither a delivery nor an inbox item"))
