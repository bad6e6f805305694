"""From the URL of a Redis server to where and how to connect."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from chimes.errors import ConfigError
from chimes.wording import say

DEFAULT_PORT = 6379
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_OPTIONS = ("prefix", *_TLS_OPTIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    host: str
    port: int = DEFAULT_PORT
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_options: tuple[tuple[str, str], ...] = ()
    #: Before every key; without one the keys of tasks are called as the seed calls them (R4.7).
    prefix: str = ""

    @property
    def shown(self) -> str:
        """For people: without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        behind = f"?prefix={self.prefix}" if self.prefix else ""
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{host}:{self.port}/{self.database}{behind}"

    @property
    def channel(self) -> str:
        """Where nodes wake each other. Channels know no databases, so the name has its number."""
        return f"{self.prefix}chimes:wake:{self.database}"


def address_of(url: str) -> Address:
    """`redis://[user][:password]@host[:port][/database][?prefix=...]`, `rediss://` for TLS."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise ConfigError(say("store: the port of the Redis URL is none: 1 to 65535")) from None
    if parts.scheme not in ("redis", "rediss"):
        raise ConfigError(
            say("{scheme}:// is not a Redis URL; write redis://host:6379/0", scheme=parts.scheme)
        )
    options = parse_qsl(parts.query, keep_blank_values=True)
    for name, _ in options:
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, 1)
            raise ConfigError(
                say(
                    "store: unknown option {name!r} of a Redis URL; did you mean {near}?",
                    name=name,
                    near=near[0],
                )
                if near
                else say(
                    "store: unknown option {name!r} of a Redis URL; known are {known}",
                    name=name,
                    known=", ".join(_OPTIONS),
                )
            )
    given = dict(options)
    tls = tuple((name, given[name]) for name in _TLS_OPTIONS if name in given)
    if tls and parts.scheme != "rediss":
        raise ConfigError(
            say("store: {option} is an option of rediss://, which uses TLS", option=tls[0][0])
        )
    return Address(
        host=parts.hostname or "localhost",
        port=port,
        database=_database(parts.path),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
        tls_options=tls,
        prefix=given.get("prefix", ""),
    )


def _database(path: str) -> int:
    number = path.strip("/")
    if not number:
        return 0
    if not number.isdecimal():
        raise ConfigError(
            say(
                "store: {number!r} is no database of Redis: those have numbers, 0 to 15 mostly;"
                " to share one, give each application its ?prefix=",
                number=number,
            )
        )
    return int(number)
