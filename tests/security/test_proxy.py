"""Proxy headers: ignored, except from a configured proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from chimes.config import Settings, load_settings
from chimes.errors import ConfigError
from chimes.model.access import Role
from chimes.model.listing import AuditQuery
from tests.cli.conftest import Server
from tests.security.serving import Served, served
from tests.tables import each_row

TOKEN = "an-admin-token-of-the-configuration"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
PATH = "/api/v1/schedules"


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Server] = []

    def begin(**env: str) -> Server:
        server = Server(tmp_path, env={"CHIMES_ADMIN_TOKEN": TOKEN} | env)
        started.append(server)
        return server

    yield begin
    for server in started:
        assert server.stop() == 0


def _forge(server: Server, count: int) -> list[int]:
    """Sends wrong keys, each with another forged address."""
    codes = []
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        for number in range(count):
            forged = f"203.0.113.{number + 1}"
            headers = {
                "Authorization": "Bearer wrong",
                "X-Forwarded-For": forged,
                "X-Real-IP": forged,
            }
            codes.append(client.get(PATH, headers=headers).status_code)
    return codes


def _audited_addresses(server: Server) -> set[str]:
    answer = httpx2.get(f"{server.url}/api/v1/audit", headers=ADMIN, timeout=60)
    return {each["address"] for each in answer.json()["items"] if each["verb"] == "auth_failed"}


def test_a_client_cannot_forge_its_address(start: Start) -> None:
    server = start()
    codes = _forge(server, 14)
    assert (codes[0], codes[-1]) == (401, 429)
    assert _audited_addresses(server) == {"127.0.0.1"}


@pytest.mark.parametrize("variable", ["CHIMES_TRUSTED_PROXIES", "FORWARDED_ALLOW_IPS"])
def test_a_configured_proxy_reports_the_address(start: Start, variable: str) -> None:
    server = start(**{variable: "127.0.0.1, 10.0.0.0/8"})
    assert _forge(server, 14) == [401] * 14
    assert _audited_addresses(server) == {f"203.0.113.{number + 1}" for number in range(14)}


async def _address(server: Served, peer: str, **headers: str) -> str:
    """The address that the audit log has for a refused request."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with server.client(peer) as client:
        answer = await client.get(PATH, headers=given)
        assert answer.status_code == 401, answer.text
    (entry,) = await server.rig.store.list_audit(AuditQuery(verb="auth_failed", limit=1))
    return entry.address


#: Peer, headers, and the client.
CHAINS = [
    ("127.0.0.1", {}, "127.0.0.1"),
    ("127.0.0.9", {"x_forwarded_for": "203.0.113.5"}, "127.0.0.9"),
    ("127.0.0.9", {"forwarded": "for=203.0.113.5"}, "127.0.0.9"),
    ("127.0.0.1", {"x_forwarded_for": "203.0.113.5"}, "203.0.113.5"),
    # What a client sends stands on the left of what the proxy adds.
    ("127.0.0.1", {"x_forwarded_for": "198.51.100.1, 203.0.113.5"}, "203.0.113.5"),
    # Several trusted proxies.
    ("127.0.0.1", {"x_forwarded_for": "198.51.100.1, 203.0.113.5, 10.2.3.4"}, "203.0.113.5"),
    ("127.0.0.1", {"x_forwarded_for": "10.9.9.9,10.2.3.4"}, "10.9.9.9"),
    ("127.0.0.1", {"x_forwarded_for": "203.0.113.5:4711"}, "203.0.113.5"),
    ("127.0.0.1", {"x_forwarded_for": "[2001:db8::1]:4711"}, "2001:db8::1"),
    ("127.0.0.1", {"x_forwarded_for": "2001:db8::1"}, "2001:db8::1"),
    ("127.0.0.1", {"x_forwarded_for": "::ffff:203.0.113.5"}, "203.0.113.5"),
    # No address: the client of the last known hop.
    ("127.0.0.1", {"x_forwarded_for": "203.0.113.5, unknown"}, "127.0.0.1"),
    ("127.0.0.1", {"x_forwarded_for": "203.0.113.5, _hidden, 10.1.1.1"}, "10.1.1.1"),
    ("127.0.0.1", {"x_forwarded_for": ""}, "127.0.0.1"),
    ("127.0.0.1", {"forwarded": 'for="[2001:db8::1]:80";proto=https'}, "2001:db8::1"),
    ("127.0.0.1", {"forwarded": "for=198.51.100.1, For=203.0.113.5;by=10.1.1.1"}, "203.0.113.5"),
    ("127.0.0.1", {"forwarded": "for=6.6.6.6;x-y=1, for=203.0.113.5"}, "203.0.113.5"),
    ("127.0.0.1", {"forwarded": 'for=203.0.113.5;host="a,b;c", for=10.1.1.1'}, "203.0.113.5"),
    (
        "127.0.0.1",
        {"x_forwarded_for": "203.0.113.5", "forwarded": "for=203.0.113.5"},
        "203.0.113.5",
    ),
    # Not used.
    ("127.0.0.1", {"x_real_ip": "203.0.113.5"}, "127.0.0.1"),
]


@each_row(["peer", "headers", "expected"], CHAINS)
async def test_the_client_is_the_right_most_untrusted_address(
    peer: str, headers: dict[str, str], expected: str
) -> None:
    settings = Settings(trusted_proxies=("127.0.0.1", "10.0.0.0/8"))
    # The audit is limited per address: a server of its own for each row.
    async with served(settings=settings, fixed_keys=[TOKEN]) as server:
        assert await _address(server, peer, **headers) == expected


async def test_proxy_headers_that_disagree_are_rejected() -> None:
    """A proxy sets one of the headers and passes on the other one, which the client has forged."""
    settings = Settings(trusted_proxies=("127.0.0.1",))
    async with served(settings=settings, fixed_keys=[TOKEN]) as server, server.client() as client:
        headers = {"X-Forwarded-For": "203.0.113.5", "Forwarded": "for=198.51.100.1"}
        answer = await client.get(PATH, headers=ADMIN | headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "ambiguous_proxy_headers")
        async with server.client("127.0.0.9") as other:
            assert (await other.get(PATH, headers=ADMIN | headers)).status_code == 200


async def test_a_forwarded_header_that_cannot_be_parsed_is_rejected() -> None:
    """Else the client could hide the address that its proxy appends."""
    settings = Settings(trusted_proxies=("127.0.0.1",))
    async with served(settings=settings, fixed_keys=[TOKEN]) as server, server.client() as client:
        headers = {"Forwarded": "for=6.6.6.6;=, for=203.0.113.5"}
        answer = await client.get(PATH, headers=ADMIN | headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_forwarded")


async def test_the_scheme_is_that_of_the_proxy() -> None:
    """It decides whether cookies are Secure."""

    async def secure(trusted: tuple[str, ...], **headers: str) -> bool:
        settings = Settings(trusted_proxies=trusted)
        async with served(settings=settings, fixed_keys=[TOKEN]) as server:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            async with server.client() as client:
                page = await client.get("/ui/login", headers=given)
                assert page.status_code == 200
                return "__Host-chimes" in page.headers["set-cookie"]

    here = ("127.0.0.1",)
    assert await secure(here, x_forwarded_proto="https")
    assert await secure(here, x_forwarded_proto="http, https")
    assert await secure(here, forwarded="for=203.0.113.5;proto=https, for=127.0.0.1;proto=http")
    assert await secure(
        here, x_forwarded_for="203.0.113.5, 127.0.0.1", x_forwarded_proto="https, http"
    )
    assert not await secure(here, x_forwarded_proto="http")
    assert not await secure(here, x_forwarded_proto="gopher")
    assert not await secure(("127.0.0.9",), x_forwarded_proto="https")
    assert not await secure((), x_forwarded_proto="https")


async def test_open_mode_stays_closed_behind_a_configured_proxy() -> None:
    settings = Settings(trusted_proxies=("127.0.0.1",))
    async with served(settings=settings) as server, server.client() as client:
        assert (await client.get(PATH)).status_code == 200
        answer = await client.get(PATH, headers={"X-Forwarded-For": "127.0.0.1"})
        assert answer.status_code == 401


async def test_sign_ins_are_limited_by_the_address_of_the_client() -> None:
    settings = Settings(trusted_proxies=("127.0.0.1",))
    async with served(settings=settings) as server:
        await server.rig.key(Role.ADMIN)
        async with (
            server.client(**{"X-Forwarded-For": "203.0.113.5"}) as one,
            server.client(**{"X-Forwarded-For": "198.51.100.1, 203.0.113.6"}) as other,
        ):
            codes = [(await server.sign_in(one, key="chm_a_b")).status_code for _ in range(6)]
            assert codes == [401] * 5 + [429]
            assert (await server.sign_in(other, key="chm_a_b")).status_code == 401


@each_row("given", ["*", "proxy.example", "10.0.0.0/33", "127.0.0.1/x"])
def test_host_names_and_wildcards_are_rejected(given: str) -> None:
    with pytest.raises(ConfigError, match="addresses or networks"):
        load_settings(environ={"CHIMES_TRUSTED_PROXIES": given})


def test_addresses_and_networks_are_accepted() -> None:
    loaded = load_settings(environ={"CHIMES_TRUSTED_PROXIES": "10.0.0.5/8, ::1,192.0.2.1"})
    assert loaded.settings.trusted_proxies == ("10.0.0.0/8", "::1", "192.0.2.1")
