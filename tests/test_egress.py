"""Egress rules: which addresses callbacks may call."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from chimes.config import load_settings
from chimes.egress import EgressRules, parse_http_url
from chimes.errors import ConfigError
from tests.tables import each_row

NEVER = [
    "0.0.0.0", "0.1.2.3", "169.254.0.1", "169.254.169.254", "100.100.100.200", "168.63.129.16",
    "192.0.0.192", "192.0.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "::", "fe80::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "100::1", "5f00::1", "4000::1",
    "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe", "::ffff:0:a9fe:a9fe",
    # Teredo: server 8.8.8.8, client 169.254.169.254
    "2001:0:808:808:0:0:5601:5601",
    # Teredo: server 169.254.169.254, client 8.8.8.8
    "2001:0:a9fe:a9fe:0:0:f7f7:f7f7",
]  # fmt: skip
PRIVATE = [
    "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1", "127.0.0.1",
    "127.255.0.1", "100.64.0.1", "100.127.255.255", "198.18.0.1", "192.0.2.1", "203.0.113.7",
    "::1", "fc00::1", "fdff::1", "fec0::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1",
    "64:ff9b:1::808:808", "2002:7f00:1::", "2002:a00:1::1", "::ffff:0:7f00:1",
    "2001:0:808:808:0:0:80ff:fffe",
]  # fmt: skip
PUBLIC = [
    "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.255.255", "100.128.0.1", "169.253.0.1",
    "192.0.1.1", "223.255.255.255", "2606:4700::1", "2a00::1", "::ffff:8.8.8.8",
    "64:ff9b::808:808", "2002:808:808::1", "2001:0:808:808:0:0:f7f7:f7f7",
]  # fmt: skip


def denial(rules: EgressRules, address: str, port: int = 8080, **given: Any) -> str | None:
    found = rules.check_address(ipaddress.ip_address(address), port, **({"host": address} | given))
    return None if found is None else str(found)


OPEN = EgressRules(open_mode=True)
SERVER = EgressRules(open_mode=False)


@each_row("address", NEVER)
def test_special_addresses_are_always_denied(address: str) -> None:
    for rules in (OPEN, SERVER, EgressRules(open_mode=False, allow_private=True)):
        assert denial(rules, address) is not None
    # An allow-list allows private addresses, but not these.
    listed = EgressRules(open_mode=False, allow=(f"[{address}]:8080", "0.0.0.0/0:8080"))
    assert denial(listed, address) is not None


@each_row("address", PRIVATE)
def test_private_addresses_are_denied_on_servers(address: str) -> None:
    assert denial(OPEN, address) is None
    assert denial(SERVER, address) is not None
    assert denial(EgressRules(open_mode=False, allow_private=True), address) is None
    assert denial(EgressRules(open_mode=True, allow_private=False), address) is not None


@each_row("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert denial(OPEN, address) is None
    assert denial(SERVER, address) is None


def test_allow_metadata_allows_metadata_addresses_only() -> None:
    rules = EgressRules(open_mode=False, allow_metadata=True)
    assert denial(rules, "169.254.169.254", 80) is None
    assert denial(rules, "fd00:ec2::254", 80) is None
    for address in ("224.0.0.1", "0.0.0.0", "255.255.255.255", "10.0.0.1"):
        assert denial(rules, address) is not None


def test_allow_list_matches_network_or_host_with_port() -> None:
    rules = EgressRules(
        open_mode=False,
        allow=("10.1.0.0/16:443", "10.2.3.4:8080", "ci.corp.example:8080", "[fd00::]/8:81"),
    )
    assert denial(rules, "10.1.2.3", 443) is None
    assert denial(rules, "::ffff:10.1.2.3", 443) is None
    assert denial(rules, "10.1.2.3", 444) is not None
    assert denial(rules, "10.2.3.4", 8080) is None
    assert denial(rules, "10.2.3.5", 8080) is not None
    assert denial(rules, "192.168.0.1", 8080, host="ci.corp.example") is None
    assert denial(rules, "192.168.0.1", 8080, host="ci.corp.example.") is None
    assert denial(rules, "192.168.0.1", 8080, host="xci.corp.example") is not None
    assert denial(rules, "169.254.169.254", 8080, host="ci.corp.example") is not None
    assert denial(rules, "fd12::1", 81) is None


@pytest.mark.parametrize(
    ("port", "allowed"),
    [(80, True), (443, True), (1024, True), (65535, True)]
    + [(port, False) for port in (1, 22, 25, 79, 81, 444, 1023)],
)
def test_ports_of_other_protocols_are_denied_unless_listed(port: int, allowed: bool) -> None:
    assert (denial(OPEN, "8.8.8.8", port) is None) is allowed
    listed = EgressRules(allow=(f"8.8.8.8:{port}",))
    assert denial(listed, "8.8.8.8", port) is None


def test_only_denies_everything_else() -> None:
    rules = EgressRules(
        open_mode=False, only=("8.8.0.0/16:443", "api.example:443"), allow=("10.0.0.1:443",)
    )
    assert denial(rules, "8.8.8.8", 443) is None
    assert denial(rules, "9.9.9.9", 443, host="api.example") is None
    assert denial(rules, "10.0.0.1", 443) is None
    assert denial(rules, "8.8.8.8", 80) is not None
    assert denial(rules, "9.9.9.9", 443) == (
        "9.9.9.9:443 is not in the list of allowed targets; to allow it, add to "
        'chimes.yaml: egress_only: ["9.9.9.9:443"]'
    )
    # `only` restricts the allowed addresses; it does not allow private ones.
    assert denial(EgressRules(open_mode=False, only=("10.0.0.1:443",)), "10.0.0.1", 443) is not None


def test_denial_suggests_a_working_configuration_line(tmp_path: Path) -> None:
    for address in ("10.1.2.3", "::1"):
        text = denial(SERVER, address, 8443)
        assert text is not None
        file = tmp_path / "chimes.yaml"
        file.write_text(text.partition("chimes.yaml: ")[2])
        allow = load_settings(environ={}, config_file=file).settings.egress_allow
        assert denial(EgressRules(open_mode=False, allow=allow), address, 8443) is None
    text = denial(SERVER, "10.1.2.3", 8080, host="ci.corp.example")
    assert text == (
        "ci.corp.example:8080 is a private address; to allow it, add to chimes.yaml: "
        'egress_allow: ["ci.corp.example:8080"]'
    )


@pytest.mark.parametrize("host", ["printer", "nas.local", "db.internal", "x.localhost"])
def test_private_names_are_denied_whatever_they_resolve_to(host: str) -> None:
    assert denial(SERVER, "8.8.8.8", host=host) is not None
    assert denial(OPEN, "8.8.8.8", host=host) is None
    assert SERVER.check_host(host, 80) is not None
    assert OPEN.check_host(host, 80) is None
    assert EgressRules(open_mode=False, allow=(f"{host}:80",)).check_host(host, 80) is None


@each_row(
    ("own", "address", "port", "same_machine", "denied"),
    [
        ("127.0.0.1", "127.0.0.1", 7100, True, True),
        ("127.0.0.1", "127.0.0.9", 7100, True, True),
        ("127.0.0.1", "::1", 7100, True, True),
        ("127.0.0.1", "::ffff:127.0.0.1", 7100, True, True),
        ("localhost", "127.0.0.1", 7100, False, True),
        ("127.0.0.1", "127.0.0.1", 7101, True, False),
        ("127.0.0.1", "10.0.0.5", 7100, False, False),
        ("0.0.0.0", "127.0.0.1", 7100, True, True),
        ("0.0.0.0", "10.0.0.5", 7100, True, True),
        ("::", "10.0.0.5", 7100, False, False),
        ("10.0.0.5", "10.0.0.5", 7100, False, True),
        ("10.0.0.5", "10.0.0.6", 7100, False, False),
    ],
)
def test_own_ports_are_denied(
    own: str, address: str, port: int, same_machine: bool, denied: bool
) -> None:
    rules = EgressRules(open_mode=True, own_ports=frozenset({(own, 7100)}))
    found = denial(rules, address, port, same_machine=same_machine)
    assert (found is not None) is denied


def test_own_store_is_denied_by_name() -> None:
    rules = EgressRules(own_ports=frozenset({("db.corp.example", 5432)}))
    assert denial(rules, "10.0.0.1", 5432, host="db.corp.example") is not None
    assert denial(rules, "10.0.0.1", 5433, host="db.corp.example") is None


def test_urls_are_checked_before_resolution() -> None:
    def is_allowed(rules: EgressRules, url: str) -> bool:
        return rules.check_url(parse_http_url(url)) is None

    assert is_allowed(OPEN, "http://127.1:8080/")
    assert not is_allowed(SERVER, "http://127.1:8080/")
    assert not is_allowed(SERVER, "http://localhost:8080/")
    assert is_allowed(SERVER, "http://example.com/")
    assert not is_allowed(OPEN, "http://example.com:22/")
    assert not is_allowed(OPEN, "http://0/")
    own = EgressRules(own_ports=frozenset({("127.0.0.1", 7100)}))
    assert not is_allowed(own, "http://localhost:7100/")
    assert not is_allowed(own, "http://[::1]:7100/")
    # A name is checked after resolution if a listed network may cover it.
    assert is_allowed(EgressRules(open_mode=False, allow=("10.0.0.0/8:22",)), "http://ci:22/")
    assert not is_allowed(EgressRules(only=("a.example:443",)), "https://b.example/")
    assert is_allowed(EgressRules(only=("a.example:443",)), "https://a.example/")
    assert is_allowed(EgressRules(only=("8.0.0.0/8:443",)), "https://b.example/")


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "10.0.0.0/8",
        "10.0.0.0/8:",
        "10.0.0.0/8:x",
        "h:0",
        "h:65536",
        ":80",
        "http://h:80",
        "a b:8",
    ],
)
def test_invalid_list_entry_is_a_config_error(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"egress_allow"):
        EgressRules(allow=(entry,))
    with pytest.raises(ConfigError, match=r"egress_only"):
        EgressRules(only=(entry,))
