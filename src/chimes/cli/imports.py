"""`import crontab|k8s|celery-beat|apscheduler`: schedules of other systems, with a preview."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from chimes.cli.backend import Backend, paginate, post
from chimes.cli.command import FAILED, USAGE, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import (
    confirm_options,
    default_zone,
    lazy_client_options,
    output_format_options,
)
from chimes.cli.output import Json, Output, current_language, echo, echo_err, localize
from chimes.cli.schedules import read_text_argument
from chimes.clock import SystemClock
from chimes.errors import ChimesError
from chimes.i18n import _, counted, in_language
from chimes.language import describe
from chimes.model.validation import check_target
from chimes.redaction import escape_control
from chimes.services.schedules.definitions import target_from_json
from chimes.services.schedules.imports import (
    ImportedSchedule,
    beat_schedule_in,
    import_apscheduler,
    import_celery_beat,
    import_crontab,
    import_k8s,
    summary_of,
)
from chimes.triggers.zones import parse_zone

R = TypeVar("R")

COMMANDS = {
    "crontab": LazyCommand("chimes.cli.imports", "crontab", "Import the lines of a crontab."),
    "k8s": LazyCommand("chimes.cli.imports", "k8s", "Import CronJobs of Kubernetes."),
    "celery-beat": LazyCommand(
        "chimes.cli.imports", "celery_beat", "Import the beat schedule of a Celery application."
    ),
    "apscheduler": LazyCommand(
        "chimes.cli.imports", "apscheduler", "Import the jobs of an APScheduler."
    ),
}
PRODUCT = "Chimes"
#: Fires in the preview, of each system.
SHOWN_FIRES = 3
#: Label of imported schedules; its value is the system that they come from.
LABEL = "imported"


@click.group("import", cls=LazyGroup, lazy=COMMANDS)
def import_group() -> None:
    """Import schedules of other systems. Nothing is created before you confirm the preview."""


def _import_options(function: Callable[..., R]) -> Callable[..., R]:
    """Options of all imports, which end with `_finish`."""
    dry_run = click.option("--dry-run", is_flag=True, help="Show the preview only.")
    return dry_run(confirm_options(output_format_options(lazy_client_options(function))))


@click.command("crontab", cls=Command)
@click.argument("file")
@click.option(
    "--system", is_flag=True, help="A user name stands before the command, as in /etc/crontab."
)
@click.option(
    "--tz", "zone", metavar="ZONE", help="Time zone of the crontab. Default: this host's."
)
@_import_options
@click.pass_context
def crontab(
    ctx: click.Context, /, file: str, system: bool, zone: str | None, **options: Any
) -> None:
    """Import a crontab. FILE is a file, or - for stdin.

    A line that does nothing but one call with curl or wget becomes an HTTP call, every other line a
    command.

    \b
    Examples:
      crontab -l | chimes import crontab - --dry-run
      chimes import crontab my.cron --tz Europe/Berlin
      chimes import crontab /etc/crontab --system --yes
    """
    chosen = parse_zone(zone, field="--tz").name if zone else _host_zone()
    echo_err(_("Times of the crontab are in {zone}; --tz names another zone.", zone=chosen))
    items = import_crontab(_read(file), zone=chosen, users=system)
    _finish(ctx, "crontab", items, **options)


@click.command("k8s", cls=Command)
@click.argument("file")
@_import_options
@click.pass_context
def k8s(ctx: click.Context, /, file: str, **options: Any) -> None:
    """Import the CronJobs of a Kubernetes manifest. FILE is a file, or - for stdin.

    \b
    Examples:
      kubectl get cronjobs -o yaml | chimes import k8s - --dry-run
      chimes import k8s cronjobs.yaml
    """
    _finish(ctx, "k8s", import_k8s(_read(file)), **options)


@click.command("celery-beat", cls=Command)
@click.argument("module")
@click.option("--tz", "zone", metavar="ZONE", help="Time zone. Default: that of the application.")
@click.option(
    "--as",
    "target",
    type=click.Choice(["command", "task"]),
    default="command",
    show_default=True,
    help="Call Celery by a command, or run a task of the same name in Chimes.",
)
@_import_options
@click.pass_context
def celery_beat(
    ctx: click.Context, /, module: str, zone: str | None, target: str, **options: Any
) -> None:
    """Import the beat schedule of MODULE, MODULE:NAME or a Python file: that of a Celery
    application, or a mapping named beat_schedule.

    The module is imported, which executes its code; no worker and no beat is started.

    \b
    Examples:
      chimes import celery-beat shop.celery:app --dry-run
      chimes import celery-beat celeryconfig.py --tz Asia/Bangkok --as task
    """
    loaded, attribute = _load(module)
    found = next(beat_schedule_in(loaded, attribute), None)
    if found is None:
        raise CommandError(
            _("{module} has no beat schedule", module=module),
            USAGE,
            hint=_("name it: MODULE:NAME, an application or a mapping"),
        )
    name, entries, conf = found
    chosen = zone or str(getattr(conf, "timezone", None) or "UTC")
    items = import_celery_beat(
        entries,
        zone=parse_zone(chosen, field="--tz").name,
        app=f"{loaded.__name__}:{name}" if conf is not loaded else loaded.__name__,
        as_task=target == "task",
    )
    _finish(ctx, "celery-beat", items, system=_("Celery beat"), **options)


@click.command("apscheduler", cls=Command)
@click.argument("module")
@click.option(
    "--as",
    "target",
    type=click.Choice(["task", "command"]),
    default="task",
    show_default=True,
    help="Run a task of Chimes with the name of the function, or call the function by a command.",
)
@_import_options
@click.pass_context
def apscheduler(ctx: click.Context, /, module: str, target: str, **options: Any) -> None:
    """Import the jobs of an APScheduler 3: MODULE, MODULE:NAME or a Python file with a scheduler,
    or the SQLite file of a job store.

    The module is imported, which executes its code; its schedulers are not started. A job store is
    unpickled, which executes code of the file: use only files that you trust.

    \b
    Examples:
      chimes import apscheduler shop.jobs:scheduler --dry-run
      chimes import apscheduler jobs.sqlite --as command
    """
    items = import_apscheduler(_jobs(module), as_task=target == "task", python=sys.executable)
    _finish(ctx, "apscheduler", items, system=_("APScheduler"), **options)


# --- sources --------------------------------------------------------------------------------------
def _read(file: str) -> str:
    return read_text_argument(file if file == "-" else f"@{file}")


def _host_zone() -> str:
    """The zone of this machine, which its cron uses."""
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        with contextlib.suppress(OSError):
            name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    try:
        return parse_zone(name).name if name else default_zone()
    except ChimesError:
        return default_zone()


def _load(text: str) -> tuple[ModuleType, str]:
    """The module of MODULE, MODULE:NAME, FILE.py or FILE.py:NAME, and the name."""
    name, _colon, attribute = text.partition(":")
    file = Path(name)
    sys.path.insert(0, str(file.resolve().parent if file.suffix == ".py" else Path.cwd()))
    if file.suffix == ".py":
        if not file.is_file():
            raise CommandError(_("There is no file {file}", file=name), USAGE)
        name = file.stem
    try:
        return importlib.import_module(name), attribute
    except Exception as error:
        raise CommandError(
            _("{module} cannot be imported: {error}", module=name, error=repr(error)), USAGE
        ) from error


def _jobs(text: str) -> Sequence[Any]:
    file = Path(text)
    if file.is_file() and file.suffix != ".py":
        return _stored_jobs(file)
    with _unstarted_schedulers():
        module, attribute = _load(text)
    names = [attribute] if attribute else list(vars(module))
    found = [getattr(module, name, None) for name in names]
    schedulers: list[Any] = [
        each
        for each in found
        if not isinstance(each, type) and hasattr(each, "get_jobs") and hasattr(each, "add_job")
    ]
    if not schedulers:
        raise CommandError(
            _("{module} has no scheduler", module=text), USAGE, hint=_("name it: MODULE:NAME")
        )
    return [job for scheduler in schedulers for job in scheduler.get_jobs()]


@contextlib.contextmanager
def _unstarted_schedulers() -> Iterator[None]:
    """A module that starts its scheduler when it is imported only defines the jobs."""
    kinds: list[Any] = []
    for name in ("base.BaseScheduler", "blocking.BlockingScheduler",
                 "background.BackgroundScheduler", "asyncio.AsyncIOScheduler"):  # fmt: skip
        module, _dot, kind = name.partition(".")
        with contextlib.suppress(ImportError):
            kinds.append(getattr(importlib.import_module(f"apscheduler.schedulers.{module}"), kind))
    starts = [(kind, kind.__dict__["start"]) for kind in kinds if "start" in kind.__dict__]
    for kind, _start in starts:
        kind.start = lambda self, *args, **kwargs: None
    try:
        yield
    finally:
        for kind, start in starts:
            kind.start = start


def _stored_jobs(file: Path) -> Sequence[Any]:
    """Read by APScheduler itself, from a file that it cannot change: it deletes jobs whose function
    cannot be imported."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
        from apscheduler.schedulers.background import BackgroundScheduler

        store = SQLAlchemyJobStore(url=f"sqlite:///file:{file.resolve()}?mode=ro&uri=true")
        store.start(BackgroundScheduler(), "default")
        found: Sequence[Any] = store.get_all_jobs()
    except Exception as error:
        raise CommandError(
            _("{file} is no job store of APScheduler: {error}", file=file, error=str(error)), USAGE
        ) from None
    return found


# --- preview and creation -------------------------------------------------------------------------
def _finish(
    ctx: click.Context,
    source: str,
    items: Sequence[ImportedSchedule],
    *,
    system: str = "",
    dry_run: bool,
    confirm: Callable[..., bool],
    output: Output,
    open_backend: Callable[[], Backend],
) -> None:
    now, lang = SystemClock().now(), current_language()
    rows = [_row(each, source, now, lang) for each in items]
    as_json = output.format in ("json", "ndjson")
    if not as_json:
        for row in rows:
            _print(row, system)
    good = [row for row in rows if row["definition"] is not None]
    failed = 0
    if dry_run or not good:
        echo_err(_("Nothing was created."))
    else:
        question = counted("Create {count} schedule?", "Create {count} schedules?", len(good))
        if not confirm(question, explicit=True):
            if as_json:
                output.rows(rows, [])
            echo_err(_("Nothing was created. Use --yes to create without confirmation."))
            asked = sys.stdin.isatty() and sys.stderr.isatty()
            ctx.exit(FAILED if asked else USAGE)
        failed = _create(open_backend(), source, good)
    if as_json:
        output.rows(rows, [])
    if not good or failed:
        ctx.exit(FAILED)


def _row(item: ImportedSchedule, source: str, now: datetime, lang: str) -> Json:
    """An entry of the preview, as `--json` prints it; times in the zone of the trigger."""
    definition, error, words = item.definition, item.error, ""
    old: list[str] | None = None
    new: list[str] = []
    if definition is not None:
        try:
            target = definition["target"]
            assert isinstance(target, dict)
            check_target(target_from_json(target))
            trigger = item.trigger
            assert trigger is not None
            fires = trigger.with_default_anchor().fires(now, SHOWN_FIRES)
            new = [fire.local.isoformat() for fire in fires]
            if item.old_fires is not None:
                old = [trigger.local(at).isoformat() for at in item.old_fires(now, SHOWN_FIRES)]
            words = describe(trigger, lang)
            definition = definition | {"labels": {LABEL: source}}
        except ChimesError as problem:
            definition, error = None, problem.message
    return {
        "id": None,
        "place": item.place,
        "source": item.text,
        "words": words,
        "definition": definition,
        "error": in_language(error, lang),
        "notes": [in_language(each, lang) for each in item.notes],
        "old_fires": old,
        "new_fires": new,
    }


def _print(row: Json, system: str) -> None:
    echo(escape_control(f"{row['place']}: {row['source']}"))
    definition = row["definition"]
    if isinstance(definition, dict):
        echo(escape_control(f"  → {definition['name']}: {row['words']}"))
        echo(escape_control(f"    {summary_of(definition)}"))
        _print_fires(row, system)
    elif row["error"]:
        echo(escape_control("  ✗ " + localize(_("not imported: {why}", why=row["error"]))))
    notes = row["notes"]
    for note in notes if isinstance(notes, list) else ():
        echo(escape_control("    " + localize(_("note: {text}", text=note))))


def _print_fires(row: Json, system: str) -> None:
    old, new = row["old_fires"], row["new_fires"]
    assert isinstance(new, list)
    if not isinstance(old, list):
        for at in new:
            echo(f"    {at}")
        return
    width = max([len(localize(system)), *(len(each) for each in old)])
    echo("    " + localize(system).ljust(width) + "  " + PRODUCT)
    for left, right in zip_longest(old, new, fillvalue=""):
        mark = "" if left == right else "  ≠"
        echo(f"    {left:{width}}  {right}{mark}")


def _create(backend: Backend, source: str, rows: Sequence[Json]) -> int:
    """Creates the schedules, except those that an earlier import has created; returns how many
    could not be."""
    known = {
        _identity(each) for each in paginate(backend, "/schedules", None, label=f"{LABEL}={source}")
    }
    created = failed = 0
    for row in rows:
        definition = row["definition"]
        assert isinstance(definition, dict)
        name = escape_control(str(definition["name"]))
        if _identity(definition) in known:
            echo_err(_("{name}: exists already, not created again", name=name))
            continue
        try:
            row["id"] = post(backend, "/schedules", definition)["id"]
            created += 1
        except CommandError as error:
            failed += 1
            row["error"] = localize(error.message)
            echo_err(_("{name}: not created: {error}", name=name, error=error.message))
    echo_err(counted("{count} schedule created.", "{count} schedules created.", created))
    return failed


def _identity(schedule: Json) -> tuple[object, ...]:
    trigger = schedule["trigger"]
    assert isinstance(trigger, dict)
    known = ("kind", "expression", "every", "at", "timezone")
    return (schedule["name"], *(trigger.get(name) for name in known))
