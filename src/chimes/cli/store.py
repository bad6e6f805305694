"""`store migrate|status|export|import|copy-to|…`: the store itself, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

import click

from chimes import __version__
from chimes.cli.command import CONFLICT, FAILED, NOT_FOUND, USAGE, Command, Failure, Lazy, LazyGroup
from chimes.cli.options import Wrapped, form_options, yes_option
from chimes.cli.output import CHANGES, Column, Json, Output, pick, tell
from chimes.config import Settings, StoreLocation, load_settings, masked_store_url, store_location
from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import _, counted
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, InboxItem
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.store.codec.notifications import (
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
from chimes.store.json_values import Plain, Reader
from chimes.store.port import Item, RunLog, Store

if TYPE_CHECKING:
    from chimes.config import Settings
    from chimes.sdk.app import Chimes
    from chimes.sdk.reconcile import BackfillResult
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
        "chimes.cli.store",
        "backfill_schedules",
        "Move an application's schedules from memory into the store.",
    ),
}
_STATUS_COLUMNS = (
    Column(_("Kind"), pick("kind")),
    Column(_("Location"), pick("location")),
    Column(_("Schema"), pick("schema")),
    Column(_("Degraded"), pick("degraded")),
    Column(_("Schedules"), pick("schedules")),
    Column(_("Enabled"), pick("enabled")),
    Column(_("Due"), pick("due")),
    Column(_("Runs"), pick("runs")),
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
    from chimes.clock import SystemClock
    from chimes.runtime.composition import build_store
    from chimes.store.port import Renewable

    store = build_store(location, SystemClock())
    if not isinstance(store, Renewable):
        raise Failure(
            _(
                "--force is for stores on Redis; {store} cannot be lost",
                store=_named(location),
            ),
            USAGE,
        )
    await store.init()
    tell(_("The store was set up anew; nodes that run go on within seconds."))


async def _migrate(location: StoreLocation) -> None:
    from chimes.clock import SystemClock
    from chimes.runtime.composition import build_store
    from chimes.store.port import Migrating

    store = build_store(location, SystemClock())
    if isinstance(store, Migrating):
        before, after = await store.migrate()
        if before is not None and before != after:
            tell(_("The schema went from {before} to {after}.", before=before, after=after))


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
        raise Failure(_("A copy into memory would be gone at once"), USAGE)
    if source == into:
        raise Failure(_("{source} cannot be copied into itself", source=_named(source)), CONFLICT)
    if not ask(_("Copy {source} to {target}?", source=_named(source), target=_named(into))):
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

    async with opened_store(source) as old, opened_store(into) as new:
        return await load_all(new, old.dump())


def _existing(settings: Settings) -> StoreLocation:
    """Looking at a store must not make one."""
    location = store_location(settings)
    if not location.server and (location.path is None or not location.path.exists()):
        raise Failure(
            _("There is no store at {url}", url=location.url),
            NOT_FOUND,
            hint=_("name it with --store or --data-dir; `chimes serve` makes a new one"),
        )
    return location


def _named(location: StoreLocation) -> str:
    return masked_store_url(location.url)


@contextlib.asynccontextmanager
async def opened_store(location: StoreLocation) -> AsyncIterator[Store]:
    from chimes.clock import SystemClock
    from chimes.runtime.composition import build_store

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
            _("{file} cannot be written: {reason}", file=file, reason=error.strerror)
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
            _("{file} cannot be read: {reason}", file=file, reason=error.strerror), USAGE
        ) from None


# @@ `store backfill-schedules`: what an application times in memory, into the store (R2.7).

COLUMNS = (
    Column(_("Name"), pick("name")),
    Column(_("Result"), pick("result"), words=CHANGES),
    Column(_("When"), pick("cron_spec")),
    Column(_("Next run"), pick("next_run_at"), time=True),
)


@click.command("backfill-schedules", cls=Command)
@click.option("--app", metavar="MODULE:NAME", help="The application; CHIMES_APP unless told.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this schedule: a canary.")
@click.option("--dry-run", is_flag=True, help="Show what would be written.")
@click.option("--store", metavar="URL", help="As for serve.")
@click.option("--data-dir", metavar="DIR", help="As for serve.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml.")
@yes_option
@form_options
@click.pass_context
def backfill_schedules(
    ctx: click.Context,
    /,
    *,
    output: Output,
    ask: Callable[..., bool],
    file: Path | None,
    only: tuple[str, ...],
    dry_run: bool,
    **flags: str | None,
) -> None:
    """Write the schedules that an application times in memory into the store. One whose name is
    there already stays as it is.

    \b
    Examples:
      chimes store backfill-schedules --app shop.tasks:app --dry-run
      chimes store backfill-schedules --app shop.tasks:app --only nightly
      chimes store backfill-schedules --app shop.tasks:app --yes
    """
    from chimes.runtime.app_loader import load_app

    path = load_settings(flags=flags, config_file=file).settings.app
    if not path:
        raise Failure(_("Which application? Say --app module:name, or set CHIMES_APP"), USAGE)
    app = load_app(path)
    settings = app.load(flags=flags, config_file=file).settings
    names = only or None
    planned = asyncio.run(_backfilled(app, settings, names, confirm=False))
    new = sum(each.created for each in planned)
    if dry_run or not new:
        output.rows([_row(each, done=False) for each in planned], COLUMNS)
        tell(_("{new} of {all} schedules would be written.", new=new, all=len(planned)))
        return
    if not ask(_("Write {new} of {all} schedules?", new=new, all=len(planned)), careful=True):
        tell(_("Nothing was written; --yes goes on without asking."))
        ctx.exit(FAILED)
    done = asyncio.run(_backfilled(app, settings, names, confirm=True))
    output.rows([_row(each, done=True) for each in done], COLUMNS)
    new = sum(each.created for each in done)
    tell(_("{new} of {all} schedules were written.", new=new, all=len(done)))


async def _backfilled(
    app: Chimes, settings: Settings, only: tuple[str, ...] | None, *, confirm: bool
) -> list[BackfillResult]:
    await app.open(settings)
    try:
        return await app.backfill_schedules(confirm=confirm, only=only)
    finally:
        await app.close()


def _row(each: BackfillResult, *, done: bool) -> Json:
    from chimes.sdk.handles import schedule_info

    info = schedule_info(each.schedule)
    new = "created" if done else "new"
    return {
        "id": info.id,
        "name": each.name,
        "result": new if each.created else "exists",
        "cron_spec": info.cron_spec,
        "next_run_at": info.next_run_at.isoformat() if info.next_run_at else None,
    }


# @@ A store as JSON Lines: a first line that says what follows, then one line per item.

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
        case Checkpoint():
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
                raise InvalidInput(_("it is too long"))
            data = json.loads(line)
            if number == 1:
                _check_head(data)
                continue
            read = Reader(data)
            kind = read.text("kind")
            if kind not in _READERS:
                raise InvalidInput(_("unknown kind {kind!r}", kind=kind))
            yield read.read("value", _READERS[kind])
        except (ValueError, KeyError, TypeError, RecursionError, ChimesError) as error:
            why = error.message if isinstance(error, ChimesError) else str(error)
            raise InvalidInput(
                _("line {number}: {reason}", number=number, reason=why), code="bad_export"
            ) from None


def _check_head(data: object) -> None:
    if not isinstance(data, dict) or "chimes_export" not in data:
        raise InvalidInput(_("this is not an export of Chimes"))
    if data["chimes_export"] != FORMAT:
        raise InvalidInput(
            _(
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
