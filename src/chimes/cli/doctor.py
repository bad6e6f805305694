"""`doctor`: is everything in order, and if not, what to do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

import click

from chimes import __version__
from chimes.cli.backend import HttpBackend, default_url
from chimes.cli.command import OK, PROBLEMS, Command, Failure
from chimes.cli.locale import said
from chimes.cli.options import form_options
from chimes.cli.output import Json, Output, echo, tell
from chimes.clock import SystemClock
from chimes.config import LoadedSettings, StoreLocation, load_settings, store_location
from chimes.config.settings import FIELDS
from chimes.errors import ChimesError, ConfigError, SchemaMismatch, StoreLocked, StoreUnsafe
from chimes.i18n import Message, _, counted, joined
from chimes.redaction import escaped
from chimes.triggers.json_values import nearest

# @@ The checks of `doctor` for a store that lives on a database server; and what a check is.

State = Literal["ok", "warning", "problem"]
OKAY: Final[State] = "ok"
WARN: Final[State] = "warning"
BAD: Final[State] = "problem"
#: More than this and what people read off their own clock is off.
_FARTHEST_CLOCK = 2.0
STORE: Final = _("store")
_ANOTHER = _("choose another database or version")
_UNREACHED = _("check that the server runs and that user and password are right")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was seen, and what to do about it."""

    name: str
    state: State
    detail: str
    fix: str = ""


def reason_of(error: ChimesError | OSError) -> str:
    return error.message if isinstance(error, ChimesError) else str(error)


def redis_checks(location: StoreLocation) -> list[Check]:
    """Reach, version, durability, layout, clock; nothing is set up."""
    from chimes.runtime.inspect import inspect_redis_store

    try:
        seen = asyncio.run(inspect_redis_store(location))
    except StoreUnsafe as error:
        return [Check(STORE, BAD, error.message, _("set appendonly yes and noeviction there"))]
    except SchemaMismatch as error:
        return [Check(STORE, BAD, error.message, _ANOTHER)]
    except (ChimesError, OSError) as error:
        return [Check(STORE, BAD, reason_of(error), _UNREACHED)]
    found = [Check(STORE, OKAY, f"{seen.location}, {seen.version}")]
    if seen.durability:
        fix = _("appendonly yes, appendfsync always and no-appendfsync-on-rewrite no lose nothing")
        found.append(Check(_("durability"), WARN, seen.durability, fix))
    else:
        found.append(Check(_("durability"), OKAY, _("what is acknowledged is on disk")))
    found.append(_schema(seen.layout, seen.head))
    found.append(_clock(seen.clock_offset))
    return found


def server_store_checks(location: StoreLocation) -> list[Check]:
    """Reach, version, isolation, writes, migrations, clock; nothing is set up."""
    if location.kind == "redis":
        return redis_checks(location)
    from chimes.runtime.inspect import inspect_server_store

    try:
        seen = asyncio.run(inspect_server_store(location))
    except SchemaMismatch as error:
        return [Check(STORE, BAD, error.message, _ANOTHER)]
    except (ChimesError, OSError) as error:
        return [Check(STORE, BAD, reason_of(error), _UNREACHED)]
    found = [Check(STORE, OKAY, f"{seen.location}, {seen.version}")]
    if seen.read_only:
        fix = _("use the primary, or end read-only")
        found.append(Check(STORE, BAD, _("the server takes no writes"), fix))
    isolation: str = seen.isolation
    if isolation != "read committed":
        isolation = _(
            "the server's default isolation is {isolation}; Chimes sets its own",
            isolation=seen.isolation,
        )
    found.append(Check(_("isolation"), OKAY, isolation))
    found.append(_schema(seen.revision, seen.head))
    found.append(_clock(seen.clock_offset))
    return found


def _clock(ahead: float) -> Check:
    name, offset = _("store clock"), _("{seconds:+.3f} s from the server's", seconds=ahead)
    if abs(ahead) > _FARTHEST_CLOCK:
        fix = _("switch time synchronisation (NTP) on; times of runs are the server's")
        return Check(name, WARN, offset, fix)
    return Check(name, OKAY, offset)


def _schema(revision: str | None, head: str) -> Check:
    name = _("schema")
    if revision is None:
        detail = _("the database is empty; serve will set up schema {head}", head=head)
        return Check(name, OKAY, detail)
    if revision == head:
        return Check(name, OKAY, _("schema {schema}", schema=revision))
    if revision < head:
        detail = _("schema {schema}, this version knows {head}", schema=revision, head=head)
        return Check(name, WARN, detail, _("run `chimes store migrate`"))
    detail = _("schema {schema} is newer than {head}", schema=revision, head=head)
    return Check(name, WARN, detail, _("update Chimes here"))


# @@ The checks of `doctor`.

_PACKAGES = ("aiohttp", "alembic", "fastapi", "pydantic", "sqlalchemy", "uvicorn")
#: Variables of ours that are no settings.
_OTHER_VARIABLES = (
    "CHIMES_URL",
    "CHIMES_API_KEY",
    "CHIMES_API_KEY_FILE",
    "CHIMES_CONFIG",
    "CHIMES_LANG",
)
_CONFIGURATION = _("configuration")
_SET_UP = _("make setup")
_LEAST_DISK, _SOME_DISK = 100 * 2**20, 2**30


class Findings:
    """Each check answers with what it saw; what one learns, the next ones use."""

    def __init__(self, *, flags: Mapping[str, object], file: Path | None) -> None:
        self._flags = flags
        self._file = file
        self._loaded: LoadedSettings | None = None
        self._location: StoreLocation | None = None
        self._server: Json | None = None
        self._clock = SystemClock()
        self._asked_at = self._clock.now()

    def python(self) -> list[Check]:
        number = ".".join(str(part) for part in sys.version_info[:3])
        detail = _("{python}, Chimes {chimes}", python=number, chimes=__version__)
        return [Check(_("python"), OKAY, detail)]

    def packages(self) -> list[Check]:
        found, missing = [], []
        for name in _PACKAGES:
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                missing.append(name)
        if missing:
            detail = _("missing: {packages}", packages=", ".join(missing))
            return [Check(_("packages"), BAD, detail, _SET_UP)]
        return [Check(_("packages"), OKAY, ", ".join(found))]

    def zones(self) -> list[Check]:
        name = _("time zones")
        try:
            number = version("tzdata")
        except PackageNotFoundError:
            return [Check(name, BAD, _("tzdata is not installed"), _SET_UP)]
        source, host = _("tzdata {version} from its package", version=number), _host_zone()
        here = (
            _("this machine is in {zone}", zone=host) if host else _("this machine names no zone")
        )
        year = number.partition(".")[0]
        if year.isdecimal() and self._clock.now().year - int(year) > 1:
            detail = joined("; ", [source, here, _("it is old")])
            return [Check(name, WARN, detail, _("upgrade tzdata"))]
        return [Check(name, OKAY, joined("; ", [source, here]))]

    def configuration(self) -> list[Check]:
        try:
            self._loaded = load_settings(flags=self._flags, config_file=self._file)
            self._location = store_location(self._loaded.settings)
        except ConfigError as error:
            return [Check(_CONFIGURATION, BAD, error.message, _("see `chimes config show`"))]
        found = [Check(_CONFIGURATION, OKAY, _told(self._loaded))]
        found += [Check(_CONFIGURATION, WARN, text) for text in self._loaded.warnings]
        return found + self._sources(self._loaded) + self._unknown_variables()

    def _sources(self, loaded: LoadedSettings) -> list[Check]:
        """F73: also what a running node has refused to read again."""
        if loaded.sources is None:
            return []
        from chimes.runtime.apply_config import checked_file

        try:
            known = checked_file(loaded).known.now
        except ConfigError as error:
            fix = _("correct the file, then `chimes apply`")
            return [Check(_("sources"), BAD, error.message, fix)]
        detail = counted(
            "{sources} with {count} collection",
            "{sources} with {count} collections",
            sum(1 for _unused in known.pairs()),
            sources=len(known.by_id),
        )
        return [Check(_("sources"), OKAY, detail)]

    def _unknown_variables(self) -> list[Check]:
        known = {name for field in FIELDS.values() for name in field.variables}
        known |= set(_OTHER_VARIABLES)
        unknown = sorted(
            name for name in os.environ if name.startswith("CHIMES_") and name not in known
        )
        return [
            Check(
                _("environment"),
                WARN,
                _("{name} is no setting", name=name),
                nearest(name, known) or "",
            )
            for name in unknown
        ]

    def server(self) -> list[Check]:
        url = os.environ.get("CHIMES_URL") or self._own_url()
        try:
            health = self._asked(url)
        except Failure as failure:
            fix = _("choose another port with --port or CHIMES_PORT, or correct CHIMES_URL")
            detail = _("{url}: {message}", url=url, message=failure.message)
            return [Check(_("server"), BAD, detail, fix)]
        if health is None:
            detail = _("nobody listens at {url}; the port is free", url=url)
            return [Check(_("server"), OKAY, detail)]
        if health["status"] != "ok":
            detail = _(
                "the server at {url} is {status}: {reason}",
                url=url,
                status=health["status"],
                reason=health.get("reason", ""),
            )
            return [Check(_("server"), WARN, detail, _("see its log"))]
        return [Check(_("server"), OKAY, _("Chimes answers at {url}", url=url))]

    def _asked(self, url: str) -> Json | None:
        """The server's health; None: nobody listens there."""
        backend = HttpBackend(url, os.environ.get("CHIMES_API_KEY", ""))
        with contextlib.closing(backend):
            if not backend.connect():
                return None
            health = backend.request("GET", "/health").json()
            if "status" not in health:
                raise Failure(_("another program listens there"))
            self._server = _system(backend) or health
            self._asked_at = self._clock.now()
            return health

    def _own_url(self) -> str:
        if self._loaded is None:
            return default_url()
        host = self._loaded.settings.host
        reachable = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 - compared
        shown = f"[{reachable}]" if ":" in reachable else reachable
        return f"http://{shown}:{self._loaded.settings.port}"

    def store(self) -> list[Check]:
        location = self._location
        if location is None:
            return []
        if location.server:
            return server_store_checks(location)
        if location.path is None:
            detail = _("memory: nothing outlives the process")
            return [Check(STORE, WARN, detail, _("use sqlite"))]
        if not location.path.exists():
            return [self._directory(location.path.parent, location)]
        try:
            return [asyncio.run(_looked_at(location))]
        except StoreLocked as error:
            if self._server is not None:
                detail = _("{store}, in use by the running server", store=location.url)
                return [Check(STORE, OKAY, detail)]
            return [Check(STORE, BAD, error.message, _("stop the other process"))]
        except SchemaMismatch as error:
            return [Check(STORE, BAD, error.message, _("run `chimes store migrate`"))]
        except (ChimesError, OSError) as error:
            detail = _("{store}: {reason}", store=location.url, reason=reason_of(error))
            return [Check(STORE, BAD, detail, _("check path and permissions"))]

    @staticmethod
    def _directory(directory: Path, location: StoreLocation) -> Check:
        there = directory
        while not there.exists():
            there = there.parent
        if not os.access(there, os.W_OK):
            detail = _("{directory} cannot be written", directory=there)
            return Check(STORE, BAD, detail, _("choose another --data-dir"))
        detail = _("{store} does not exist yet; serve will make it", store=location.url)
        return Check(STORE, OKAY, detail)

    def clock(self) -> list[Check]:
        name, now = _("clock"), self._asked_at.isoformat(timespec="seconds")
        told = (self._server or {}).get("now")
        if not isinstance(told, str):
            return [Check(name, OKAY, now)]
        offset = abs((datetime.fromisoformat(told) - self._asked_at).total_seconds())
        if offset > _FARTHEST_CLOCK:
            detail = _("{seconds:.1f} s away from the server's store", seconds=offset)
            return [Check(name, WARN, detail, _("switch time synchronisation (NTP) on"))]
        return [Check(name, OKAY, _("{time}, as the server's", time=now))]

    def disk(self) -> list[Check]:
        if self._location is None or self._location.path is None:
            return []
        there = self._location.path
        while not there.exists():
            there = there.parent
        free = shutil.disk_usage(there).free
        detail = _("{size:.1f} GiB free at {directory}", size=free / 2**30, directory=there)
        if free < _LEAST_DISK:
            fix = _("make room, or choose another --data-dir")
            return [Check(_("disk"), BAD, detail, fix)]
        return [Check(_("disk"), OKAY if free >= _SOME_DISK else WARN, detail)]


async def _looked_at(location: StoreLocation) -> Check:
    from chimes.runtime.composition import build_store

    store = build_store(location, SystemClock())
    await store.open()
    try:
        status, counts = await store.status(), await store.counts()
    finally:
        await store.close()
    detail = counted(
        "{store}, schema {schema}, {count} schedule",
        "{store}, schema {schema}, {count} schedules",
        counts.schedules,
        store=location.url,
        schema=status.schema,
    )
    if status.degraded:
        return Check(STORE, WARN, joined(": ", [detail, status.degraded]))
    return Check(STORE, OKAY, detail)


def _told(loaded: LoadedSettings) -> Message:
    count = sum(origin != "default" for origin in loaded.origins.values())
    if loaded.file is None:
        return counted(
            "no file, {count} setting not at its default",
            "no file, {count} settings not at their default",
            count,
        )
    return counted(
        "file {file}, {count} setting not at its default",
        "file {file}, {count} settings not at their default",
        count,
        file=loaded.file,
    )


def _system(backend: HttpBackend) -> Json | None:
    """More than health tells, if our key allows it."""
    try:
        return backend.request("GET", "/api/v1/system").json()
    except Failure:
        return None


def _host_zone() -> str:
    """The name of this machine's zone, where it has one."""
    if named := os.environ.get("TZ"):
        return named
    try:
        link = os.readlink("/etc/localtime")
    except OSError:
        return ""
    return link.partition("zoneinfo/")[2]


_IN_ORDER = _("Everything is in order.")
_SIGNS = {"ok": "✓", "warning": "!", "problem": "✕"}


@click.command("doctor", cls=Command)
@click.option("--store", metavar="URL", help="As for serve.")
@click.option("--data-dir", metavar="DIR", help="As for serve.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml.")
@form_options
@click.pass_context
def doctor(
    ctx: click.Context, output: Output, store: str | None, data_dir: str | None, file: Path | None
) -> None:
    """Check Python, versions, time zones, configuration, store, port, clock and disk.

    Exit code 9 says that there is a problem; warnings alone are fine.

    \b
    Examples:
      chimes doctor
      chimes doctor --json
    """
    findings = Findings(flags={"store": store, "data_dir": data_dir}, file=file)
    found: list[Check] = []
    for check in _all(findings):
        found += check()
    if output.form in ("table", "tsv"):
        _print(found, people=output.for_people)
    else:
        output.rows([_row(each) for each in found], [])
    ctx.exit(PROBLEMS if any(each.state == BAD for each in found) else OK)


def _all(findings: Findings) -> Iterator[Callable[[], list[Check]]]:
    """In the order in which a person would look; later checks lean on earlier ones."""
    yield findings.python
    yield findings.packages
    yield findings.zones
    yield findings.configuration
    yield findings.server
    yield findings.store
    yield findings.clock
    yield findings.disk


def _row(check: Check) -> Json:
    found: Json = {"id": check.name, "state": check.state, "detail": said(check.detail)}
    return found | ({"fix": said(check.fix)} if check.fix else {})


def _print(found: list[Check], *, people: bool) -> None:
    for check in found:
        detail, fix = escaped(said(check.detail)), escaped(said(check.fix))
        if people:
            echo(f"{_SIGNS[check.state]} {said(check.name)}: {detail}")
            if fix:
                echo(f"    {fix}")
        else:
            echo(f"{_SIGNS[check.state]}\t{check.name}\t{detail}\t{fix}")
    bad = sum(check.state == BAD for check in found)
    tell(counted("{count} problem.", "{count} problems.", bad) if bad else _IN_ORDER)
