"""`store backup` and `store restore`: the whole store in one file.

The file is an export with a last line that has the number of items and a checksum, so that a
restore recognizes a file that is damaged or not complete before it changes anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
import os
import sys
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TextIO, cast

import click

from chimes.cli.command import CONFLICT, INVALID, USAGE, Command, CommandError
from chimes.cli.options import store_options
from chimes.cli.output import Progress, echo_err
from chimes.cli.store.commands import (
    existing_location,
    export_lines,
    last_line,
    load_all,
    masked_url,
    open_store,
    parse_export,
)
from chimes.clock import SystemClock
from chimes.config import Settings, StoreLocation, store_location
from chimes.envelope import VARIABLE, Keyring, read_key_file, use_keys
from chimes.i18n import _, counted
from chimes.model.ids import RunId
from chimes.model.policy import OnLost
from chimes.model.run import Reason, Run, RunStatus
from chimes.store.port import (
    RESTORE_CHECKPOINT,
    InitializableStore,
    Item,
    Store,
    check_restored,
)

_GZIP = b"\x1f\x8b"


@click.command("backup", cls=Command)
@click.argument("place", metavar="FILE|DIR", type=click.Path(path_type=str))
@store_options
def backup(settings: Settings, place: str) -> None:
    """Save the whole store in FILE, or in a new file of DIR, while nodes are at work. A name that
    ends with .gz is compressed. Secrets are encrypted with the key of the store, which is not in
    the file: save it elsewhere.

    \b
    Examples:
      chimes store backup /var/backups/chimes/
      chimes store backup chimes.jsonl.gz --store postgresql://chimes@db.example.org/chimes
    """
    location = existing_location(settings)
    if location.kind == "memory":
        raise CommandError(_("A memory store cannot be saved: only its process has it"), USAGE)
    file = Path(place)
    if file.is_dir():
        file /= f"chimes-{SystemClock().now().astimezone(UTC):%Y%m%dT%H%M%SZ}.jsonl.gz"
    elif place.endswith(("/", os.sep)):
        # A file of this name would be replaced by each backup.
        raise CommandError(
            _("There is no directory {directory}", directory=place),
            USAGE,
            hint=_("create it, or name a file without a slash at the end"),
        )
    count = asyncio.run(_backup(location, file))
    echo_err(
        counted("Saved {count} item in {file}.", "Saved {count} items in {file}.", count, file=file)
    )


async def _backup(location: StoreLocation, file: Path) -> int:
    async with open_store(location, reading=True) as store:
        await check_restored(store)
        keyring = store.keyring if store.keyring.can_seal else _NoKey()
        count, digest = 0, hashlib.sha256()
        with _new_file(file) as stream, Progress(_("Saving")) as progress:
            async for line in export_lines(store.dump(), keyring):
                stream.write(f"{line}\n")
                digest.update(f"{line}\n".encode())
                progress.show(count)
                count += 1
            # The header line is not an item.
            count -= 1
            stream.write(f"{last_line(count, digest.hexdigest())}\n")
        return count


class _NoKey(Keyring):
    """For a store without a key: nothing may be written in plain text."""

    def __init__(self) -> None:
        super().__init__()
        self.can_seal = True

    def seal(self, value: object, field: str) -> object:
        raise CommandError(
            _("The store has secrets in plain text, which a backup must not contain"),
            USAGE,
            hint=_("set {variable} and run `chimes store migrate`", variable=VARIABLE),
        )


@contextlib.contextmanager
def _new_file(file: Path) -> Iterator[TextIO]:
    """A file that replaces `file` when it is complete and on the disk; only the owner can read
    it."""
    part: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        part = Path(name)
        with open(descriptor, "wb") as raw:
            with _compressed(raw, file) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
        part.replace(file)
        _sync_directory(file.parent)
    except OSError as error:
        raise CommandError(
            _("Cannot write {file}: {reason}", file=file, reason=error.strerror or str(error))
        ) from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def _compressed(raw: io.BufferedWriter, file: Path) -> Iterator[TextIO]:
    if file.suffix != ".gz":
        stream = io.TextIOWrapper(raw, "utf-8", newline="\n")
        yield stream
        stream.flush()
        stream.detach()
        return
    with gzip.GzipFile("", "wb", 6, raw) as packed:
        stream = io.TextIOWrapper(cast(io.BufferedWriter, packed), "utf-8", newline="\n")
        yield stream
        stream.flush()
        stream.detach()


def _sync_directory(directory: Path) -> None:
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- restore --------------------------------------------------------------------------------------
@click.command("restore", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace what the store has.")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="File with the keys of the saved secrets. Default: the keys of this store.",
)
@store_options
def restore(settings: Settings, file: Path, force: bool, key_file: Path | None) -> None:
    """Replace the contents of a store by a backup. The file is checked first. Stop all nodes
    before; those that were cut off notice it by themselves.

    Slots after the backup fire again, under the same run ids, as the misfire policy of their
    schedule says. Runs that were running start again; with `on_lost: stop` they are canceled.

    \b
    Examples:
      chimes store restore chimes-20300115T090000Z.jsonl.gz
      chimes store restore chimes.jsonl.gz --force --store redis://localhost/0
    """
    location = store_location(settings)
    if location.kind == "memory":
        raise CommandError(_("Cannot restore into a memory store: it would be lost at once"), USAGE)
    if key_file is not None:
        use_keys(read_key_file(key_file))
    count = asyncio.run(_restore(location, file, force=force))
    echo_err(
        counted(
            "Restored {count} item into {store}.",
            "Restored {count} items into {store}.",
            count,
            store=masked_url(location),
        )
    )


async def _restore(location: StoreLocation, file: Path, *, force: bool) -> int:
    from chimes.runtime.composition import build_store

    # Also makes known the keys of the store.
    build_store(location, SystemClock())
    total = check_backup(file)
    # Without the marker, an emptied Redis server is accepted; its nodes still wait until the end.
    store = build_store(replace(location, marker=None), SystemClock())
    await store.open()
    try:
        await _check_target(store, location, force=force)
        await store.set_checkpoint(RESTORE_CHECKPOINT, file.name)
        await store.clear(keep=RESTORE_CHECKPOINT)
        stopped: list[RunId] = []
        with Progress(_("Restoring"), total) as progress:
            await load_all(store, _items(file, stopped, progress))
        for run_id in stopped:
            await store.cancel_run(run_id, Reason.LOST_AFTER_START)
        await store.set_checkpoint(RESTORE_CHECKPOINT, None)
    finally:
        await store.close()
    known = build_store(location, SystemClock())
    if isinstance(known, InitializableStore):
        await known.init()
    return total


async def _check_target(store: Store, location: StoreLocation, *, force: bool) -> None:
    now = await store.now()
    live = [node.id for node in await store.nodes() if node.lease_until > now]
    if live:
        raise CommandError(
            _(
                "Nodes are at work on {store}: {nodes}",
                store=masked_url(location),
                nodes=", ".join(live),
            ),
            CONFLICT,
            hint=_("stop them first; the lease of a node that was killed ends by itself"),
        )
    if force:
        return
    async for _item in store.dump():
        raise CommandError(
            _("{store} is not empty", store=masked_url(location)),
            CONFLICT,
            hint=_("--force replaces everything that it has"),
        )


async def _items(file: Path, stopped: list[RunId], progress: Progress) -> AsyncIterator[Item]:
    with _lines(file) as lines:
        for count, item in enumerate(parse_export(lines)):
            progress.show(count)
            if isinstance(item, Run) and _must_not_repeat(item):
                stopped.append(item.id)
            yield item


def _must_not_repeat(run: Run) -> bool:
    return run.status is RunStatus.RUNNING and run.started and run.policy.on_lost is OnLost.STOP


def check_backup(file: Path) -> int:
    """Reads the whole file and returns the number of its items. CommandError if it is damaged, not
    complete, or not a backup; InvalidInput names an invalid line."""
    digest, before, end = hashlib.sha256(), "", ""
    count = 0
    with _lines(file) as lines:
        for line in lines:
            digest.update(before.encode())
            before = end = line
            count += 1
    expected = _end_of(end)
    if expected is None:
        raise CommandError(
            _("{file} is not complete: its last line is missing", file=file),
            INVALID,
            hint=_("`chimes store import` reads exports, which have none"),
        )
    # Neither the first line nor the last is an item.
    if expected != {"items": count - 2, "sha256": digest.hexdigest()}:
        raise CommandError(_("{file} is damaged: its checksum is wrong", file=file), INVALID)
    with _lines(file) as lines:
        return sum(1 for _item in parse_export(lines))


def _end_of(line: str) -> object:
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict) and found.get("kind") == "end" and line.endswith("\n"):
            return found.get("value")
    return None


@contextlib.contextmanager
def _lines(file: Path) -> Iterator[TextIO]:
    try:
        with file.open("rb") as raw:
            packed = raw.peek(2)[:2] == _GZIP
            source = gzip.GzipFile("", "rb", fileobj=raw) if packed else raw
            yield io.TextIOWrapper(cast(io.BufferedReader, source), "utf-8", newline="\n")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise CommandError(
            _("{file} is damaged or not complete: {reason}", file=file, reason=str(error)), INVALID
        ) from None
    except OSError as error:
        raise CommandError(
            _("Cannot read {file}: {reason}", file=file, reason=error.strerror), USAGE
        ) from None
