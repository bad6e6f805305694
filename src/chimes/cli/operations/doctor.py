"""`doctor`: checks the installation and suggests fixes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from chimes import __version__
from chimes.cli.backend import HttpBackend, default_url, get, items_of
from chimes.cli.command import OK, PROBLEMS, Command, CommandError
from chimes.cli.options import (
    config_option,
    data_dir_option,
    output_format_options,
    store_option,
)
from chimes.cli.output import Json, Output, echo, echo_err, localize
from chimes.clock import SystemClock
from chimes.config import LoadedSettings, StoreLocation, load_settings, store_location
from chimes.config.settings import FIELDS
from chimes.envelope import VARIABLE
from chimes.errors import ChimesError, ConfigError, SchemaMismatch, StoreLocked, StoreUnsafe
from chimes.i18n import Message, _, counted, joined
from chimes.redaction import escape_control
from chimes.triggers.values import suggest_name

if TYPE_CHECKING:
    from chimes.config import Settings
    from chimes.store.port import Store

State = Literal["ok", "warning", "problem"]
CHECK_OK: Final[State] = "ok"
CHECK_WARNING: Final[State] = "warning"
CHECK_PROBLEM: Final[State] = "problem"
#: Seconds of clock offset above which displayed times are misleading.
_MAX_CLOCK_OFFSET = 2.0
STORE: Final = _("store")
_OTHER_DATABASE = _("use another database, or the matching version of Chimes")
_CHECK_SERVER = _("check that the server is running, and the user and password")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, with a suggested fix."""

    name: str
    state: State
    detail: str
    fix: str = ""


def error_text(error: ChimesError | OSError) -> str:
    return error.message if isinstance(error, ChimesError) else str(error)


def redis_checks(location: StoreLocation) -> list[Check]:
    """Connection, version, durability, layout and clock; creates nothing."""
    from chimes.runtime.composition import inspect_redis_store

    try:
        seen = asyncio.run(inspect_redis_store(location))
    except StoreUnsafe as error:
        return [
            Check(
                STORE,
                CHECK_PROBLEM,
                error.message,
                _("set appendonly yes and maxmemory-policy noeviction in Redis"),
            )
        ]
    except SchemaMismatch as error:
        return [Check(STORE, CHECK_PROBLEM, error.message, _OTHER_DATABASE)]
    except (ChimesError, OSError) as error:
        return [Check(STORE, CHECK_PROBLEM, error_text(error), _CHECK_SERVER)]
    found = [Check(STORE, CHECK_OK, f"{seen.location}, {seen.version}")]
    if seen.durability:
        fix = _(
            "to lose nothing, set appendonly yes, appendfsync always, no-appendfsync-on-rewrite no"
        )
        found.append(Check(_("durability"), CHECK_WARNING, seen.durability, fix))
    else:
        found.append(Check(_("durability"), CHECK_OK, _("acknowledged writes are on disk")))
    found.append(_schema(seen.layout, seen.head))
    found.append(_clock(seen.clock_offset))
    return found


def server_store_checks(location: StoreLocation) -> list[Check]:
    """Connection, version, isolation, write access, schema and clock; creates nothing."""
    if location.kind == "redis":
        return redis_checks(location)
    from chimes.runtime.composition import inspect_server_store

    try:
        seen = asyncio.run(inspect_server_store(location))
    except SchemaMismatch as error:
        return [Check(STORE, CHECK_PROBLEM, error.message, _OTHER_DATABASE)]
    except (ChimesError, OSError) as error:
        return [Check(STORE, CHECK_PROBLEM, error_text(error), _CHECK_SERVER)]
    found = [Check(STORE, CHECK_OK, f"{seen.location}, {seen.version}")]
    if seen.read_only:
        fix = _("use the primary, or disable read-only mode")
        found.append(Check(STORE, CHECK_PROBLEM, _("the server is read-only"), fix))
    isolation: str = seen.isolation
    if isolation != "read committed":
        isolation = _(
            "the server's default isolation is {isolation}; Chimes sets its own",
            isolation=seen.isolation,
        )
    found.append(Check(_("isolation"), CHECK_OK, isolation))
    found.append(_incomplete() if seen.converting else _schema(seen.revision, seen.head))
    found.append(_clock(seen.clock_offset))
    return found


def _clock(ahead: float) -> Check:
    name, offset = _("store clock"), _("{seconds:+.3f} s offset from the server", seconds=ahead)
    if abs(ahead) > _MAX_CLOCK_OFFSET:
        fix = _("enable time synchronisation (NTP); runs use the clock of the server")
        return Check(name, CHECK_WARNING, offset, fix)
    return Check(name, CHECK_OK, offset)


def _incomplete() -> Check:
    detail = _("the conversion of an earlier schema is not complete")
    return Check(_("schema"), CHECK_PROBLEM, detail, _("run `chimes store migrate`"))


def _schema(revision: str | None, head: str) -> Check:
    name = _("schema")
    if revision is None:
        detail = _("the database is empty; serve will create schema {head}", head=head)
        return Check(name, CHECK_OK, detail)
    if revision == head:
        return Check(name, CHECK_OK, _("schema {schema}", schema=revision))
    if revision < head:
        detail = _(
            "schema {schema} is older than {head}, the one of this version",
            schema=revision,
            head=head,
        )
        return Check(name, CHECK_WARNING, detail, _("run `chimes store migrate`"))
    detail = _(
        "schema {schema} is newer than {head}, the one of this version", schema=revision, head=head
    )
    return Check(name, CHECK_WARNING, detail, _("update Chimes on this machine"))


_PACKAGES = ("aiohttp", "fastapi", "pydantic", "sqlalchemy", "uvicorn")
#: CHIMES_ variables that are not settings.
_OTHER_VARIABLES = (
    "CHIMES_URL",
    "CHIMES_API_KEY",
    "CHIMES_API_KEY_FILE",
    "CHIMES_CONFIG",
    "CHIMES_LANG",
)
_CONFIGURATION = _("configuration")
_RUN_SETUP = _("run `make setup`")
#: Schedules that are listed.
_MAX_WARNINGS = 20
_MIN_DISK, _LOW_DISK = 100 * 2**20, 2**30


class Diagnostics:
    """The checks. Later checks use what earlier ones found."""

    def __init__(self, *, flags: Mapping[str, object], file: Path | None) -> None:
        self._flags = flags
        self._file = file
        self._loaded: LoadedSettings | None = None
        self._location: StoreLocation | None = None
        self._server: Json | None = None
        self._clock = SystemClock()
        self._checked_at = self._clock.now()
        #: Schedules with a warning; None: unknown.
        self._warnings: list[Json] | None = None
        self._maintenance: list[Json] = []
        #: Fires that time data move; None: unknown.
        self._moves: list[Json] | None = None

    def python(self) -> list[Check]:
        number = ".".join(str(part) for part in sys.version_info[:3])
        detail = _("{python}, Chimes {chimes}", python=number, chimes=__version__)
        return [Check(_("python"), CHECK_OK, detail)]

    def packages(self) -> list[Check]:
        found, missing = [], []
        for name in _PACKAGES:
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                missing.append(name)
        if missing:
            detail = _("missing: {packages}", packages=", ".join(missing))
            return [Check(_("packages"), CHECK_PROBLEM, detail, _RUN_SETUP)]
        return [Check(_("packages"), CHECK_OK, ", ".join(found))]

    def zones(self) -> list[Check]:
        name = _("time zones")
        try:
            number = version("tzdata")
        except PackageNotFoundError:
            return [Check(name, CHECK_PROBLEM, _("tzdata is not installed"), _RUN_SETUP)]
        source, host = _("tzdata {version} from its package", version=number), _host_zone()
        here = (
            _("time zone of this machine: {zone}", zone=host)
            if host
            else _("the time zone of this machine is unknown")
        )
        year = number.partition(".")[0]
        if year.isdecimal() and self._clock.now().year - int(year) > 1:
            detail = joined("; ", [source, here, _("outdated")])
            return [Check(name, CHECK_WARNING, detail, _("upgrade tzdata"))]
        return [Check(name, CHECK_OK, joined("; ", [source, here]))]

    def configuration(self) -> list[Check]:
        try:
            self._loaded = load_settings(flags=self._flags, config_file=self._file)
            self._location = store_location(self._loaded.settings)
        except ConfigError as error:
            return [
                Check(
                    _CONFIGURATION,
                    CHECK_PROBLEM,
                    error.message,
                    _("check the settings with `chimes config show`"),
                )
            ]
        found = [Check(_CONFIGURATION, CHECK_OK, _settings_summary(self._loaded))]
        found += [Check(_CONFIGURATION, CHECK_WARNING, text) for text in self._loaded.warnings]
        return found + self._sources(self._loaded) + self._unknown_variables()

    def _sources(self, loaded: LoadedSettings) -> list[Check]:
        """Checks the file itself, because a running node may have rejected it on reload."""
        if loaded.sources is None:
            return []
        from chimes.runtime.apply_config import load_checked_file

        try:
            known = load_checked_file(loaded).known.now
        except ConfigError as error:
            fix = _("correct the file, then run `chimes apply`")
            return [Check(_("sources"), CHECK_PROBLEM, error.message, fix)]
        detail = counted(
            "{sources} with {count} collection",
            "{sources} with {count} collections",
            sum(1 for _pair in known.pairs()),
            sources=len(known.by_id),
        )
        return [Check(_("sources"), CHECK_OK, detail)]

    def _unknown_variables(self) -> list[Check]:
        known = {name for field in FIELDS.values() for name in field.variables}
        known |= set(_OTHER_VARIABLES)
        unknown = sorted(
            name for name in os.environ if name.startswith("CHIMES_") and name not in known
        )
        return [
            Check(
                _("environment"),
                CHECK_WARNING,
                _("{name} is not a setting", name=name),
                suggest_name(name, known) or "",
            )
            for name in unknown
        ]

    def server(self) -> list[Check]:
        url = os.environ.get("CHIMES_URL") or self._own_url()
        try:
            health = self._health(url)
        except CommandError as failure:
            fix = _("choose another port with --port or CHIMES_PORT, or correct CHIMES_URL")
            detail = _("{url}: {message}", url=url, message=failure.message)
            return [Check(_("server"), CHECK_PROBLEM, detail, fix)]
        if health is None:
            detail = _("no server at {url}; the port is free", url=url)
            return [Check(_("server"), CHECK_OK, detail)]
        if health["status"] != "ok":
            detail = _(
                "the server at {url} is {status}: {reason}",
                url=url,
                status=health["status"],
                reason=health.get("reason", ""),
            )
            return [Check(_("server"), CHECK_WARNING, detail, _("check the log of the server"))]
        return [
            Check(_("server"), CHECK_OK, _("Chimes is running at {url}", url=url)),
            *(_maintenance_check(each) for each in self._maintenance),
        ]

    def _health(self, url: str) -> Json | None:
        """The health of the server; None if nothing listens at the URL."""
        backend = HttpBackend(url, os.environ.get("CHIMES_API_KEY", ""))
        with contextlib.closing(backend):
            if not backend.connect():
                return None
            health = backend.request("GET", "/health").json()
            if "status" not in health:
                raise CommandError(_("another program is listening there"))
            self._server = _system(backend) or health
            warnings = self._server.get("warnings")
            self._warnings = warnings if isinstance(warnings, list) else None
            self._maintenance = _maintenance(backend)
            self._moves = _fire_moves(backend)
            self._checked_at = self._clock.now()
            return health

    def _own_url(self) -> str:
        if self._loaded is None:
            return default_url()
        host = self._loaded.settings.host
        reachable = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 - compared
        address = f"[{reachable}]" if ":" in reachable else reachable
        return f"http://{address}:{self._loaded.settings.port}"

    def store(self) -> list[Check]:
        location = self._location
        if location is None:
            return []
        if location.server:
            return server_store_checks(location)
        if location.path is None:
            detail = _("memory: all data is lost when the process ends")
            return [Check(STORE, CHECK_WARNING, detail, _("use sqlite"))]
        if not location.path.exists():
            return [self._directory(location.path.parent, location)]
        try:
            return [asyncio.run(self._inspect(location))]
        except StoreLocked as error:
            if self._server is not None:
                detail = _("{store}, in use by the running server", store=location.url)
                return [Check(STORE, CHECK_OK, detail)]
            return [Check(STORE, CHECK_PROBLEM, error.message, _("stop the other process"))]
        except SchemaMismatch as error:
            return [Check(STORE, CHECK_PROBLEM, error.message, _("run `chimes store migrate`"))]
        except (ChimesError, OSError) as error:
            detail = _("{store}: {reason}", store=location.url, reason=error_text(error))
            return [Check(STORE, CHECK_PROBLEM, detail, _("check the path and its permissions"))]

    async def _inspect(self, location: StoreLocation) -> Check:
        assert self._loaded is not None
        async with open_store(location) as store:
            if self._server is None:
                self._warnings = await _setup_warnings(store, self._loaded.settings)
                self._moves = await _stored_moves(store)
            return await _store_check(location, store)

    def schedules(self) -> list[Check]:
        """Schedules that are valid and cannot work."""
        if self._warnings is None:
            return []
        name = _("schedules")
        if not self._warnings:
            return [Check(name, CHECK_OK, _("no schedule lacks a setting"))]
        return [
            Check(
                name,
                CHECK_PROBLEM,
                joined(": ", [str(each.get("schedule_name")), str(each.get("message"))]),
                _("set it on a node, or edit the schedule"),
            )
            for each in self._warnings
        ]

    def time_data(self) -> list[Check]:
        """Fires that an update of time-zone or holiday data moves."""
        if not self._moves:
            return []
        shown = [
            Check(
                _("time data"),
                CHECK_WARNING,
                _(
                    "new data move a fire of {name}: {old} → {new}",
                    name=each.get("name"),
                    old=each.get("old") or "–",
                    new=each.get("new") or "–",
                ),
                _("check that its receiver expects the new time"),
            )
            for each in self._moves[:_MAX_WARNINGS]
        ]
        more = len(self._moves) - len(shown)
        if more:
            text = counted("and {count} more fire", "and {count} more fires", more)
            shown.append(Check(_("time data"), CHECK_WARNING, text))
        return shown

    @staticmethod
    def _directory(directory: Path, location: StoreLocation) -> Check:
        existing = directory
        while not existing.exists():
            existing = existing.parent
        if not os.access(existing, os.W_OK):
            detail = _("no write access to {directory}", directory=existing)
            return Check(STORE, CHECK_PROBLEM, detail, _("use another --data-dir"))
        detail = _("{store} does not exist yet; serve will create it", store=location.url)
        return Check(STORE, CHECK_OK, detail)

    def clock(self) -> list[Check]:
        name, now = _("clock"), self._checked_at.isoformat(timespec="seconds")
        server_time = (self._server or {}).get("now")
        if not isinstance(server_time, str):
            return [Check(name, CHECK_OK, now)]
        offset = abs((datetime.fromisoformat(server_time) - self._checked_at).total_seconds())
        if offset > _MAX_CLOCK_OFFSET:
            detail = _("{seconds:.1f} s offset from the store of the server", seconds=offset)
            return [Check(name, CHECK_WARNING, detail, _("enable time synchronisation (NTP)"))]
        return [Check(name, CHECK_OK, _("{time}, in step with the server", time=now))]

    def secrets(self) -> list[Check]:
        """The key that encrypts secrets."""
        from chimes.runtime.composition import build_store

        name = _("secrets")
        if self._location is None or self._location.kind == "memory":
            return []
        try:
            keys = (keyring := build_store(self._location, SystemClock()).keyring).keys()
        except ConfigError as error:
            return [Check(name, CHECK_PROBLEM, error.message, _("see `chimes secret --help`"))]
        if keys:
            return [Check(name, CHECK_OK, _("encrypted with key {id}", id=keys[0].id))]
        if keyring.can_seal:
            return [Check(name, CHECK_OK, _("the key is made with the first secret"))]
        return [
            Check(
                name,
                CHECK_WARNING,
                _("{variable} is not set: new secrets are refused", variable=VARIABLE),
                _("give all nodes the key that `chimes secret generate-key` prints"),
            )
        ]

    def disk(self) -> list[Check]:
        if self._location is None or self._location.path is None:
            return []
        existing = self._location.path
        while not existing.exists():
            existing = existing.parent
        free = shutil.disk_usage(existing).free
        detail = _("{size:.1f} GiB free at {directory}", size=free / 2**30, directory=existing)
        if free < _MIN_DISK:
            fix = _("free disk space, or use another --data-dir")
            return [Check(_("disk"), CHECK_PROBLEM, detail, fix)]
        return [Check(_("disk"), CHECK_OK if free >= _LOW_DISK else CHECK_WARNING, detail)]


@contextlib.asynccontextmanager
async def open_store(location: StoreLocation) -> AsyncIterator[Store]:
    from chimes.runtime.composition import build_store

    store = build_store(location, SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def _setup_warnings(store: Store, settings: Settings) -> list[Json]:
    from chimes.model.access import Actor
    from chimes.runtime.composition import build_services
    from chimes.services.schedules.setup import SetupService

    services = await build_services(settings, store, SystemClock())
    setup = SetupService(store, services.schedules.rules, settings)
    return [
        {"schedule_name": each.schedule.name, "message": localize(each.warning.message)}
        for each in await setup.find(Actor(), limit=_MAX_WARNINGS)
    ]


async def _stored_moves(store: Store) -> list[Json]:
    """Also those that a node with the data of this machine would find."""
    from chimes.model.access import Actor
    from chimes.services.time_data import TimeDataService
    from chimes.triggers import format_moment

    service = TimeDataService(store)
    found = dict.fromkeys(
        (*await service.list_moves(Actor(), await store.now()), *await service.list_pending())
    )
    return [
        {
            "name": each.name,
            "old": None if each.old is None else format_moment(each.old),
            "new": None if each.new is None else format_moment(each.new),
        }
        for each in sorted(found, key=lambda each: each.at)
    ]


async def _store_check(location: StoreLocation, store: Store) -> Check:
    status, counts = await store.status(), await store.counts()
    detail = counted(
        "{store}, schema {schema}, {count} schedule",
        "{store}, schema {schema}, {count} schedules",
        counts.schedules,
        store=location.url,
        schema=status.schema,
    )
    if status.degraded:
        return Check(STORE, CHECK_WARNING, joined(": ", [detail, status.degraded]))
    return Check(STORE, CHECK_OK, detail)


def _settings_summary(loaded: LoadedSettings) -> Message:
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
    """More than the health check contains, if the API key allows it."""
    try:
        return backend.request("GET", "/api/v1/system").json()
    except CommandError:
        return None


def _maintenance(backend: HttpBackend) -> list[Json]:
    try:
        return items_of(get(backend, "/maintenance"))
    except CommandError:
        return []


def _fire_moves(backend: HttpBackend) -> list[Json] | None:
    try:
        return items_of({"items": get(backend, "/time-data")["moves"]})
    except CommandError:
        return None


def _maintenance_check(window: Json) -> Check:
    name = window.get("namespace")
    detail = (
        _("on for the namespace {name}: its schedules do not fire", name=name)
        if name
        else _("on: no schedule fires")
    )
    command = "chimes maintenance off" + (f" --namespace {name}" if name else "")
    return Check(
        _("maintenance"), CHECK_WARNING, detail, _("to end it, run `{command}`", command=command)
    )


def _host_zone() -> str:
    """The time zone of this machine; empty if unknown."""
    if named := os.environ.get("TZ"):
        return named
    try:
        link = os.readlink("/etc/localtime")
    except OSError:
        return ""
    return link.partition("zoneinfo/")[2]


_NO_PROBLEMS = _("No problems found.")
_SIGNS = {"ok": "✓", "warning": "!", "problem": "✕"}


@click.command("doctor", cls=Command)
@store_option
@data_dir_option
@config_option
@output_format_options
@click.pass_context
def doctor(
    ctx: click.Context, output: Output, store: str | None, data_dir: str | None, file: Path | None
) -> None:
    """Check Python, versions, time zones, configuration, store, schedules, port, clock and disk.

    Exit code 9 means that there is a problem; warnings do not count.

    \b
    Examples:
      chimes doctor
      chimes doctor --json
    """
    diagnostics = Diagnostics(flags={"store": store, "data_dir": data_dir}, file=file)
    found: list[Check] = []
    for check in _checks(diagnostics):
        found += check()
    if output.format in ("table", "tsv"):
        _print(found, people=output.is_table)
    else:
        output.rows([_row(each) for each in found], [])
    ctx.exit(PROBLEMS if any(each.state == CHECK_PROBLEM for each in found) else OK)


def _checks(diagnostics: Diagnostics) -> Iterator[Callable[[], list[Check]]]:
    """Ordered, because later checks use results of earlier ones."""
    yield diagnostics.python
    yield diagnostics.packages
    yield diagnostics.zones
    yield diagnostics.configuration
    yield diagnostics.server
    yield diagnostics.store
    yield diagnostics.secrets
    yield diagnostics.schedules
    yield diagnostics.time_data
    yield diagnostics.clock
    yield diagnostics.disk


def _row(check: Check) -> Json:
    found: Json = {"id": check.name, "state": check.state, "detail": localize(check.detail)}
    return found | ({"fix": localize(check.fix)} if check.fix else {})


def _print(found: list[Check], *, people: bool) -> None:
    for check in found:
        detail, fix = escape_control(localize(check.detail)), escape_control(localize(check.fix))
        if people:
            echo(f"{_SIGNS[check.state]} {localize(check.name)}: {detail}")
            if fix:
                echo(f"    {fix}")
        else:
            echo(f"{_SIGNS[check.state]}\t{check.name}\t{detail}\t{fix}")
    bad = sum(check.state == CHECK_PROBLEM for check in found)
    echo_err(counted("{count} problem.", "{count} problems.", bad) if bad else _NO_PROBLEMS)
