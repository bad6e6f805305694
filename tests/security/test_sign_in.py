"""Limits of sign-ins over real connections: attempts, password hashes, sessions, audit entries."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from pathlib import Path
from typing import NoReturn

import httpx2
import pytest

from chimes.errors import StoreUnavailable
from chimes.model.access import Actor, Role
from chimes.model.listing import AuditQuery
from chimes.services import users as users_module
from chimes.services.access import AccessService
from chimes.services.users import (
    CONCURRENT_HASHES,
    MAX_FAILED_LOGINS,
    MAX_FAILED_PER_ADDRESS,
    MAX_FAILED_PER_NAME,
    MAX_SESSIONS_PER_ACCOUNT,
    MAX_WAITING_HASHES,
    WINDOW,
    UserService,
)
from tests.security.serving import Served, served
from tests.store_contract.stores import KINDS, StoreKind

PASSWORD = "correct horse battery"
WRONG = "wrong horse battery"


async def create_user(server: Served, name: str = "anna") -> None:
    users = UserService(server.rig.store)
    await users.create(Actor(), name=name, password=PASSWORD, role=Role.ADMIN)
    server.rig.clock.advance(1)


@pytest.fixture
def quick_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every password is wrong, without the cost of a hash: for tests with many attempts."""
    monkeypatch.setattr(users_module, "_matches", lambda _stored, _password: False)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_concurrent_attempts_do_not_pass_the_limit(
    kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """39 wrong attempts at once, and the right password while the first ones are being checked."""
    release, matches = threading.Event(), users_module._matches

    def check(stored: str, password: str) -> bool:
        assert release.wait(60)
        return matches(stored, password)

    monkeypatch.setattr(users_module, "_matches", check)
    async with served(kind, tmp_path) as server, server.client() as client:
        await create_user(server)
        wrong = [
            asyncio.ensure_future(server.sign_in(client, user="anna", password=WRONG))
            for _ in range(39)
        ]
        try:
            async with asyncio.timeout(60):
                for number, refused in enumerate(asyncio.as_completed(wrong), 1):
                    assert (answer := await refused).status_code == 429
                    if number == len(wrong) - MAX_FAILED_LOGINS:
                        break
                assert 0 < int(answer.headers["retry-after"]) <= WINDOW.total_seconds()
                right = await server.sign_in(client, user="anna", password=PASSWORD)
                assert right.status_code == 429
        finally:
            release.set()
        codes = Counter(each.status_code for each in await asyncio.gather(*wrong))
        assert codes == {429: len(wrong) - MAX_FAILED_LOGINS, 401: MAX_FAILED_LOGINS}
        server.rig.clock.advance(WINDOW)
        assert (await server.sign_in(client, user="anna", password=PASSWORD)).status_code == 303


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_right_passwords_are_not_counted(kind: StoreKind, tmp_path: Path) -> None:
    async with served(kind, tmp_path) as server:
        await create_user(server)
        for _ in range(MAX_FAILED_LOGINS + 2):
            async with server.client() as client:
                answer = await server.sign_in(client, user="anna", password=PASSWORD)
                assert answer.status_code == 303


@pytest.mark.usefixtures("quick_hash")
async def test_an_address_is_limited_whatever_names_it_tries() -> None:
    async with served() as server, server.client() as client:
        await create_user(server)
        codes = [
            (await server.sign_in(client, user=f"user{number}", password=WRONG)).status_code
            for number in range(MAX_FAILED_PER_ADDRESS + 3)
        ]
        assert codes == [401] * MAX_FAILED_PER_ADDRESS + [429] * 3
        # Wrong API keys count, too.
        assert (await server.sign_in(client, key="chm_x_y")).status_code == 429
        async with server.client("127.0.0.2") as other:
            assert (await server.sign_in(other, user="anna", password=WRONG)).status_code == 401


@pytest.mark.usefixtures("quick_hash")
async def test_a_name_is_limited_from_all_addresses_together() -> None:
    async with served() as server:
        await create_user(server)
        codes: list[int] = []
        for number in range(MAX_FAILED_PER_NAME // MAX_FAILED_LOGINS + 1):
            async with server.client(f"127.0.1.{number + 1}") as client:
                for _ in range(MAX_FAILED_LOGINS):
                    answer = await server.sign_in(client, user="anna", password=WRONG)
                    codes.append(answer.status_code)
        assert codes == [401] * MAX_FAILED_PER_NAME + [429] * MAX_FAILED_LOGINS


def test_addresses_of_one_ipv6_network_share_a_limit() -> None:
    """A customer gets a /64, so single addresses would be no limit."""
    same = {users_module.address_group(each) for each in ("2001:db8::1", "2001:db8::ffff:1")}
    assert len(same) == 1
    assert users_module.address_group("2001:db8:0:1::1") not in same
    assert users_module.address_group("::ffff:192.0.2.1") == "192.0.2.1"
    assert users_module.address_group("") == ""


async def test_waiting_password_hashes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    original = users_module._matches

    def held(stored: str, password: str) -> bool:
        assert release.wait(60)
        return original(stored, password)

    async with served() as server, server.client() as client:
        await create_user(server)
        await UserService(server.rig.store).authenticate("nobody", WRONG)  # makes the decoy
        monkeypatch.setattr(users_module, "_matches", held)
        most = CONCURRENT_HASHES + MAX_WAITING_HASHES
        attempts = [
            asyncio.ensure_future(server.sign_in(client, user=f"user{number}", password=WRONG))
            for number in range(most + 4)
        ]
        try:
            early: list[httpx2.Response] = []
            for done in asyncio.as_completed(attempts):
                early.append(await done)
                if len(early) == 4:
                    break
            assert [each.status_code for each in early] == [429] * 4
            assert all(int(each.headers["retry-after"]) >= 1 for each in early)
            assert sum(not each.done() for each in attempts) == most
            # The event loop is free while hashes are computed.
            assert (await client.get("/health")).status_code == 200
        finally:
            release.set()
        assert Counter(each.status_code for each in await asyncio.gather(*attempts)) == {
            401: most,
            429: 4,
        }
        # Attempts that were not checked do not count: the address has that many left.
        for number in range(MAX_FAILED_PER_ADDRESS - most):
            answer = await server.sign_in(client, user=f"late{number}", password=WRONG)
            assert answer.status_code == 401
        assert (await server.sign_in(client, user="last", password=WRONG)).status_code == 429


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_sessions_of_an_account_are_bounded(
    kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "_matches", lambda _stored, password: password == PASSWORD)
    async with served(kind, tmp_path) as server:
        await create_user(server)
        await create_user(server, "bob")
        clients = [server.client() for _ in range(MAX_SESSIONS_PER_ACCOUNT + 2)]
        try:
            for number, client in enumerate(clients):
                name = "bob" if number == 0 else "anna"
                answer = await server.sign_in(client, user=name, password=PASSWORD)
                assert answer.status_code == 303
                server.rig.clock.advance(1)
            codes = [(await client.get("/ui/inbox")).status_code for client in clients[:3]]
            # Of anna's sessions the oldest has ended; bob's does not count.
            assert codes == [200, 401, 200]
        finally:
            for client in clients:
                await client.aclose()


@pytest.mark.usefixtures("quick_hash")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_failed_sign_ins_do_not_fill_the_audit_log(
    kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited, per_address = 20, 10
    monkeypatch.setattr(users_module, "MAX_AUDITED_FAILURES", audited)
    monkeypatch.setattr(users_module, "MAX_FAILED_PER_ADDRESS", per_address)
    async with served(kind, tmp_path) as server:
        await create_user(server)
        for number in range(audited // per_address + 1):
            async with server.client(f"127.0.1.{number + 1}") as client:
                for attempt in range(per_address):
                    name = f"user{number}-{attempt}"
                    answer = await server.sign_in(client, user=name, password=WRONG)
                    assert answer.status_code == 401
        entries = await server.rig.store.list_audit(AuditQuery(verb="sign_in", limit=500))
        assert len(entries) == audited
        server.rig.clock.advance(3600)
        async with server.client() as client:
            await server.sign_in(client, user="late", password=WRONG)
        entries = await server.rig.store.list_audit(AuditQuery(verb="sign_in", limit=500))
        assert len(entries) == audited + 1


async def test_an_unknown_name_costs_the_work_of_a_wrong_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same answer, after one hash with the same parameters."""
    hashes: list[str] = []
    matches = users_module._matches

    def check(stored: str, password: str) -> bool:
        hashes.append(stored.rpartition("$")[0].rpartition("$")[0])
        return matches(stored, password)

    monkeypatch.setattr(users_module, "_matches", check)
    async with served() as server, server.client() as client:
        await create_user(server)
        wrong = await server.sign_in(client, user="anna", password=WRONG)
        unknown = await server.sign_in(client, user="nobody", password=WRONG)
        assert wrong.status_code == unknown.status_code == 401
        errors = [
            each.text.partition('id="login-error">')[2].partition("<")[0]
            for each in (wrong, unknown)
        ]
        assert errors[0] == errors[1] != ""
    assert len(hashes) == 2
    assert hashes[0] == hashes[1] != ""


async def test_a_new_password_ends_the_other_sessions_and_logout_its_own() -> None:
    async with (
        served() as server,
        server.client() as mine,
        server.client() as other,
        server.client() as third,
    ):
        await create_user(server)
        for client in (mine, other, third):
            assert (await server.sign_in(client, user="anna", password=PASSWORD)).is_redirect
        copied = {each.name: each.value or "" for each in third.cookies.jar}
        page = await third.get("/ui/")
        token = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert token is not None
        gone = await third.post(
            "/ui/logout", data={"csrf": token[1]}, headers={"Origin": server.url}
        )
        assert gone.is_redirect
        for name, value in copied.items():
            third.cookies.set(name, value, domain="localhost")
        assert (await third.get("/ui/")).status_code == 401
        assert (await other.get("/ui/")).status_code == 200
        users = UserService(server.rig.store)
        await users.set_password(Actor(), "anna", PASSWORD + " staple")
        server.rig.clock.advance(2)
        for client in (mine, other):
            assert (await client.get("/ui/")).status_code == 401


@pytest.mark.parametrize("credentials", [{"user": "anna", "password": PASSWORD}, {"key": "x" * 40}])
async def test_attempts_that_the_store_could_not_check_are_not_counted(
    credentials: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the users who try again during an outage would be locked out after it."""

    async def fail(*_given: object, **_named: object) -> NoReturn:
        raise StoreUnavailable()

    async with served() as server, server.client() as client:
        await create_user(server)
        with monkeypatch.context() as outage:
            outage.setattr(UserService, "authenticate", fail)
            outage.setattr(AccessService, "authenticate", fail)
            for _ in range(MAX_FAILED_LOGINS + 2):
                answer = await server.sign_in(client, **credentials)
                assert answer.status_code == 503
        wrong = credentials | ({"password": WRONG} if "user" in credentials else {})
        for _ in range(MAX_FAILED_LOGINS):
            assert (await server.sign_in(client, **wrong)).status_code == 401
        assert (await server.sign_in(client, **wrong)).status_code == 429
