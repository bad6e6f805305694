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
from chimes.cli.server_checks import BAD, OKAY, WARN, Check, server_store_checks
from chimes.clock import SystemClock
from chimes.config import LoadedSettings, StoreLocation, load_settings, store_location
from chimes.config.fields import FIELDS
from chimes.errors import ChimesError, ConfigError, SchemaMismatch, StoreLocked
from chimes.triggers.reading import nearest
from chimes.wording import say

_PACKAGES = ("aiohttp", "alembic", "fastapi", "pydantic", "sqlalchemy", "uvicorn")
#: Variables of ours that are no settings.
_OTHER_VARIABLES = (
    "CHIMES_URL",
    "CHIMES_API_KEY",
    "CHIMES_API_KEY_FILE",
    "CHIMES_CONFIG",
    "CHIMES_LANG",
)
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
        return [Check("python", OKAY, f"{number}, Chimes {__version__}")]

    def packages(self) -> list[Check]:
        found, missing = [], []
        for name in _PACKAGES:
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                missing.append(name)
        if missing:
            return [Check("packages", BAD, f"missing: {', '.join(missing)}", "make setup")]
        return [Check("packages", OKAY, ", ".join(found))]

    def zones(self) -> list[Check]:
        host = _host_zone()
        shown = f"this machine is in {host}" if host else "this machine names no zone"
        try:
            number = version("tzdata")
        except PackageNotFoundError:
            return [Check("time zones", BAD, "tzdata is not installed", "make setup")]
        detail = f"tzdata {number} from its package; {shown}"
        year = number.partition(".")[0]
        if year.isdecimal() and self._clock.now().year - int(year) > 1:
            return [Check("time zones", WARN, f"{detail}; it is old", "upgrade tzdata")]
        return [Check("time zones", OKAY, detail)]

    def configuration(self) -> list[Check]:
        try:
            self._loaded = load_settings(flags=self._flags, config_file=self._file)
            self._location = store_location(self._loaded.settings)
        except ConfigError as error:
            return [Check("configuration", BAD, error.message, "see `chimes config show`")]
        told = sum(origin != "default" for origin in self._loaded.origins.values())
        where = f"file {self._loaded.file}" if self._loaded.file else "no file"
        found = [Check("configuration", OKAY, f"{where}, {told} settings not at their default")]
        found += [Check("configuration", WARN, text) for text in self._loaded.warnings]
        return found + self._sources(self._loaded) + self._unknown_variables()

    def _sources(self, loaded: LoadedSettings) -> list[Check]:
        """F73: also what a running node has refused to read again."""
        if loaded.sources is None:
            return []
        from chimes.app.applying import checked_file

        try:
            known = checked_file(loaded).known.now
        except ConfigError as error:
            return [Check("sources", BAD, error.message, "correct the file, then `chimes apply`")]
        collections = sum(1 for _ in known.pairs())
        return [Check("sources", OKAY, f"{len(known.by_id)} with {collections} collections")]

    def _unknown_variables(self) -> list[Check]:
        known = {name for field in FIELDS.values() for name in field.variables}
        known |= set(_OTHER_VARIABLES)
        unknown = sorted(
            name for name in os.environ if name.startswith("CHIMES_") and name not in known
        )
        return [
            Check("environment", WARN, f"{name} is no setting", nearest(name, known) or "")
            for name in unknown
        ]

    def server(self) -> list[Check]:
        url = os.environ.get("CHIMES_URL") or self._own_url()
        try:
            health = self._asked(url)
        except Failure as failure:
            fix = "choose another port with --port or CHIMES_PORT, or correct CHIMES_URL"
            return [Check("server", BAD, f"{url}: {failure.message}", fix)]
        if health is None:
            return [Check("server", OKAY, f"nobody listens at {url}; the port is free")]
        if health["status"] != "ok":
            reason = f"the server at {url} is {health['status']}: {health.get('reason', '')}"
            return [Check("server", WARN, reason, "see its log")]
        return [Check("server", OKAY, f"Chimes answers at {url}")]

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
            return [Check("store", WARN, "memory: nothing outlives the process", "use sqlite")]
        if not location.path.exists():
            return [self._directory(location.path.parent, location)]
        try:
            return [asyncio.run(_looked_at(location))]
        except StoreLocked as error:
            if self._server is not None:
                return [Check("store", OKAY, f"{location.url}, in use by the running server")]
            return [Check("store", BAD, error.message, "stop the other process")]
        except SchemaMismatch as error:
            return [Check("store", BAD, error.message, "run `chimes store migrate`")]
        except (ChimesError, OSError) as error:
            return [Check("store", BAD, f"{location.url}: {error}", "check path and permissions")]

    @staticmethod
    def _directory(directory: Path, location: StoreLocation) -> Check:
        there = directory
        while not there.exists():
            there = there.parent
        if not os.access(there, os.W_OK):
            return Check("store", BAD, f"{there} cannot be written", "choose another --data-dir")
        return Check("store", OKAY, f"{location.url} does not exist yet; serve will make it")

    def clock(self) -> list[Check]:
        now = self._asked_at
        told = (self._server or {}).get("now")
        if not isinstance(told, str):
            return [Check("clock", OKAY, now.isoformat(timespec="seconds"))]
        offset = abs((datetime.fromisoformat(told) - now).total_seconds())
        if offset > _FARTHEST_CLOCK:
            detail = f"{offset:.1f} s away from the server's store"
            return [Check("clock", WARN, detail, "switch time synchronisation (NTP) on")]
        return [Check("clock", OKAY, f"{now.isoformat(timespec='seconds')}, as the server's")]

    def disk(self) -> list[Check]:
        if self._location is None or self._location.path is None:
            return []
        there = self._location.path
        while not there.exists():
            there = there.parent
        free = shutil.disk_usage(there).free
        detail = f"{free / 2**30:.1f} GiB free at {there}"
        if free < _LEAST_DISK:
            return [Check("disk", BAD, detail, "make room, or choose another --data-dir")]
        return [Check("disk", OKAY if free >= _SOME_DISK else WARN, detail)]


async def _looked_at(location: StoreLocation) -> Check:
    from chimes.app import build_store

    store = build_store(location, SystemClock())
    await store.open()
    try:
        status, counts = await store.status(), await store.counts()
    finally:
        await store.close()
    detail = f"{location.url}, schema {status.schema}, {counts.schedules} schedules"
    if status.degraded:
        return Check("store", WARN, f"{detail}: {status.degraded}")
    return Check("store", OKAY, detail)


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
