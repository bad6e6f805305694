"""From the `store` setting to the place where the data is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from chimes.config.settings import Settings
from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.redaction import HIDDEN, is_secret_name, masked_tail, query_pairs

StoreKind = Literal["sqlite", "json", "memory", "postgresql", "mariadb", "redis"]

#: By the scheme of the URL; a driver's name behind a `+` is left out.
SERVERS: Mapping[str, StoreKind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mariadb": "mariadb",
    "mysql": "mariadb",
}
REDIS = ("redis", "rediss")
#: In the data directory: which stores on a Redis server were used from here (F41).
MARKER = "redis-stores.json"
KNOWN = _("sqlite:///path, json:///dir, memory://, postgresql://…, mariadb://… and redis://…")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreLocation:
    kind: StoreKind
    #: The database file (sqlite) or the directory (json), absolute; None for the others.
    path: Path | None = None
    #: The URL of a server as it was given, password included: never shown.
    server: str = ""
    #: Redis only: see `Settings.allow_volatile`, and the file that remembers which store it was.
    allow_volatile: bool = False
    marker: Path | None = None

    @property
    def url(self) -> str:
        if self.server:
            return self.server
        return "memory://" if self.path is None else f"{self.kind}:///{self.path}"

    @property
    def shown(self) -> str:
        """For people: where it is, without user and password."""
        if self.server:
            scheme, _unused, rest = self.server.partition("://")
            return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
        return str(self.path) if self.path else _("nowhere: memory only")


def masked_store_url(url: str) -> str:
    """The URL without its password (S69), also where that is not escaped as it should be."""
    head, mark, rest = url.partition("://")
    if not mark:
        return url
    credentials, at, place = rest.rpartition("@")
    user, colon, _unused = credentials.partition(":")
    hidden = f"{user}:{HIDDEN}{at}" if colon else f"{user}{at}"
    return head + mark + hidden + masked_tail(place)


def store_secrets(url: str) -> tuple[str, ...]:
    """The password in a URL, as it is written and as it is meant."""
    _unused, mark, rest = url.partition("://")
    written = {rest.rpartition("@")[0].partition(":")[2]} if mark else set()
    _unused, question, query = rest.partition("?")
    if question:
        written |= {
            value for _unused, name, value in query_pairs(f"?{query}") if is_secret_name(name)
        }
    return tuple(sorted(({unquote(each) for each in written} | written) - {""}))


def resolve_store_url(settings: Settings) -> str:
    """The store's URL, complete and absolute: what `store_location` found."""
    return store_location(settings).url


def store_location(settings: Settings, *, base: Path | None = None) -> StoreLocation:
    """Where the data is kept.

    Empty or `sqlite`: `chimes.db` in the data directory. `json`: the data directory itself.
    `memory` or `memory://`: nowhere.

    `scheme:////path` (four slashes) is absolute, `scheme:///path` (three) is relative to the
    working directory, as in SQLAlchemy. But a path is easily pasted behind `json://`, which makes
    three slashes of an absolute path. So with three slashes the absolute reading is taken where it
    alone makes sense: it exists and the relative one does not; or, when neither exists, its first
    directory exists and that of the relative one does not.
    """
    here = base or Path.cwd()
    data = here / settings.data_dir
    given = settings.store.strip()
    if given in ("", "sqlite"):
        return StoreLocation(kind="sqlite", path=_normal(data / "chimes.db"))
    if given == "json":
        return StoreLocation(kind="json", path=_normal(data))
    if given in ("memory", "memory://", "memory:///"):
        return StoreLocation(kind="memory")
    scheme, separator, rest = given.partition("://")
    if not separator:
        raise _unknown(given, _("a path is written as sqlite:///{given}", given=given))
    if scheme in REDIS:
        return _on_redis(given, rest, settings, data)
    server = SERVERS.get(scheme.partition("+")[0])
    if server is not None:
        if not _names_database(rest):
            raise _unknown(
                given,
                _("the name of the database is missing: {scheme}://…/chimes", scheme=scheme),
            )
        if wrong := _bad_port(rest):
            raise _unknown(given, _("{port} is no port: 1 to 65535", port=wrong))
        return StoreLocation(kind=server, server=given)
    if scheme not in ("sqlite", "json"):
        raise _unknown(given, _("{scheme}:// is not known in this version", scheme=scheme))
    path = _path(given, rest, here)
    if scheme == "json":
        return StoreLocation(kind="json", path=path)
    return StoreLocation(kind="sqlite", path=path)


def _on_redis(given: str, rest: str, settings: Settings, data: Path) -> StoreLocation:
    """What else is wrong with the URL its driver says."""
    if wrong := _bad_port(rest):
        raise _unknown(given, _("{port} is no port: 1 to 65535", port=wrong))
    configured = settings.data_dir != Settings().data_dir
    return StoreLocation(
        kind="redis",
        server=given,
        allow_volatile=settings.allow_volatile,
        # The directory of the default is made for stores that need one only.
        marker=_normal(data / MARKER) if configured or data.is_dir() else None,
    )


def _names_database(rest: str) -> bool:
    """Both readings count: an @ may stand in the options, a ? in a password."""
    readings = (rest.partition("?")[0].rpartition("@")[2], rest.rpartition("@")[2])
    return any(each.partition("?")[0].partition("/")[2].strip("/") for each in readings)


def _bad_port(rest: str) -> str:
    """The first that no server can have; drivers would dial another one. Empty: all are right."""
    where, _unused, options = rest.partition("?")
    if "@" in options:
        # A ? in a password: what looks like a port is perhaps none, and not to be shown.
        return ""
    for host in where.rpartition("@")[2].partition("/")[0].split(","):
        _unused, colon, port = host.rpartition("]")[2].partition(":")
        if colon and port.isdecimal() and not 0 < int(port) < 65536:
            return port
    return ""


def _path(given: str, rest: str, here: Path) -> Path:
    if not rest.startswith("/"):
        raise _unknown(given, _("three slashes stand before the path"))
    body = rest[1:]
    if body in ("", ":memory:"):
        raise _unknown(given, _("the path is missing; a store without one is memory://"))
    if "?" in body or "\0" in body:
        raise _unknown(given, _("a path takes no options"))
    if body.startswith("/"):
        return _normal(Path("/" + body.lstrip("/")))
    relative, absolute = here / body, Path("/") / body
    if relative.exists() or not _means_absolute(body, here, absolute):
        return _normal(relative)
    return _normal(absolute)


def _means_absolute(body: str, here: Path, absolute: Path) -> bool:
    if body.startswith("."):
        return False
    if absolute.exists():
        return True
    first, *others = Path(body).parts
    return bool(others) and (Path("/") / first).is_dir() and not (here / first).exists()


def _normal(path: Path) -> Path:
    """Without `.` and `..`, but with symbolic links as they are: they may be changed on purpose."""
    return Path(os.path.normpath(path))


def _unknown(given: str, why: str) -> ConfigError:
    shown = given if "@" not in given else given.partition("://")[0] + "://…"
    return ConfigError(
        _(
            "store: {given!r} cannot be used: {why}; this version has {known}",
            given=shown,
            why=why,
            known=KNOWN,
        ),
        key="store",
    )
