"""`store`: migrate, inspect, export, import and copy the store, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TextIO

import click

from chimes import __version__
from chimes.cli.command import (
    CONFLICT,
    FAILED,
    NOT_FOUND,
    USAGE,
    Command,
    CommandError,
    LazyCommand,
    LazyGroup,
)
from chimes.cli.options import (
    config_option,
    confirm_options,
    data_dir_option,
    output_format_options,
    store_option,
    store_options,
)
from chimes.cli.output import CHANGES, Column, Json, Output, Progress, echo_err, getter
from chimes.clock import SystemClock
from chimes.config import Settings, StoreLocation, load_settings, masked_store_url, store_location
from chimes.envelope import NO_KEYS, VARIABLE, Keyring, read_key_file, use_keys
from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import _, counted
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, InboxItem
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.store.codec.records import (
    audit_from_plain,
    audit_to_plain,
    delivery_from_plain,
    delivery_to_plain,
    inbox_from_plain,
    inbox_to_plain,
    key_from_plain,
    key_to_plain,
    log_from_plain,
    log_to_plain,
    open_checkpoint,
    run_from_plain,
    run_to_plain,
    seal_checkpoint,
)
from chimes.store.codec.values import (
    Plain,
    Reader,
    open_parts,
    schedule_from_plain,
    schedule_to_plain,
    seal_plain,
)
from chimes.store.port import (
    InitializableStore,
    Item,
    MigratableStore,
    RunLog,
    SnapshotStore,
    Store,
)

if TYPE_CHECKING:
    from chimes.sdk.app import Chimes
    from chimes.sdk.reconcile import BackfillResult


STORE_COMMANDS = {
    "migrate": LazyCommand(
        "chimes.cli.store.commands", "migrate", "Migrate the schema to this version."
    ),
    "init": LazyCommand("chimes.cli.store.commands", "init", "Create the store."),
    "status": LazyCommand(
        "chimes.cli.store.commands", "status", "Show the location and contents of the store."
    ),
    "export": LazyCommand(
        "chimes.cli.store.commands", "export", "Export everything as JSON Lines."
    ),
    "import": LazyCommand("chimes.cli.store.commands", "import_", "Import an export."),
    "copy-to": LazyCommand(
        "chimes.cli.store.commands", "copy_to", "Copy everything into another store."
    ),
    "backup": LazyCommand(
        "chimes.cli.store.backup",
        "backup",
        "Save the whole store in a file while nodes are at work.",
    ),
    "restore": LazyCommand("chimes.cli.store.backup", "restore", "Replace the store by a backup."),
    "import-kweaver": LazyCommand(
        "chimes.cli.store.import_kweaver",
        "import_kweaver",
        "Import a KWeaver table of action schedules.",
    ),
    "backfill-schedules": LazyCommand(
        "chimes.cli.store.commands",
        "backfill_schedules",
        "Write an application's memory-mode schedules into the store.",
    ),
}
_STATUS_COLUMNS = (
    Column(_("Kind"), getter("kind")),
    Column(_("Location"), getter("location")),
    Column(_("Schema"), getter("schema")),
    Column(_("Degraded"), getter("degraded")),
    Column(_("Schedules"), getter("schedules")),
    Column(_("Enabled"), getter("enabled")),
    Column(_("Due"), getter("due")),
    Column(_("Runs"), getter("runs")),
)


@click.group("store", cls=LazyGroup, lazy=STORE_COMMANDS)
def store() -> None:
    """Manage the store of schedules, runs and keys."""


@click.command("migrate", cls=Command)
@output_format_options
@store_options
def migrate(settings: Settings, output: Output) -> None:
    """Migrate the schema to this version; creates an empty store. Safe to repeat.

    The tables of the schemas 0009 and 0010 and Redis stores of layout 1 are converted. Stop all
    nodes and make a backup first. A conversion that was interrupted continues where it stopped.

    \b
    Examples:
      chimes store migrate
      chimes store migrate --store postgresql://chimes@db.example.org/chimes
    """
    location = store_location(settings)
    asyncio.run(_migrate(location))
    asyncio.run(_status(location, output))


@click.command("init", cls=Command)
@click.option("--force", is_flag=True, help="Create it even if an earlier store was lost (Redis).")
@output_format_options
@store_options
def init(settings: Settings, output: Output, force: bool) -> None:
    """Create the store if there is none. `serve` does so too, except on a Redis server that held
    data before and is empty now; --force confirms that a new store is wanted.

    \b
    Examples:
      chimes store init --store redis://localhost/0
      chimes store init --force --store redis://localhost/0
    """
    location = store_location(settings)
    if force:
        asyncio.run(_force_init(location))
    asyncio.run(_status(location, output))


async def _force_init(location: StoreLocation) -> None:
    from chimes.runtime.composition import build_store

    store = build_store(location, SystemClock())
    if not isinstance(store, InitializableStore):
        raise CommandError(
            _(
                "--force is only for stores on Redis, not for {store}",
                store=masked_url(location),
            ),
            USAGE,
        )
    await store.init()
    echo_err(
        _(
            "Created a new store at {store}. Running nodes continue within seconds.",
            store=masked_url(location),
        )
    )


async def _migrate(location: StoreLocation) -> None:
    from chimes.runtime.composition import build_store

    store = build_store(location, SystemClock())
    if isinstance(store, MigratableStore):
        with MigrationProgress() as progress:
            before, after = await store.migrate(progress)
        if before is not None and before != after:
            echo_err(
                _(
                    "Migrated the schema of {store} from {before} to {after}.",
                    store=masked_url(location),
                    before=before,
                    after=after,
                )
            )
    await _seal_old_secrets(location)


async def _seal_old_secrets(location: StoreLocation) -> None:
    """Encrypts secrets that earlier versions stored in plain text."""
    from chimes.cli.store.secret import reseal_all

    async with open_store(location) as opened:
        if not opened.keyring.can_seal or location.kind == "memory":
            return
        count = await reseal_all(opened)
    if count:
        echo_err(counted("Encrypted {count} secret.", "Encrypted {count} secrets.", count))


class MigrationProgress:
    """Shows how far a conversion is: a bar on a terminal, else a line for each finished step."""

    def __init__(self) -> None:
        self._bar = Progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._bar.__exit__()

    def __call__(self, step: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            self._bar.show(done, total, _converted(step, total))
        elif done == total:
            echo_err(_converted(step, total))


def _converted(step: str, count: int) -> str:
    if step == "schedules":
        return counted("Converted {count} schedule", "Converted {count} schedules", count)
    return counted("Converted {count} run", "Converted {count} runs", count)


@click.command("status", cls=Command)
@output_format_options
@store_options
def status(settings: Settings, output: Output) -> None:
    """Show the location of the store, its schema, and how much it contains.

    \b
    Examples:
      chimes store status
      chimes store status --json
    """
    asyncio.run(_status(existing_location(settings), output))


async def _status(location: StoreLocation, output: Output) -> None:
    async with open_store(location) as opened:
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
    """Export everything to FILE or stdout as JSON Lines. Secrets are encrypted with the key of the
    store, which an import needs. The export contains hashes of API keys.

    \b
    Examples:
      chimes store export backup.jsonl
      chimes store export | gzip > backup.jsonl.gz
    """
    count = asyncio.run(_export(existing_location(settings), file))
    if file is None:
        echo_err(counted("Exported {count} item.", "Exported {count} items.", count))
    else:
        echo_err(
            counted(
                "Exported {count} item to {file}.",
                "Exported {count} items to {file}.",
                count,
                file=file,
            )
        )


async def _export(location: StoreLocation, file: Path | None) -> int:
    # The header line is not an item.
    count = -1
    async with open_store(location, reading=True) as opened:
        if not opened.keyring.can_seal:
            echo_err(
                _(
                    "Warning: {variable} is not set, so the export contains secrets in plain text.",
                    variable=VARIABLE,
                )
            )
        with _output_file(file) as stream:
            async for line in export_lines(opened.dump(), opened.keyring):
                stream.write(line + "\n")
                count += 1
    return count


@click.command("import", cls=Command)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="File with the keys of the exported secrets. Default: the keys of this store.",
)
@store_options
def import_(settings: Settings, file: Path, key_file: Path | None) -> None:
    """Import an export from FILE (- is stdin). Existing items are not changed.

    \b
    Examples:
      chimes store import backup.jsonl
      zcat backup.jsonl.gz | chimes store import -
      chimes store import backup.jsonl --key-file old/secret.key
    """
    if key_file is not None:
        use_keys(read_key_file(key_file))
    seen, new = asyncio.run(_import(store_location(settings), file))
    echo_err(
        counted(
            "Read {count} item, {new} of them new, into {store}.",
            "Read {count} items, {new} of them new, into {store}.",
            seen,
            new=new,
            store=masked_url(store_location(settings)),
        )
    )


async def _import(location: StoreLocation, file: Path) -> tuple[int, int]:
    from chimes.runtime.composition import build_store

    opened = build_store(location, SystemClock())
    with _input_file(file) as stream:
        # Read completely first: an invalid line must not leave a partial import, nor a store.
        items = list(parse_export(stream))

    async def given() -> AsyncIterator[Item]:
        with Progress(_("Importing"), len(items)) as progress:
            for count, item in enumerate(items):
                progress.show(count)
                yield item

    await opened.open()
    try:
        return await load_all(opened, given())
    finally:
        await opened.close()


@click.command("copy-to", cls=Command)
@click.argument("target", metavar="URL")
@confirm_options
@store_options
@click.pass_context
def copy_to(
    ctx: click.Context, settings: Settings, confirm: Callable[..., bool], target: str
) -> None:
    """Copy everything into another store. Items that exist there are not changed.

    Stop the server first: changes during the copy may be missed.

    \b
    Examples:
      chimes store copy-to sqlite:////var/lib/chimes/chimes.db
      chimes store copy-to json:///backup --store sqlite:///chimes.db
    """
    source = existing_location(settings)
    into = store_location(replace(settings, store=target))
    if into.kind == "memory":
        raise CommandError(_("Cannot copy to a memory store: it would be lost at once"), USAGE)
    if source == into:
        raise CommandError(
            _("Cannot copy {source} into itself", source=masked_url(source)), CONFLICT
        )
    if not confirm(
        _("Copy {source} to {target}?", source=masked_url(source), target=masked_url(into))
    ):
        ctx.exit(FAILED)
    seen, new = asyncio.run(_copy(source, into))
    echo_err(
        counted(
            "Copied {count} item to {target}, {new} of them new.",
            "Copied {count} items to {target}, {new} of them new.",
            seen,
            target=masked_url(into),
            new=new,
        )
    )


async def _copy(source: StoreLocation, into: StoreLocation) -> tuple[int, int]:
    async with open_store(source) as old, open_store(into) as new:
        return await load_all(new, _counted(old.dump()))


async def _counted(items: AsyncIterator[Item]) -> AsyncIterator[Item]:
    count = 0
    with Progress(_("Copying")) as progress:
        async for item in items:
            progress.show(count)
            count += 1
            yield item


def existing_location(settings: Settings) -> StoreLocation:
    """The location of a store that exists, so that reading does not create one."""
    location = store_location(settings)
    if not location.server and (location.path is None or not location.path.exists()):
        raise CommandError(
            _("No store at {url}", url=location.url),
            NOT_FOUND,
            hint=_(
                "give its location with --store or --data-dir; `chimes serve` creates a new one"
            ),
        )
    return location


def masked_url(location: StoreLocation) -> str:
    return masked_store_url(location.url)


@contextlib.asynccontextmanager
async def open_store(location: StoreLocation, *, reading: bool = False) -> AsyncIterator[Store]:
    """`reading`: also while another process uses a store for one process."""
    from chimes.runtime.composition import build_store

    opened = build_store(location, SystemClock())
    if reading and isinstance(opened, SnapshotStore):
        await opened.open_snapshot()
    else:
        await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


@contextlib.contextmanager
def _output_file(file: Path | None) -> Iterator[TextIO]:
    """Writes to a temporary file that replaces `file` on success; only the owner can read it."""
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
        raise CommandError(
            _("Cannot write {file}: {reason}", file=file, reason=error.strerror)
        ) from None
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _input_file(file: Path) -> Iterator[TextIO]:
    if str(file) == "-":
        yield sys.stdin
        return
    try:
        with file.open(encoding="utf-8") as stream:
            yield stream
    except OSError as error:
        raise CommandError(
            _("Cannot read {file}: {reason}", file=file, reason=error.strerror), USAGE
        ) from None


# --- backfill-schedules ---------------------------------------------------------------------------
_BACKFILL_COLUMNS = (
    Column(_("Name"), getter("name")),
    Column(_("Result"), getter("result"), labels=CHANGES),
    Column(_("When"), getter("cron_spec")),
    Column(_("Next run"), getter("next_run_at"), time=True),
)


@click.command("backfill-schedules", cls=Command)
@click.option("--app", metavar="MODULE:NAME", help="Application. Default: CHIMES_APP.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this schedule; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show the schedules without writing them.")
@store_option
@data_dir_option
@config_option
@confirm_options
@output_format_options
@click.pass_context
def backfill_schedules(
    ctx: click.Context,
    /,
    *,
    output: Output,
    confirm: Callable[..., bool],
    file: Path | None,
    only: tuple[str, ...],
    dry_run: bool,
    **flags: str | None,
) -> None:
    """Write the memory-mode schedules of an application into the store. Schedules whose name exists
    are not changed.

    \b
    Examples:
      chimes store backfill-schedules --app shop.tasks:app --dry-run
      chimes store backfill-schedules --app shop.tasks:app --only nightly
      chimes store backfill-schedules --app shop.tasks:app --yes
    """
    from chimes.runtime.app_loader import load_app

    path = load_settings(flags=flags, config_file=file).settings.app
    if not path:
        raise CommandError(
            _("No application given: use --app MODULE:NAME or set CHIMES_APP"), USAGE
        )
    app = load_app(path)
    settings = app.load(flags=flags, config_file=file).settings
    names = only or None
    planned = asyncio.run(_backfill(app, settings, names, confirm=False))
    new = sum(each.created for each in planned)
    if dry_run or not new:
        output.rows([_row(each, done=False) for each in planned], _BACKFILL_COLUMNS)
        echo_err(_("{new} of {all} schedules would be written.", new=new, all=len(planned)))
        return
    if not confirm(_("Write {new} of {all} schedules?", new=new, all=len(planned)), explicit=True):
        echo_err(_("Nothing was written. Use --yes to write without confirmation."))
        ctx.exit(FAILED)
    done = asyncio.run(_backfill(app, settings, names, confirm=True))
    output.rows([_row(each, done=True) for each in done], _BACKFILL_COLUMNS)
    new = sum(each.created for each in done)
    echo_err(_("{new} of {all} schedules were written.", new=new, all=len(done)))


async def _backfill(
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


# --- export format: JSON Lines, a header line and one line per item -------------------------------
FORMAT: Final = 1
_BATCH = 500
_MAX_LINE_LENGTH = 64 * 1024 * 1024


def encode_item(item: Item, keyring: Keyring) -> tuple[str, Plain]:
    match item:
        case Schedule():
            return "schedule", seal_plain(schedule_to_plain(item), keyring)
        case Run():
            return "run", seal_plain(run_to_plain(item), keyring)
        case RunLog():
            entries = [log_to_plain(entry) for entry in item.entries]
            return "log", {"run_id": item.run_id, "entries": entries}
        case AuditEntry():
            return "audit", audit_to_plain(item)
        case ApiKey():
            return "key", key_to_plain(item)
        case Checkpoint():
            return "state", seal_checkpoint(item, keyring)
        case Delivery():
            return "delivery", seal_plain(delivery_to_plain(item), keyring)
        case InboxItem():
            return "inbox", inbox_to_plain(item)


def _log(data: object) -> RunLog:
    read = Reader(data)
    entries = tuple(log_from_plain(entry) for entry in read.items("entries"))
    return RunLog(run_id=RunId(read.text("run_id")), entries=entries)


_READERS: dict[str, Callable[[object], Item]] = {
    "schedule": lambda plain: schedule_from_plain(open_parts(plain)),
    "run": lambda plain: run_from_plain(open_parts(plain)),
    "log": _log,
    "audit": audit_from_plain,
    "key": key_from_plain,
    "state": open_checkpoint,
    "delivery": lambda plain: delivery_from_plain(open_parts(plain)),
    "inbox": inbox_from_plain,
}


async def export_lines(
    items: AsyncIterator[Item], keyring: Keyring = NO_KEYS
) -> AsyncIterator[str]:
    """Secrets are sealed with the first key."""
    yield json.dumps({"chimes_export": FORMAT, "version": __version__})
    async for item in items:
        kind, plain = encode_item(item, keyring)
        yield json.dumps({"kind": kind, "value": plain}, ensure_ascii=False, separators=(",", ":"))


def last_line(count: int, digest: str) -> str:
    """The end of a backup. `digest`: SHA-256 of everything before it."""
    return json.dumps({"kind": "end", "value": {"items": count, "sha256": digest}})


def parse_export(lines: Iterable[str]) -> Iterator[Item]:
    """The items of an export. InvalidInput names the invalid line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if len(line) > _MAX_LINE_LENGTH:
                raise InvalidInput(_("the line is too long"))
            data = json.loads(line)
            if number == 1:
                _check_header(data)
                continue
            read = Reader(data)
            kind = read.text("kind")
            if kind == "end":  # of a backup
                continue
            if kind not in _READERS:
                raise InvalidInput(_("unknown kind {kind!r}", kind=kind))
            yield read.read("value", _READERS[kind])
        except (ValueError, KeyError, TypeError, RecursionError, ChimesError) as error:
            why = error.message if isinstance(error, ChimesError) else str(error)
            raise InvalidInput(
                _("line {number}: {reason}", number=number, reason=why), code="bad_export"
            ) from None


def _check_header(data: object) -> None:
    if not isinstance(data, dict) or "chimes_export" not in data:
        raise InvalidInput(_("not an export of Chimes"))
    if data["chimes_export"] != FORMAT:
        raise InvalidInput(
            _(
                "unsupported export format {found}, expected {known}",
                found=data["chimes_export"],
                known=FORMAT,
            )
        )


async def load_all(store: Store, items: AsyncIterator[Item]) -> tuple[int, int]:
    """Loads items in batches; returns how many there were and how many were new."""
    seen = new = 0
    batch: list[Item] = []
    async for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            seen, new, batch = seen + len(batch), new + await store.load(batch), []
    return seen + len(batch), new + (await store.load(batch) if batch else 0)
