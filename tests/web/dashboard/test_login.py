"""Login, logout and the end of sessions."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from chimes.errors import AlreadyExists, InvalidInput, NotAllowed, NotAuthenticated, NotFound
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.listing import AuditQuery
from chimes.services.access import AccessService
from chimes.services.users import IDLE, LIFE, SessionService, UserService
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.store_contract.stores import KINDS, Home, StoreKind
from tests.web.dashboard.browsing import Browser, browsing

PASSWORD = "correct horse battery"
TOKEN = "an-admin-token-of-the-configuration"


async def sign_in(browser: Browser, **fields: str) -> None:
    answer = await browser.send("/ui/login", on="/ui/login", **fields)
    assert answer.status_code == 303, answer.text


async def create_user(browser: Browser, role: Role = Role.ADMIN, name: str = "anna") -> UserService:
    users = UserService(browser.rig.store)
    await users.create(Actor(), name=name, password=PASSWORD, role=role)
    browser.rig.clock.advance(timedelta(seconds=1))
    return users


async def test_pages_redirect_to_login_if_keys_are_required() -> None:
    async with browsing() as browser:
        await browser.rig.key(Role.ADMIN)
        answer = await browser.get("/ui/runs?q=status%3Afailed")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/ui/login?next=%2Fui%2Fruns%3Fq%3Dstatus%253Afailed"
        part = await browser.get("/ui/runs", **{"HX-Request": "true"})
        assert part.status_code == 401
        assert part.headers["hx-redirect"].startswith("/ui/login")
        assert (await browser.get("/ui/login")).status_code == 200


async def test_login_with_a_key_redirects_to_the_requested_page() -> None:
    async with browsing() as browser:
        made = await browser.rig.key(Role.MEMBER, Owner(type=OwnerType.USER, id="anna"))
        key = made["Authorization"].removeprefix("Bearer ")
        await browser.get("/ui/login?next=/ui/inbox")
        answer = await browser.send("/ui/login", key=key)
        assert answer.headers["location"] == "/ui/inbox"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert key not in cookie
        page = await browser.get("/ui/")
        assert page.status_code == 200
        assert "key:" in page.text


async def test_the_api_ignores_cookies_and_pages_ignore_keys() -> None:
    # The API ignores cookies; dashboard routes ignore bearer tokens.
    async with browsing(fixed_keys=[TOKEN]) as browser:
        await sign_in(browser, key=TOKEN)
        assert (await browser.get("/ui/")).status_code == 200
        assert (await browser.get("/api/v1/schedules")).status_code == 401
    async with browsing(fixed_keys=[TOKEN]) as browser:
        answer = await browser.get("/ui/", Authorization=f"Bearer {TOKEN}")
        assert answer.status_code == 303


async def test_login_and_logout_of_a_user() -> None:
    async with browsing() as browser:
        await create_user(browser)
        await sign_in(browser, user="anna", password=PASSWORD)
        page = (await browser.get("/ui/")).text
        assert "user:anna" in page
        kept = dict(browser.client.cookies)
        answer = await browser.send("/ui/logout")
        assert answer.headers["location"] == "/ui/login"
        browser.client.cookies.update(kept)
        # The session has also ended on the server.
        assert (await browser.get("/ui/")).status_code == 303


async def test_creating_a_user_requires_authentication_everywhere() -> None:
    async with browsing() as browser:
        assert (await browser.get("/api/v1/schedules")).status_code == 200
        await create_user(browser)
        assert (await browser.get("/api/v1/schedules")).status_code == 401
        assert (await browser.get("/ui/")).status_code == 303


async def test_each_login_has_a_new_secret() -> None:
    # Session fixation: a cookie set by someone else is not adopted.
    async with browsing(fixed_keys=[TOKEN]) as browser:
        browser.client.cookies.set("chimes_session_7100", "set-by-somebody", domain="localhost")
        await sign_in(browser, key=TOKEN)
        found = {cookie.value for cookie in browser.client.cookies.jar if "session" in cookie.name}
        assert found != {"set-by-somebody"}


async def test_failed_logins_are_limited_and_audited() -> None:
    # The sixth attempt is not checked; unknown name and wrong password give the same message.
    async with browsing() as browser:
        await create_user(browser)
        answers = [
            await browser.send("/ui/login", on="/ui/login", user=name, password="wrong guess!")
            for name in ("anna", "nobody")
        ]
        assert [each.status_code for each in answers] == [401, 401]
        errors = [each.text.partition('id="login-error">')[2].partition("<")[0] for each in answers]
        assert errors[0] == errors[1] != ""
        for _ in range(4):
            await browser.send("/ui/login", on="/ui/login", user="anna", password="wrong guess!")
        answer = await browser.send("/ui/login", on="/ui/login", user="anna", password=PASSWORD)
        assert answer.status_code == 429
        notes = await browser.rig.store.list_audit(AuditQuery(verb="sign_in"))
        assert [note.allowed for note in notes] == [False] * 6
        browser.rig.clock.advance(timedelta(minutes=15))
        await sign_in(browser, user="anna", password=PASSWORD)


async def test_a_wrong_password_does_not_reveal_user_names() -> None:
    users = UserService(_memory())
    await users.create(Actor(), name="anna", password=PASSWORD, role=Role.VIEWER)
    assert await users.authenticate("anna", "x" * 20) is None
    assert await users.authenticate("somebody", PASSWORD) is None
    assert (await users.authenticate("anna", PASSWORD)) is not None


async def test_the_language_of_the_user_applies_after_login() -> None:
    async with browsing() as browser, browsing(store=browser.rig.store) as elsewhere:
        await create_user(browser)
        await sign_in(browser, user="anna", password=PASSWORD)
        await browser.send("/ui/look", on="/ui/", language="th", zone="Asia/Tokyo")
        elsewhere.rig.clock.advance(timedelta(seconds=2))
        await sign_in(elsewhere, user="anna", password=PASSWORD)
        page = (await elsewhere.get("/ui/")).text
        assert 'lang="th"' in page
        assert 'data-zone="Asia/Tokyo"' in page


async def test_a_viewer_sees_no_objects_of_others() -> None:
    async with browsing() as browser:
        await browser.rig.create(name="canary")
        made = await browser.rig.key(Role.VIEWER, Owner(type=OwnerType.USER, id="bob"))
        await sign_in(browser, key=made["Authorization"].removeprefix("Bearer "))
        assert (await browser.get("/ui/palette?q=canary")).json() == {"items": []}


async def test_a_session_has_the_rate_limit_of_a_key() -> None:
    # 20 requests a second, burst of 40.
    async with browsing(fixed_keys=[TOKEN]) as browser:
        await sign_in(browser, key=TOKEN)
        answers = [(await browser.get("/ui/palette?q=")).status_code for _ in range(45)]
        assert answers[:30] == [200] * 30
        assert answers[-1] == 429


# --- on every store ---------------------------------------------------------------------------


def _memory(clock: SettableClock | None = None) -> Store:
    from chimes.store.memory import MemoryStore

    return MemoryStore(clock or SettableClock())


class LoginNode:
    """One node with its own caches."""

    def __init__(self, store: Store, clock: SettableClock) -> None:
        self.clock = clock
        self.access = AccessService(store, clock)
        self.users = UserService(store)
        self.sessions = SessionService(store, self.access, self.users, clock)

    async def actor_of(self, secret: str) -> Actor:
        self.clock.advance(timedelta(seconds=1.1))
        return (await self.sessions.authenticate(secret, address="127.0.0.1")).actor


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_sessions_are_shared_by_all_nodes(kind: StoreKind, tmp_path: Path) -> None:
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    store = await home.open()
    try:
        one, other = LoginNode(store, clock), LoginNode(store, clock)
        admin = Actor()
        await one.users.create(admin, name="anna", password=PASSWORD, role=Role.MEMBER)
        with pytest.raises(AlreadyExists):
            await other.users.create(admin, name="anna", password=PASSWORD, role=Role.ADMIN)
        assert await one.access.auth_enabled()
        key = await one.access.create(admin, name="k", role=Role.OPERATOR)

        async def login(node: LoginNode) -> tuple[str, str]:
            secret, session = await node.sessions.login_with_password(
                "anna", PASSWORD, address="127.0.0.1", agent="a browser"
            )
            return secret, session.record.id

        # Concurrent logins on two nodes: none is lost.
        (first, _), (second, second_id), (third, _) = await asyncio.gather(
            login(one), login(other), login(one)
        )
        by_key, _ = await other.sessions.login_with_key(key.text, address="127.0.0.1", agent="")
        assert len(await one.sessions.list_sessions(admin)) == 4
        for node in (one, other):
            assert (await node.actor_of(first)).owner == Owner(type=OwnerType.USER, id="anna")
            assert (await node.actor_of(by_key)).role is Role.OPERATOR
        await one.sessions.revoke(admin, second_id)
        with pytest.raises(NotFound):
            await one.sessions.revoke(admin, second_id)
        await one.users.set_role(admin, "anna", Role.VIEWER)
        assert (await other.actor_of(first)).role is Role.VIEWER
        await one.access.revoke(admin, key.key.id)
        for secret in (second, by_key, "made up"):
            with pytest.raises(NotAuthenticated):
                await other.actor_of(secret)
        await other.users.set_password(admin, "anna", "another password")
        for secret in (first, third):
            with pytest.raises(NotAuthenticated):
                await one.actor_of(secret)
        await one.users.remove(admin, "anna")
        assert await other.users.get("anna") is None
    finally:
        await home.close()


async def test_a_session_ends_when_idle_and_after_a_week() -> None:
    clock = SettableClock()
    node = LoginNode(_memory(clock), clock)
    await node.users.create(Actor(), name="anna", password=PASSWORD, role=Role.MEMBER)

    async def login() -> str:
        return (await node.sessions.login_with_password("anna", PASSWORD, address="", agent=""))[0]

    idle, busy = await login(), await login()
    began = clock.now()
    while clock.now() - began < LIFE - IDLE / 2:
        clock.advance(IDLE / 4)
        await node.actor_of(busy)
    with pytest.raises(NotAuthenticated):
        await node.actor_of(idle)
    clock.advance(IDLE / 2)
    with pytest.raises(NotAuthenticated):
        await node.actor_of(busy)


async def test_only_admins_create_users_and_input_is_validated() -> None:
    users = UserService(_memory())
    for role in (Role.VIEWER, Role.MEMBER, Role.OPERATOR):
        with pytest.raises(NotAllowed):
            await users.create(Actor(role=role), name="eve", password=PASSWORD, role=Role.VIEWER)
    for name, password in (("", PASSWORD), ("a b", PASSWORD), ("eve", "short"), ("eve", "x" * 201)):
        with pytest.raises(InvalidInput):
            await users.create(Actor(), name=name, password=password, role=Role.VIEWER)
    with pytest.raises(NotAllowed):
        await users.set_password(Actor(role=Role.MEMBER), "eve", PASSWORD)
    with pytest.raises(NotFound):
        await users.remove(Actor(), "eve")


# Unknown paths and unknown objects.
@pytest.mark.parametrize("path", ["/ui/nowhere", "/ui/runs/nobody", "/ui/schedules/x/y/z"])
async def test_not_found_pages_use_the_language_of_the_user(path: str) -> None:
    async with browsing() as browser:
        await create_user(browser)
        anna = Actor(owner=Owner(type=OwnerType.USER, id="anna"), role=Role.MEMBER)
        chosen = {"language": "th", "theme": "dark"}
        await browser.rig.context.preferences.change(anna, chosen)
        if "/runs/" not in path:
            stranger = await browser.get(path)
            assert (stranger.status_code, stranger.headers["content-language"]) == (404, "en")
        await sign_in(browser, user="anna", password=PASSWORD)
        answer = await browser.get(path)
        assert answer.status_code == 404
        assert answer.headers["content-language"] == "th"
        assert '<html lang="th" data-theme="dark"' in answer.text
        assert "ไม่พบ" in answer.text
        posted = await browser.post("/ui/nowhere", {})
        assert (posted.status_code, posted.headers["content-language"]) == (404, "th")
