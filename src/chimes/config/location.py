"""Resolves the `store` setting to the location of the store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from chimes.config.settings import Settings
from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.redaction import HIDDEN, is_secret_name, mask_url, query_pairs

StoreKind = Literal["sqlite", "json", "memory", "postgresql", "mariadb", "redis"]

#: Database servers by URL scheme, without a driver after `+`.
SERVERS: Mapping[str, StoreKind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mariadb": "mariadb",
    "mysql": "mariadb",
}
REDIS = ("redis", "rediss")
SENTINEL = ("redis+sentinel", "rediss+sentinel", "redis-sentinel", "sentinel")
#: File in the data directory with the identities of the Redis stores that this node has used.
MARKER = "redis-stores.json"
SUPPORTED_URLS = _(
    "sqlite:///path, json:///dir, memory://, postgresql://…, mariadb://… and redis://…"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreLocation:
    kind: StoreKind
    #: The database file (sqlite) or the directory (json), absolute; None for the others.
    path: Path | None = None
    #: The URL of a server as given, with the password: never printed.
    server: str = ""
    #: Redis only: `Settings.allow_volatile`, and the file that identifies the store.
    allow_volatile: bool = False
    marker: Path | None = None
    #: `Settings.secret_key`.
    secret_key: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        if self.server:
            return self.server
        return "memory://" if self.path is None else f"{self.kind}:///{self.path}"

    @property
    def display(self) -> str:
        """For display: the location without user and password."""
        if self.server:
            scheme, _separator, rest = self.server.partition("://")
            return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
        return str(self.path) if self.path else _("memory only")


def masked_store_url(url: str) -> str:
    """The URL without its password, even if that is not escaped properly."""
    head, mark, rest = url.partition("://")
    if not mark:
        return url
    credentials, at, place = rest.rpartition("@")
    user, colon, _password = credentials.partition(":")
    hidden = f"{user}:{HIDDEN}{at}" if colon else f"{user}{at}"
    return head + mark + hidden + mask_url(place)


def store_secrets(url: str) -> tuple[str, ...]:
    """The password in a URL, as written and unquoted."""
    _scheme, mark, rest = url.partition("://")
    written = {rest.rpartition("@")[0].partition(":")[2]} if mark else set()
    _base, question, query = rest.partition("?")
    if question:
        written |= {
            value for _separator, name, value in query_pairs(f"?{query}") if is_secret_name(name)
        }
    return tuple(sorted(({unquote(each) for each in written} | written) - {""}))


def resolve_store_url(settings: Settings) -> str:
    """The complete, absolute URL of the store."""
    return store_location(settings).url


def store_location(settings: Settings, *, base: Path | None = None) -> StoreLocation:
    """The location of the store, with the key of its secrets.

    Empty or `sqlite`: `chimes.db` in the data directory. `json`: the data directory itself.
    `memory` or `memory://`: not persistent.

    `scheme:////path` (four slashes) is absolute, `scheme:///path` (three) is relative to the
    working directory, as in SQLAlchemy. An absolute path pasted after `json://` also has three
    slashes, so such a path is absolute where only that makes sense: it exists and the relative one
    does not; or, if neither exists, its first directory exists and that of the relative one does
    not.
    """
    return replace(_location(settings, base or Path.cwd()), secret_key=settings.secret_key)


def _location(settings: Settings, here: Path) -> StoreLocation:
    data = here / settings.data_dir
    given = settings.store.strip()
    if given in ("", "sqlite"):
        return StoreLocation(kind="sqlite", path=_normalize(data / "chimes.db"))
    if given == "json":
        return StoreLocation(kind="json", path=_normalize(data))
    if given in ("memory", "memory://", "memory:///"):
        return StoreLocation(kind="memory")
    scheme, separator, rest = given.partition("://")
    if not separator:
        raise _invalid_store(given, _("write a path as sqlite:///{given}", given=given))
    if scheme in REDIS:
        return _redis_location(given, rest, settings, data)
    if scheme in SENTINEL:
        raise _invalid_store(
            given,
            _(
                "Redis Sentinel is not supported: Redis replicates asynchronously, so a fail-over"
                " undoes acknowledged changes; use postgresql:// with a list of hosts, see"
                " docs/guides/high-availability.md"
            ),
        )
    server = SERVERS.get(scheme.partition("+")[0])
    if server is not None:
        if not _has_database(rest):
            raise _invalid_store(
                given,
                _("the database name is missing: {scheme}://…/chimes", scheme=scheme),
            )
        _check_hosts(given, rest, several=server == "postgresql")
        return StoreLocation(kind=server, server=given)
    if scheme not in ("sqlite", "json"):
        raise _invalid_store(given, _("unknown scheme {scheme}://", scheme=scheme))
    path = _path(given, rest, here)
    if scheme == "json":
        return StoreLocation(kind="json", path=path)
    return StoreLocation(kind="sqlite", path=path)


def _redis_location(given: str, rest: str, settings: Settings, data: Path) -> StoreLocation:
    """Checks only host and port; the driver checks the rest of the URL."""
    _check_hosts(given, rest, several=False)
    configured = settings.data_dir != Settings().data_dir
    return StoreLocation(
        kind="redis",
        server=given,
        allow_volatile=settings.allow_volatile,
        # The default data directory is not created just for this file.
        marker=_normalize(data / MARKER) if configured or data.is_dir() else None,
    )


def _has_database(rest: str) -> bool:
    """Accepts both readings of an @ in the options and of a ? in the password."""
    readings = (rest.partition("?")[0].rpartition("@")[2], rest.rpartition("@")[2])
    return any(each.partition("?")[0].partition("/")[2].strip("/") for each in readings)


def host_list(rest: str) -> tuple[tuple[str, str], ...]:
    """Hosts and ports of a URL without its scheme; IPv6 addresses lose their brackets."""
    hosts = rest.partition("?")[0].rpartition("@")[2].partition("/")[0]
    return tuple(map(_host_and_port, hosts.split(",")))


def _host_and_port(given: str) -> tuple[str, str]:
    if given.startswith("["):
        host, _bracket, port = given[1:].partition("]")
        return host, port.removeprefix(":")
    host, _colon, port = given.partition(":")
    return host, port


def _check_hosts(given: str, rest: str, *, several: bool) -> None:
    """Checks hosts and ports, because drivers would use others in place of invalid ones."""
    if "@" in rest.partition("?")[2]:
        # A ? in the password: what looks like a host may be part of it and must not be printed.
        return
    hosts = host_list(rest)
    if len(hosts) > 1 and not several:
        raise _invalid_store(given, _("a list of hosts is possible with postgresql:// only"))
    if len(hosts) > 1 and not all(host for host, _port in hosts):
        raise _invalid_store(given, _("a host is missing before or after a comma"))
    for _host, port in hosts:
        if port.isdecimal() and not 0 < int(port) < 65536:
            raise _invalid_store(given, _("invalid port {port}: expected 1 to 65535", port=port))
        if len(hosts) > 1 and port and not port.isdecimal():
            raise _invalid_store(
                given,
                _("the port of a host is not a number; write IPv6 addresses as [::1]:5432"),
            )


def _path(given: str, rest: str, here: Path) -> Path:
    if not rest.startswith("/"):
        raise _invalid_store(given, _("put three slashes before the path"))
    body = rest[1:]
    if body in ("", ":memory:"):
        raise _invalid_store(given, _("the path is missing; for a store without one use memory://"))
    if "?" in body or "\0" in body:
        raise _invalid_store(given, _("options are not supported for a path"))
    if body.startswith("/"):
        return _normalize(Path("/" + body.lstrip("/")))
    relative, absolute = here / body, Path("/") / body
    if relative.exists() or not _is_absolute(body, here, absolute):
        return _normalize(relative)
    return _normalize(absolute)


def _is_absolute(body: str, here: Path, absolute: Path) -> bool:
    if body.startswith("."):
        return False
    if absolute.exists():
        return True
    first, *others = Path(body).parts
    return bool(others) and (Path("/") / first).is_dir() and not (here / first).exists()


def _normalize(path: Path) -> Path:
    """Removes `.` and `..` but keeps symbolic links, whose target may change."""
    return Path(os.path.normpath(path))


def _invalid_store(given: str, why: str) -> ConfigError:
    masked = given if "@" not in given else given.partition("://")[0] + "://…"
    return ConfigError(
        _(
            "store: invalid URL {given!r}: {why}; supported: {known}",
            given=masked,
            why=why,
            known=SUPPORTED_URLS,
        ),
        key="store",
    )
