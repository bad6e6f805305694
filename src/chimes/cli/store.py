"""`store migrate|status|export|import|copy-to|…`: the store itself, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from chimes.cli.failure import CONFLICT, FAILED, NOT_FOUND, USAGE, Failure
from chimes.cli.lazy import Command, Lazy, LazyGroup
from chimes.cli.options import Wrapped, form_options, yes_option
from chimes.cli.output import Column, Json, Output, pick, tell
from chimes.config import (
    Settings,
    StoreLocation,
    load_settings,
    masked_store_url,
    store_location,
)
from chimes.wording import counted, say

if TYPE_CHECKING:
    from chimes.store.port import Item, Store

R = TypeVar("R")

COMMANDS = {
    "migrate": Lazy("chimes.cli.store", "migrate", "Bring the schema up to date."),
    "init": Lazy("chimes.cli.store", "init", "Set a store up, also where one was lost."),
    "status": Lazy("chimes.cli.store", "status", "Where the store is, and what is in it."),
    "export": Lazy("chimes.cli.store", "export", "Write everything as JSON Lines."),
    "import": Lazy("chimes.cli.store", "import_", "Read an export."),
    "copy-to": Lazy("chimes.cli.store", "copy_to", "Copy everything into another store."),
    "import-kweaver": Lazy(
        "chimes.cli.import_kweaver", "import_kweaver", "Import a table of action schedules."
    ),
    "backfill-schedules": Lazy(
        "chimes.cli.backfill_schedules",
        "backfill_schedules",
        "Move an application's schedules from memory into the store.",
    ),
}
_STATUS_COLUMNS = (
    Column(say("Kind"), pick("kind")),
    Column(say("Location"), pick("location")),
    Column(say("Schema"), pick("schema")),
    Column(say("Degraded"), pick("degraded")),
    Column(say("Schedules"), pick("schedules")),
    Column(say("Enabled"), pick("enabled")),
    Column(say("Due"), pick("due")),
    Column(say("Runs"), pick("runs")),
)


@click.group("store", cls=LazyGroup, lazy=COMMANDS)
def store() -> None:
    """The store: where schedules, runs and keys are kept."""


def store_options(function: Wrapped[R]) -> Wrapped[R]:
    """`--store`, `--data-dir`, `--config`, `--allow-volatile`; the command gets `settings`."""
    import functools

    @click.option("--store", "url", metavar="URL", help="As for serve.")
    @click.option("--data-dir", metavar="DIR", help="As for serve.")
    @click.option("--config", type=click.Path(path_type=Path), help="A chimes.yaml.")
    @click.option("--allow-volatile", "volatile", flag_value="true", help="As for serve.")
    @functools.wraps(function)
    def wrapped(
        *args: object,
        url: str | None,
        data_dir: str | None,
        config: Path | None,
        volatile: str | None,
        **kw: object,
    ) -> R:
        flags = {"store": url, "data_dir": data_dir, "allow_volatile": volatile}
        loaded = load_settings(flags=flags, config_file=config)
        return function(*args, settings=loaded.settings, **kw)

    return wrapped


@click.command("migrate", cls=Command)
@form_options
@store_options
def migrate(settings: Settings, output: Output) -> None:
    """Bring the schema up to date; an empty store is set up. Safe to repeat, and on a database
    server safe while nodes are at work.

    \b
    Examples:
      chimes store migrate
      chimes store migrate --store postgresql://chimes@db.example.org/chimes
    """
    location = store_location(settings)
    asyncio.run(_migrate(location))
    asyncio.run(_status(location, output))


@click.command("init", cls=Command)
@click.option("--force", is_flag=True, help="Also where an earlier store was lost (Redis).")
@form_options
@store_options
def init(settings: Settings, output: Output, force: bool) -> None:
    """Set a store up where there is none. `serve` does that by itself, except on a Redis server
    that held data before and is empty now: --force says that this is meant.

    \b
    Examples:
      chimes store init --store redis://localhost/0
      chimes store init --force --store redis://localhost/0
    """
    location = store_location(settings)
    if force:
        asyncio.run(_init_anew(location))
    asyncio.run(_status(location, output))


async def _init_anew(location: StoreLocation) -> None:
    from chimes.app import build_store
    from chimes.clock import SystemClock
    from chimes.store.port import Renewable

    store = build_store(location, SystemClock())
    if not isinstance(store, Renewable):
        raise Failure(
            say(
                "--force is for stores on Redis; {store} cannot be lost",
                store=_named(location),
            ),
            USAGE,
        )
    await store.init()
    tell(say("The store was set up anew; nodes that run go on within seconds."))


async def _migrate(location: StoreLocation) -> None:
    from chimes.app import build_store
    from chimes.clock import SystemClock
    from chimes.store.port import Migrating

    store = build_store(location, SystemClock())
    if isinstance(store, Migrating):
        before, after = await store.migrate()
        if before is not None and before != after:
            tell(say("The schema went from {before} to {after}.", before=before, after=after))


@click.command("status", cls=Command)
@form_options
@store_options
def status(settings: Settings, output: Output) -> None:
    """Show where the store is, its schema, and what is in it.

    \b
    Examples:
      chimes store status
      chimes store status --json
    """
    asyncio.run(_status(_existing(settings), output))


async def _status(location: StoreLocation, output: Output) -> None:
    async with opened_store(location) as opened:
        found, counts = await opened.status(), await opened.counts()
    row: Json = {
        "id": found.location,
        "kind": found.kind,
        "location": found.location,
        "schema": found.schema,
        "degraded": found.degraded,
        "schedules": counts.schedules,
        "enabled": counts.enabled,
        "due": counts.due,
        "runs": {name.value: count for name, count in counts.runs.items() if count},
    }
    output.one(row, _STATUS_COLUMNS)


@click.command("export", cls=Command)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@store_options
def export(settings: Settings, file: Path | None) -> None:
    """Write everything to FILE, or to stdout, as JSON Lines. It holds the hashes of keys.

    \b
    Examples:
      chimes store export backup.jsonl
      chimes store export | gzip > backup.jsonl.gz
    """
    count = asyncio.run(_export(_existing(settings), file))
    if file is None:
        tell(counted("{count} item was written.", "{count} items were written.", count))
    else:
        tell(
            counted(
                "{count} item was written to {file}.",
                "{count} items were written to {file}.",
                count,
                file=file,
            )
        )


async def _export(location: StoreLocation, file: Path | None) -> int:
    from chimes.cli.transfer import exported

    count = -1
    async with opened_store(location) as opened:
        with _written(file) as stream:
            async for line in exported(opened.dump()):
                stream.write(line + "\n")
                count += 1
    return count


@click.command("import", cls=Command)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@store_options
def import_(settings: Settings, file: Path) -> None:
    """Read an export from FILE (- is stdin). What is there already stays as it is.

    \b
    Examples:
      chimes store import backup.jsonl
      zcat backup.jsonl.gz | chimes store import -
    """
    seen, new = asyncio.run(_import(store_location(settings), file))
    tell(
        counted(
            "{count} item was read, {new} of them new.",
            "{count} items were read, {new} of them new.",
            seen,
            new=new,
        )
    )


async def _import(location: StoreLocation, file: Path) -> tuple[int, int]:
    from chimes.cli.transfer import imported, load_all

    with _read(file) as stream:
        # Read to its end first: a broken line must not leave half an import behind.
        items = list(imported(stream))

    async def given() -> AsyncIterator[Item]:
        for item in items:
            yield item

    async with opened_store(location) as opened:
        return await load_all(opened, given())


@click.command("copy-to", cls=Command)
@click.argument("target", metavar="URL")
@yes_option
@store_options
@click.pass_context
def copy_to(ctx: click.Context, settings: Settings, ask: Callable[..., bool], target: str) -> None:
    """Copy everything into another store, which may be empty or hold part of it already.

    Stop the server first: what it writes meanwhile may be missed.

    \b
    Examples:
      chimes store copy-to sqlite:////var/lib/chimes/chimes.db
      chimes store copy-to json:///backup --store sqlite:///chimes.db
    """
    source = _existing(settings)
    into = store_location(replace(settings, store=target))
    if into.kind == "memory":
        raise Failure(say("A copy into memory would be gone at once"), USAGE)
    if source == into:
        raise Failure(say("{source} cannot be copied into itself", source=_named(source)), CONFLICT)
    if not ask(say("Copy {source} to {target}?", source=_named(source), target=_named(into))):
        ctx.exit(FAILED)
    seen, new = asyncio.run(_copy(source, into))
    tell(
        counted(
            "{count} item was copied to {target}, {new} of them new.",
            "{count} items were copied to {target}, {new} of them new.",
            seen,
            target=_named(into),
            new=new,
        )
    )


async def _copy(source: StoreLocation, into: StoreLocation) -> tuple[int, int]:
    from chimes.cli.transfer import load_all

    async with opened_store(source) as old, opened_store(into) as new:
        return await load_all(new, old.dump())


def _existing(settings: Settings) -> StoreLocation:
    """Looking at a store must not make one."""
    location = store_location(settings)
    if not location.server and (location.path is None or not location.path.exists()):
        raise Failure(
            say("There is no store at {url}", url=location.url),
            NOT_FOUND,
            hint=say("name it with --store or --data-dir; `chimes serve` makes a new one"),
        )
    return location


def _named(location: StoreLocation) -> str:
    return masked_store_url(location.url)


@contextlib.asynccontextmanager
async def opened_store(location: StoreLocation) -> AsyncIterator[Store]:
    from chimes.app import build_store
    from chimes.clock import SystemClock

    opened = build_store(location, SystemClock())
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


@contextlib.contextmanager
def _written(file: Path | None) -> Iterator[TextIO]:
    """A whole file or none, for our eyes only (S71)."""
    if file is None:
        yield sys.stdout
        return
    part = file.with_name(f"{file.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except OSError as error:
        raise Failure(
            say("{file} cannot be written: {reason}", file=file, reason=error.strerror)
        ) from None
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _read(file: Path) -> Iterator[TextIO]:
    if str(file) == "-":
        yield sys.stdin
        return
    try:
        with file.open(encoding="utf-8") as stream:
            yield stream
    except OSError as error:
        raise Failure(
            say("{file} cannot be read: {reason}", file=file, reason=error.strerror), USAGE
        ) from None
