"""The one parser of callback URLs: what it returns is judged, and exactly that is dialled.

Nothing downstream reads the text again, so no second parser can see another host in it (S36).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from chimes.errors import InvalidInput
from chimes.wording import say

MAX_URL_LENGTH = 2048
DEFAULT_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\u3000\ufeff]|\s")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# These four mean another name in the older IDNA of the standard library than in a browser.
_IDNA_DEVIATIONS = re.compile("[ßς\u200c\u200d]")
_NOT_ON_THE_WIRE = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:@/?%\[\]]|%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpUrl:
    scheme: str
    #: Lower-case ASCII. An address is in canonical form, without brackets: `0x7f.1` is `127.0.0.1`.
    host: str
    port: int
    #: Path and query as written, placeholders included; `on_the_wire` makes it sendable.
    tail: str

    @property
    def address(self) -> Address | None:
        """The address, if the host is one."""
        return literal_address(self.host)

    @property
    def bracketed_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def origin(self) -> str:
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.bracketed_host}{port}"


def on_the_wire(tail: str) -> str:
    """Path and query with everything percent-encoded that a request line cannot carry (S39)."""
    return _NOT_ON_THE_WIRE.sub(lambda found: quote(found[0], safe=""), tail)


@lru_cache(maxsize=4096)
def literal_address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def parse_http_url(text: str) -> HttpUrl:
    _check_characters(text)
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in DEFAULT_PORTS:
        raise _invalid(say("the URL must start with http:// or https://"), "url_scheme")
    end = re.search(r"[/?]", rest)
    authority = rest[: end.start()] if end else rest
    tail = rest[end.start() :] if end else ""
    if "@" in authority:
        raise _invalid(
            say("the URL must not hold a user name or password"),
            "url_userinfo",
            hint=say("send credentials in an Authorization header"),
        )
    host, port = _split_port(authority)
    return HttpUrl(
        scheme=scheme,
        host=_host(host),
        port=DEFAULT_PORTS[scheme] if port is None else port,
        tail=tail if tail.startswith("/") else f"/{tail}",
    )


def _check_characters(text: str) -> None:
    if not text:
        raise _invalid(say("a URL is required"), "url_required")
    if len(text) > MAX_URL_LENGTH:
        raise _invalid(
            say("the URL is longer than {most} characters", most=MAX_URL_LENGTH),
            "url_too_long",
        )
    if found := _FORBIDDEN.search(text):
        raise _invalid(
            say(
                "the URL holds {character!r} at position {position}; percent-encode it",
                character=found[0],
                position=found.start(),
            ),
            "url_character",
        )
    if "#" in text:
        raise _invalid(say("the URL must not have a fragment (#...)"), "url_fragment")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid(say("the URL is not valid Unicode"), "url_character") from None


def _split_port(authority: str) -> tuple[str, int | None]:
    if authority.startswith("["):
        host, bracket, after = authority.partition("]")
        host += bracket
        separator, port = after[:1], after[1:]
        if not bracket or separator not in ("", ":"):
            raise _invalid(say("the host of the URL is not valid"), "url_host")
    else:
        host, separator, port = authority.partition(":")
    if not separator:
        return host, None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise _invalid(say("the port of the URL must be a number from 1 to 65535"), "url_port")
    return host, int(port)


def _host(host: str) -> str:
    if not host:
        raise _invalid(say("the URL has no host"), "url_host")
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1] if "%" not in host else ""))
        except ValueError:
            raise _invalid(say("{host} is not an IPv6 address", host=host), "url_host") from None
    name = _ascii(host).lower()
    labels = name.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _legacy_ipv4(labels)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _invalid(say("the host of the URL is not valid"), "url_host")
    return name


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    if _IDNA_DEVIATIONS.search(host):
        raise _invalid(
            say("the host has a letter that browsers and servers encode differently"),
            "url_host",
            hint=say("write the host in its ASCII form (xn--...)"),
        )
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise _invalid(
            say("the host of the URL is not a valid international name"), "url_host"
        ) from (None)


def _legacy_ipv4(parts: list[str]) -> str:
    """The address that resolvers make of `127.1`, `0x7f.1`, `0177.0.0.1`, `2130706433` or `0`."""
    try:
        numbers = [_number(part) for part in parts]
        if len(numbers) > 4 or any(number > 255 for number in numbers[:-1]):
            raise ValueError
        value = numbers[-1]
        if value >= 256 ** (5 - len(numbers)):
            raise ValueError
        for place, number in enumerate(numbers[:-1]):
            value += number << (24 - 8 * place)
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise _invalid(
            say("{host} is not an IPv4 address", host=".".join(parts)), "url_host"
        ) from None


def _number(part: str) -> int:
    if len(part) > 20 or not _NUMBER.fullmatch(part):
        raise ValueError
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") and len(part) > 1 else int(part)


def _invalid(message: str, code: str, *, hint: str | None = None) -> InvalidInput:
    return InvalidInput(message, field="url", code=code, hint=hint)
