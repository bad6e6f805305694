"""Egress rules: which addresses callbacks may call, decided on the dialled address.

    never     link-local and metadata services, unspecified, multicast, reserved, our own ports
    private   allowed in open mode; else by allow-list, or as a whole by `allow_private`
    public    allowed, unless `only` lists the allowed ones

Ports 80, 443 and from 1024 up; others only by allow-list (in open mode also on loopback).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

from msgspec import Struct

from chimes.errors import ConfigError, InvalidInput
from chimes.i18n import _

# --- the only parser of callback URLs: its result is checked and dialled. The text is not parsed
# again, so that no second parser can see another host in it.

MAX_URL_LENGTH = 2048
DEFAULT_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\u3000\ufeff]|\s")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# These four mean another name in the older IDNA of the standard library than in a browser.
_IDNA_DEVIATIONS = re.compile("[ßς\u200c\u200d]")
_NOT_ON_THE_WIRE = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:@/?%\[\]]|%(?![0-9A-Fa-f]{2})")


class HttpUrl(Struct, frozen=True, kw_only=True):
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
    """Path and query with everything percent-encoded that a request line cannot carry."""
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
        raise _invalid(_("the URL must start with http:// or https://"), "url_scheme")
    end = re.search(r"[/?]", rest)
    authority = rest[: end.start()] if end else rest
    tail = rest[end.start() :] if end else ""
    if "@" in authority:
        raise _invalid(
            _("the URL must not contain a user name or password"),
            "url_userinfo",
            hint=_("send credentials in an Authorization header"),
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
        raise _invalid(_("a URL is required"), "url_required")
    if len(text) > MAX_URL_LENGTH:
        raise _invalid(
            _("the URL is longer than {most} characters", most=MAX_URL_LENGTH),
            "url_too_long",
        )
    if found := _FORBIDDEN.search(text):
        raise _invalid(
            _(
                "the URL contains {character!r} at position {position}; percent-encode it",
                character=found[0],
                position=found.start(),
            ),
            "url_character",
        )
    if "#" in text:
        raise _invalid(_("the URL must not have a fragment (#...)"), "url_fragment")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid(_("the URL is not valid Unicode"), "url_character") from None


def _split_port(authority: str) -> tuple[str, int | None]:
    if authority.startswith("["):
        host, bracket, after = authority.partition("]")
        host += bracket
        separator, port = after[:1], after[1:]
        if not bracket or separator not in ("", ":"):
            raise _invalid(_("the host of the URL is not valid"), "url_host")
    else:
        host, separator, port = authority.partition(":")
    if not separator:
        return host, None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise _invalid(_("the port of the URL must be a number from 1 to 65535"), "url_port")
    return host, int(port)


def _host(host: str) -> str:
    if not host:
        raise _invalid(_("the URL has no host"), "url_host")
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1] if "%" not in host else ""))
        except ValueError:
            raise _invalid(_("{host} is not an IPv6 address", host=host), "url_host") from None
    name = _ascii(host).lower()
    labels = name.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _legacy_ipv4(labels)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _invalid(_("the host of the URL is not valid"), "url_host")
    return name


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    if _IDNA_DEVIATIONS.search(host):
        raise _invalid(
            _("the host has a letter that browsers and servers encode differently"),
            "url_host",
            hint=_("write the host in its ASCII form (xn--...)"),
        )
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise _invalid(
            _("the host of the URL is not a valid international name"), "url_host"
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
            _("{host} is not an IPv4 address", host=".".join(parts)), "url_host"
        ) from None


def _number(part: str) -> int:
    if len(part) > 20 or not _NUMBER.fullmatch(part):
        raise ValueError
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") and len(part) > 1 else int(part)


def _invalid(message: str, code: str, *, hint: str | None = None) -> InvalidInput:
    return InvalidInput(message, field="url", code=code, hint=hint)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressClass(IntEnum):
    PUBLIC = 0
    PRIVATE = 1
    METADATA = 2
    NEVER = 3


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


# Own tables, because `is_global` and `is_private` misclassify some of these ranges.
_METADATA = _networks(
    "169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32",
    "168.63.129.16/32", "192.0.0.192/32",
)  # fmt: skip
_PRIVATE = _networks(
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10",
    "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "::1/128", "fc00::/7", "fec0::/10", "2001:db8::/32", "64:ff9b:1::/48",
)  # fmt: skip
_NEVER = _networks(
    "0.0.0.0/8", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4", "2001:10::/28",
)  # fmt: skip
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")

_LOCALHOST = ipaddress.IPv4Address("127.0.0.1")
_LOOPBACK_AND_NONE = ipaddress.IPv6Network("::/127")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_EMBEDDED_LAST = _networks("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96")


@lru_cache(maxsize=4096)
def classify_address(address: Address) -> AddressClass:
    """The class of an address that embeds no other."""
    for networks, address_class in (
        (_METADATA, AddressClass.METADATA),
        (_PRIVATE, AddressClass.PRIVATE),
        (_NEVER, AddressClass.NEVER),
    ):
        if any(address in network for network in networks):
            return address_class
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6:
        return AddressClass.NEVER
    return AddressClass.PUBLIC


@lru_cache(maxsize=4096)
def unwrap_address(address: Address) -> tuple[Address, ...]:
    """The addresses that a packet may reach, e.g. embedded IPv4; all of them are checked."""
    if isinstance(address, ipaddress.IPv4Address) or address in _LOOPBACK_AND_NONE:
        return (address,)
    last = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _NAT64 or any(address in network for network in _EMBEDDED_LAST):
        return (last,)
    if address in _NAT64_LOCAL:
        # The operator of the network chooses the position of the IPv4 part: never public.
        return (last, address)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    return (address,)


class AllowEntry(Struct, frozen=True, kw_only=True):
    """One entry of an allow-list: a host or a network, and a port."""

    network: Network | None
    host: str
    port: int

    def covers(self, address: Address | None, host: str, port: int) -> bool:
        if port != self.port:
            return False
        if self.network is None:
            return self.host == host
        return address is not None and address in self.network


@lru_cache(maxsize=64)
def parse_allow_list(texts: tuple[str, ...], key: str) -> tuple[AllowEntry, ...]:
    return tuple(_entry(text, key) for text in texts)


def _entry(text: str, key: str) -> AllowEntry:
    place, _unused, port = text.strip().rpartition(":")
    place = re.sub(r"^\[(.*?)\](/[0-9]+)?$", r"\1\2", place).lower()
    if place and re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536:
        try:
            return AllowEntry(
                network=ipaddress.ip_network(place, strict=False), host="", port=int(port)
            )
        except ValueError:
            if re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", place):
                return AllowEntry(network=None, host=place, port=int(port))
    raise ConfigError(
        _(
            "{key}: expected a host or network and a port, such as 10.1.0.0/16:443 or "
            "ci.corp.example:8080, not {text!r}",
            key=key,
            text=text,
        )
    )


class Denial(Struct, frozen=True, kw_only=True):
    text: str

    def __str__(self) -> str:
        return self.text


class Egress(Protocol):
    """Decides which URLs callbacks may call."""

    def now(self) -> EgressRules:
        """The current rules, for a child process."""

    def check_url(self, url: HttpUrl) -> Denial | None: ...

    def check_host(self, host: str, port: int) -> Denial | None: ...

    def check_address(
        self, address: Address, port: int, *, host: str, same_machine: bool = False
    ) -> Denial | None: ...


class EgressRules(Struct, frozen=True, kw_only=True):
    #: Loopback bind without keys: users could call these URLs themselves anyway.
    open_mode: bool = True
    #: None: as in `open_mode`.
    allow_private: bool | None = None
    #: `CIDR-or-host:port`, e.g. `10.1.0.0/16:443`.
    allow: tuple[str, ...] = ()
    #: If set, the only allowed ones besides `allow`.
    only: tuple[str, ...] = ()
    #: Opens link-local and metadata addresses, and nothing else that is never allowed.
    allow_metadata: bool = False
    #: (address or name, port) of our API and store. A loopback address stands for all of them,
    #: an unspecified one (`0.0.0.0`, `::`) for every address of this machine.
    own_ports: frozenset[tuple[str, int]] = frozenset()

    def __post_init__(self) -> None:
        parse_allow_list(self.allow, "egress_allow")
        parse_allow_list(self.only, "egress_only")

    def now(self) -> EgressRules:
        return self

    def check_url(self, url: HttpUrl) -> Denial | None:
        """Check without resolving names; used when a target is saved."""
        return self.check_host(url.host, url.port)

    def check_host(self, host: str, port: int) -> Denial | None:
        return _cached_host_check(self, host, port)

    def check_address(
        self, address: Address, port: int, *, host: str, same_machine: bool = False
    ) -> Denial | None:
        """`host` is the host of the URL; `same_machine`: both ends of the connection have the same
        address."""
        return _cached_address_check(self, address, port, host, same_machine)

    def _check_host(self, host: str, port: int) -> Denial | None:
        address = literal_address(host)
        if address is not None:
            return self.check_address(address, port, host=host)
        host = host.removesuffix(".")
        if host == "localhost" or host.endswith(".localhost"):
            return self.check_address(_LOCALHOST, port, host=host)
        # If a network of the list has this port, the resolved address decides.
        if any(entry.port == port for entry in self._allowed if entry.network is not None):
            return None
        listed = _covered(self._allowed, None, host, port)
        by_name_only = self.only and not any(entry.network for entry in self._only)
        if by_name_only and not listed and not _covered(self._only, None, host, port):
            return self._outside_only(host, port)
        return self._check_unlisted(_classify_name(host), listed, host, port)

    def _check(self, address: Address, port: int, host: str, same_machine: bool) -> Denial | None:
        host = host.removesuffix(".")
        for inner in unwrap_address(address):
            denial = self._check_one(inner, port, host, same_machine)
            if denial is not None:
                return denial
        return None

    def _check_one(
        self, address: Address, port: int, host: str, same_machine: bool
    ) -> Denial | None:
        address_class = classify_address(address)
        if self._own(address, port, host, same_machine):
            return Denial(
                text=_("{place} is a port of this Chimes node itself", place=_at(host, port))
            )
        if address_class is AddressClass.NEVER:
            return Denial(
                text=_("{place} is an address that is never allowed", place=_at(host, port))
            )
        if address_class is AddressClass.METADATA and not self.allow_metadata:
            return Denial(
                text=_(
                    "{place} is a link-local or metadata address; only chimes.yaml "
                    "can open it: egress_allow_metadata: true",
                    place=_at(host, port),
                )
            )
        listed = _covered(self._allowed, address, host, port)
        if self.only and not listed and not _covered(self._only, address, host, port):
            return self._outside_only(host, port)
        # In open mode users are on this machine: its ports are within their reach anyway.
        if self.open_mode and address.is_loopback and self.allow_private is not False:
            return None
        return self._check_unlisted(max(address_class, _classify_name(host)), listed, host, port)

    def _check_unlisted(
        self, address_class: AddressClass, listed: bool, host: str, port: int
    ) -> Denial | None:
        if listed:
            return None
        if port not in (80, 443) and port < 1024:
            return Denial(
                text=_(
                    "port {port} is not 80, 443 or from 1024 up; to allow it, add to "
                    "chimes.yaml: {line}",
                    port=port,
                    line=_line("allow", host, port),
                )
            )
        private_allowed = self.open_mode if self.allow_private is None else self.allow_private
        if address_class is AddressClass.PRIVATE and not private_allowed:
            return Denial(
                text=_(
                    "{place} is a private address; to allow it, add to chimes.yaml: {line}",
                    place=_at(host, port),
                    line=_line("allow", host, port),
                )
            )
        return None

    def _outside_only(self, host: str, port: int) -> Denial:
        return Denial(
            text=_(
                "{place} is not in the list of allowed targets; to allow it, "
                "add to chimes.yaml: {line}",
                place=_at(host, port),
                line=_line("only", host, port),
            )
        )

    def _own(self, address: Address, port: int, host: str, same_machine: bool) -> bool:
        return any(
            port == own_port and _is_own(own_host, address, host, same_machine)
            for own_host, own_port in self.own_ports
        )

    @property
    def _allowed(self) -> tuple[AllowEntry, ...]:
        return parse_allow_list(self.allow, "egress_allow")

    @property
    def _only(self) -> tuple[AllowEntry, ...]:
        return parse_allow_list(self.only, "egress_only")


# Cached: a node calls the same few targets again and again.
@lru_cache(maxsize=4096)
def _cached_host_check(rules: EgressRules, host: str, port: int) -> Denial | None:
    return rules._check_host(host, port)


@lru_cache(maxsize=4096)
def _cached_address_check(
    rules: EgressRules, address: Address, port: int, host: str, same_machine: bool
) -> Denial | None:
    return rules._check(address, port, host, same_machine)


def _is_own(own_host: str, address: Address, host: str, same_machine: bool) -> bool:
    own = _LOCALHOST if own_host == "localhost" else literal_address(own_host)
    if own is None:
        return own_host.lower() == host
    if own.is_unspecified:
        return same_machine or address.is_loopback
    return own == address or (own.is_loopback and address.is_loopback)


def _covered(
    entries: tuple[AllowEntry, ...], address: Address | None, host: str, port: int
) -> bool:
    return any(entry.covers(address, host, port) for entry in entries)


def _classify_name(host: str) -> AddressClass:
    if literal_address(host) is not None:
        return AddressClass.PUBLIC
    private = "." not in host or host.endswith((".local", ".internal", ".localhost"))
    return AddressClass.PRIVATE if private else AddressClass.PUBLIC


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _line(key: str, host: str, port: int) -> str:
    return f'egress_{key}: ["{_at(host, port)}"]'


class ModeEgress(Struct, frozen=True, kw_only=True):
    """Switches the rules when the first key ends open mode, without a restart."""

    open_mode: Callable[[], bool]
    while_open: EgressRules
    with_keys: EgressRules

    def check_url(self, url: HttpUrl) -> Denial | None:
        return self.now().check_url(url)

    def check_host(self, host: str, port: int) -> Denial | None:
        return self.now().check_host(host, port)

    def check_address(
        self, address: Address, port: int, *, host: str, same_machine: bool = False
    ) -> Denial | None:
        return self.now().check_address(address, port, host=host, same_machine=same_machine)

    def now(self) -> EgressRules:
        return self.while_open if self.open_mode() else self.with_keys
