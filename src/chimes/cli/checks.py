"""The checks of `doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from chimes import __version__
from chimes.cli.backend import HttpBackend, default_url
from chimes.cli.failure import Failure
from chimes.cli.output import Json
from chimes.cli.server_checks import BAD, OKAY, STORE, WARN, Check, reason_of, server_store_checks
from chimes.clock import SystemClock
from chimes.config import LoadedSettings, StoreLocation, load_settings, store_location
from chimes.config.fields import FIELDS
from chimes.errors import ChimesError, ConfigError, SchemaMismatch, StoreLocked
from chimes.triggers.reading import nearest
from chimes.wording import Wording, counted, joined, say

_PACKAGES = ("aiohttp", "alembic", "fastapi", "pydantic", "sqlalchemy", "uvicorn")
#: Variables of ours that are no settings.
_OTHER_VARIABLES = (
    "CHIMES_URL",
    "CHIMES_API_KEY",
    "CHIMES_API_KEY_FILE",
    "CHIMES_CONFIG",
    "CHIMES_LANG",
)
_CONFIGURATION = say("configuration")
_SET_UP = say("make setup")
_LEAST_DISK, _SOME_DISK = 100 * 2**20, 2**30
_FARTHEST_CLOCK = 2.0


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
        detail = say("{python}, Chimes {chimes}", python=number, chimes=__version__)
        return [Check(say("python"), OKAY, detail)]

    def packages(self) -> list[Check]:
        found, missing = [], []
        for name in _PACKAGES:
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                missing.append(name)
        if missing:
            detail = say("missing: {packages}", packages=", ".join(missing))
            return [Check(say("packages"), BAD, detail, _SET_UP)]
        return [Check(say("packages"), OKAY, ", ".join(found))]

    def zones(self) -> list[Check]:
        name = say("time zones")
        try:
            number = version("tzdata")
        except PackageNotFoundError:
            return [Check(name, BAD, say("tzdata is not installed"), _SET_UP)]
        source, host = say("tzdata {version} from its package", version=number), _host_zone()
        here = (
            say("this machine is in {zone}", zone=host)
            if host
            else say("this machine names no zone")
        )
        year = number.partition(".")[0]
        if year.isdecimal() and self._clock.now().year - int(year) > 1:
            detail = joined("; ", [source, here, say("it is old")])
            return [Check(name, WARN, detail, say("upgrade tzdata"))]
        return [Check(name, OKAY, joined("; ", [source, here]))]

    def configuration(self) -> list[Check]:
        try:
            self._loaded = load_settings(flags=self._flags, config_file=self._file)
            self._location = store_location(self._loaded.settings)
        except ConfigError as error:
            return [Check(_CONFIGURATION, BAD, error.message, say("see `chimes config show`"))]
        found = [Check(_CONFIGURATION, OKAY, _told(self._loaded))]
        found += [Check(_CONFIGURATION, WARN, text) for text in self._loaded.warnings]
        return found + self._sources(self._loaded) + self._unknown_variables()

    def _sources(self, loaded: LoadedSettings) -> list[Check]:
        """F73: also what a running node has refused to read again."""
        if loaded.sources is None:
            return []
        from chimes.app.applying import checked_file

        try:
            known = checked_file(loaded).known.now
        except ConfigError as error:
            fix = say("correct the file, then `chimes apply`")
            return [Check(say("sources"), BAD, error.message, fix)]
        detail = counted(
            "{sources} with {count} collection",
            "{sources} with {count} collections",
            sum(1 for _ in known.pairs()),
            sources=len(known.by_id),
        )
        return [Check(say("sources"), OKAY, detail)]

    def _unknown_variables(self) -> list[Check]:
        known = {name for field in FIELDS.values() for name in field.variables}
        known |= set(_OTHER_VARIABLES)
        unknown = sorted(
            name for name in os.environ if name.startswith("CHIMES_") and name not in known
        )
        return [
            Check(
                say("environment"),
                WARN,
                say("{name} is no setting", name=name),
                nearest(name, known) or "",
            )
            for name in unknown
        ]

    def server(self) -> list[Check]:
        url = os.environ.get("CHIMES_URL") or self._own_url()
        try:
            health = self._asked(url)
        except Failure as failure:
            fix = say("choose another port with --port or CHIMES_PORT, or correct CHIMES_URL")
            detail = say("{url}: {message}", url=url, message=failure.message)
            return [Check(say("server"), BAD, detail, fix)]
        if health is None:
            detail = say("nobody listens at {url}; the port is free", url=url)
            return [Check(say("server"), OKAY, detail)]
        if health["status"] != "ok":
            detail = say(
                "the server at {url} is {status}: {reason}",
                url=url,
                status=health["status"],
                reason=health.get("reason", ""),
            )
            return [Check(say("server"), WARN, detail, say("see its log"))]
        return [Check(say("server"), OKAY, say("Chimes answers at {url}", url=url))]

    def _asked(self, url: str) -> Json | None:
        """The server's health; None: nobody listens there."""
        backend = HttpBackend(url, os.environ.get("CHIMES_API_KEY", ""))
        with contextlib.closing(backend):
            if not backend.connect():
                return None
            health = backend.request("GET", "/health").json()
            if "status" not in health:
                raise Failure(say("another program listens there"))
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
            detail = say("memory: nothing outlives the process")
            return [Check(STORE, WARN, detail, say("use sqlite"))]
        if not location.path.exists():
            return [self._directory(location.path.parent, location)]
        try:
            return [asyncio.run(_looked_at(location))]
        except StoreLocked as error:
            if self._server is not None:
                detail = say("{store}, in use by the running server", store=location.url)
                return [Check(STORE, OKAY, detail)]
            return [Check(STORE, BAD, error.message, say("stop the other process"))]
        except SchemaMismatch as error:
            return [Check(STORE, BAD, error.message, say("run `chimes store migrate`"))]
        except (ChimesError, OSError) as error:
            detail = say("{store}: {reason}", store=location.url, reason=reason_of(error))
            return [Check(STORE, BAD, detail, say("check path and permissions"))]

    @staticmethod
    def _directory(directory: Path, location: StoreLocation) -> Check:
        there = directory
        while not there.exists():
            there = there.parent
        if not os.access(there, os.W_OK):
            detail = say("{directory} cannot be written", directory=there)
            return Check(STORE, BAD, detail, say("choose another --data-dir"))
        detail = say("{store} does not exist yet; serve will make it", store=location.url)
        return Check(STORE, OKAY, detail)

    def clock(self) -> list[Check]:
        name, now = say("clock"), self._asked_at.isoformat(timespec="seconds")
        told = (self._server or {}).get("now")
        if not isinstance(told, str):
            return [Check(name, OKAY, now)]
        offset = abs((datetime.fromisoformat(told) - self._asked_at).total_seconds())
        if offset > _FARTHEST_CLOCK:
            detail = say("{seconds:.1f} s away from the server's store", seconds=offset)
            return [Check(name, WARN, detail, say("switch time synchronisation (NTP) on"))]
        return [Check(name, OKAY, say("{time}, as the server's", time=now))]

    def disk(self) -> list[Check]:
        if self._location is None or self._location.path is None:
            return []
        there = self._location.path
        while not there.exists():
            there = there.parent
        free = shutil.disk_usage(there).free
        detail = say("{size:.1f} GiB free at {directory}", size=free / 2**30, directory=there)
        if free < _LEAST_DISK:
            fix = say("make room, or choose another --data-dir")
            return [Check(say("disk"), BAD, detail, fix)]
        return [Check(say("disk"), OKAY if free >= _SOME_DISK else WARN, detail)]


async def _looked_at(location: StoreLocation) -> Check:
    from chimes.app import build_store

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


def _told(loaded: LoadedSettings) -> Wording:
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
