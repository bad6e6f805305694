"""Sign-in through an identity provider or a proxy."""

from __future__ import annotations

import html
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from aiohttp import StreamReader
from joserfc.jwk import RSAKey

from chimes.config import Settings
from chimes.errors import ConfigError, InvalidInput
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.listing import AuditQuery
from chimes.services.single_sign_on import check_settings
from chimes.services.users import UserService
from chimes.testing import SettableClock
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider

ROLES = (("platform", "admin"), ("developers", "member"))
ADMIN = Actor(interface="cli")


@asynccontextmanager
async def with_provider(**given: Any) -> AsyncIterator[tuple[Browser, Provider]]:
    clock = SettableClock()
    with Provider(clock.now) as provider:
        settings = Settings(
            oidc_issuer=provider.issuer,
            oidc_client_id=CLIENT_ID,
            oidc_client_secret=CLIENT_SECRET,
            oidc_name="Example ID",
            sso_roles=ROLES,
            **given,
        )
        check_settings(settings)
        provider.account["groups"] = ["developers", "unrelated"]
        async with browsing(settings=settings, clock=clock) as browser:
            yield browser, provider


async def come_back(browser: Browser, provider: Provider, next_url: str = "") -> str:
    """Begins a sign-in; returns where the provider sends the browser back to."""
    answer = await browser.get(f"/ui/oidc/login?next={next_url}")
    assert answer.status_code == 302, answer.text
    return provider.authorize(answer.headers["location"])


async def sign_in(browser: Browser, provider: Provider) -> httpx2.Response:
    return await browser.get(await come_back(browser, provider, "/ui/inbox"))


def error_on(answer: httpx2.Response) -> str:
    assert 'role="alert"' in answer.text, answer.text
    return html.unescape(answer.text.split('id="login-error">')[1].split("</p>")[0])


async def audited(browser: Browser) -> list[tuple[str, str, bool]]:
    found = await browser.rig.store.list_audit(AuditQuery(limit=100))
    return [(each.verb, each.object_id, each.allowed) for each in found]


async def test_sign_in_creates_the_user_with_the_role_of_its_groups() -> None:
    async with with_provider() as (browser, provider):
        assert (await browser.get("/ui/")).headers["location"].startswith("/ui/login")
        page = await browser.get("/ui/login?next=/ui/inbox")
        assert "Sign in with Example ID" in page.text
        assert "/ui/oidc/login?next=%2Fui%2Finbox" in page.text
        answer = await sign_in(browser, provider)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/inbox")
        assert (await browser.get("/ui/inbox")).status_code == 200
        users = UserService(browser.rig.store)
        anna = await users.get("anna")
        assert anna is not None
        assert (anna.role, anna.issuer) == (Role.MEMBER, provider.issuer)
        # The role follows the groups at each sign-in, the account follows the subject.
        provider.account |= {"groups": "platform", "preferred_username": "anna.smith"}
        assert (await sign_in(browser, provider)).status_code == 303
        (anna,) = await users.list_users(ADMIN)
        assert (anna.name, anna.role) == ("anna", Role.ADMIN)
        verbs = [verb for verb, _name, _allowed in await audited(browser)]
        assert verbs.count("create_user") == verbs.count("change_role") == 1
        assert verbs.count("sign_in") == 2
        # There is no password to sign in with or to set.
        assert await users.authenticate("anna", "") is None
        with pytest.raises(InvalidInput, match="has no password"):
            await users.set_password(ADMIN, "anna", "correct horse battery")


async def test_a_name_that_owns_something_is_not_taken_over() -> None:
    for allowed, status in ((False, 403), (True, 303)):
        async with with_provider(sso_link_existing=allowed) as (browser, provider):
            await browser.rig.key(Role.MEMBER, Owner(type=OwnerType.USER, id="anna"))
            assert (await sign_in(browser, provider)).status_code == status


async def test_claims_may_come_from_user_info_and_be_nested() -> None:
    given = {"oidc_user_claim": "email", "oidc_groups_claim": "realm_access.roles"}
    async with with_provider(**given) as (browser, provider):
        provider.account |= {"email": "anna@example.org", "realm_access": {"roles": ["platform"]}}
        provider.only_in_userinfo = ("email", "realm_access")
        assert (await sign_in(browser, provider)).status_code == 303
        anna = await UserService(browser.rig.store).get("anna@example.org")
        assert anna is not None
        assert anna.role is Role.ADMIN


async def test_bodies_that_arrive_in_parts_are_read_to_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = StreamReader.read

    async def signal_read(reader: StreamReader, n: int = -1) -> bytes:
        found = await read(reader, n)
        part_read.set()
        return found

    part_read = threading.Event()
    monkeypatch.setattr(StreamReader, "read", signal_read)
    async with with_provider() as (browser, provider):
        provider.only_in_userinfo = ("groups",)
        provider.first_part_read = part_read
        assert (await sign_in(browser, provider)).status_code == 303
        assert {"/token", "/keys", "/userinfo"} < set(provider.requests)


async def test_tokens_that_are_not_valid_are_refused() -> None:
    now = SettableClock().now().timestamp()
    wrong: dict[str, dict[str, Any]] = {
        "another nonce": {"nonce": "replayed"},
        "no nonce": {"nonce": None},
        "another audience": {"aud": "other"},
        "several audiences, authorized for another one": {"aud": [CLIENT_ID, "x"], "azp": "x"},
        "another issuer": {"iss": "https://evil.example"},
        "expired": {"exp": int(now) - 3600},
        "no expiry": {"exp": None},
        "no subject": {"sub": None},
        "not valid yet": {"nbf": int(now) + 36000},
    }
    async with with_provider() as (browser, provider):
        for what, claims in wrong.items():
            browser.rig.clock.advance(timedelta(minutes=15))
            provider.changed = claims
            answer = await sign_in(browser, provider)
            assert answer.status_code == 401, what
            assert "identity provider is invalid" in error_on(answer), what
            assert (await browser.get("/ui/inbox")).status_code == 303, what
        assert not await UserService(browser.rig.store).has_users()


async def test_a_changed_key_is_read_again_and_a_foreign_one_refused() -> None:
    async with with_provider() as (browser, provider):
        assert (await sign_in(browser, provider)).status_code == 303
        browser.rig.clock.advance(timedelta(minutes=5))
        provider.key = RSAKey.generate_key(2048, {"kid": "second", "use": "sig"})
        assert (await sign_in(browser, provider)).status_code == 303
        published = provider._answer("/keys", b"", "")
        provider.key = RSAKey.generate_key(2048, {"kid": "second", "use": "sig"})
        provider_answer = provider._answer
        provider._answer = lambda path, *rest: (  # type: ignore[method-assign]
            published if path == "/keys" else provider_answer(path, *rest)
        )
        browser.rig.clock.advance(timedelta(minutes=5))
        assert (await sign_in(browser, provider)).status_code == 401


async def test_keys_that_cannot_be_read_are_refused() -> None:
    for keys in ({}, {"keys": [{"kty": "EC", "crv": "unknown", "x": "AA", "y": "AA"}]}):
        async with with_provider() as (browser, provider):
            answer = provider._answer
            provider._answer = lambda path, *rest, keys=keys, answer=answer: (  # type: ignore[method-assign]
                (200, keys) if path == "/keys" else answer(path, *rest)
            )
            assert (await sign_in(browser, provider)).status_code == 401


async def test_a_return_belongs_to_one_browser_and_is_used_once() -> None:
    async with with_provider() as (browser, provider):
        back = await come_back(browser, provider)
        assert (await browser.get(back)).status_code == 303
        # The browser's state is gone, so a second return asks the provider for nothing.
        before = len(provider.requests)
        answer = await browser.get(back)
        assert answer.status_code == 401
        assert "took too long, or it began in another browser" in error_on(answer)
        assert len(provider.requests) == before
        # A code that was used before is refused by the provider.
        used = parse_qs(urlsplit(back).query)["code"][0]
        fresh = await come_back(browser, provider)
        code = parse_qs(urlsplit(fresh).query)["code"][0]
        answer = await browser.get(fresh.replace(code, used))
        assert "identity provider is invalid" in error_on(answer)
        # Another browser's state, another provider, and a refusal at the provider.
        other = Browser(browser.rig)
        assert (await other.get(await come_back(browser, provider))).status_code == 401
        await other.client.aclose()
        fresh = await come_back(browser, provider)
        iss = f"iss={provider.issuer.replace(':', '%3A').replace('/', '%2F')}"
        assert iss in fresh
        answer = await browser.get(fresh.replace(iss, "iss=https%3A%2F%2Fevil.example"))
        assert "another identity provider" in error_on(answer)
        state = parse_qs(urlsplit(await come_back(browser, provider)).query)["state"][0]
        answer = await browser.get(f"/ui/oidc/callback?state={state}&error=access_denied")
        assert "You did not sign in" in error_on(answer)


async def test_users_without_a_role_or_with_a_taken_name_are_refused() -> None:
    async with with_provider() as (browser, provider):
        provider.account["groups"] = ["unrelated"]
        answer = await sign_in(browser, provider)
        assert answer.status_code == 403
        assert "anna has no role in Chimes" in error_on(answer)
        assert ("sign_in", "anna", False) in await audited(browser)
        provider.account |= {"groups": ["platform"], "preferred_username": "anna\u200b"}
        assert "cannot be a user name" in error_on(await sign_in(browser, provider))
        users = UserService(browser.rig.store)
        await users.create(ADMIN, name="anna", password="correct horse battery", role=Role.VIEWER)
        provider.account["preferred_username"] = "anna"
        answer = await sign_in(browser, provider)
        assert answer.status_code == 403
        assert "another user anna already" in error_on(answer)
        settings = browser.rig.context.settings
        unknown = provider.account | {"sub": "2", "preferred_username": "bert"}
    async with with_provider(sso_link_existing=True, sso_create_users=False) as (browser, provider):
        users = UserService(browser.rig.store)
        await users.create(ADMIN, name="anna", password="correct horse battery", role=Role.VIEWER)
        assert (await sign_in(browser, provider)).status_code == 303
        anna = await users.get("anna")
        assert anna is not None
        assert (anna.role, anna.issuer) == (Role.MEMBER, provider.issuer)
        assert await users.authenticate("anna", "correct horse battery") is None
        # A linked user is not taken over by another subject.
        provider.account["sub"] = "3"
        assert (await sign_in(browser, provider)).status_code == 403
        provider.account = unknown
        assert "bert is not a user" in error_on(await sign_in(browser, provider))
    async with with_provider(sso_default_role="viewer") as (browser, provider):
        provider.account["groups"] = []
        assert (await sign_in(browser, provider)).status_code == 303
    assert settings.sso_default_role == ""


async def test_logout_ends_the_session_at_the_provider_too() -> None:
    async with with_provider(public_url="https://chimes.example") as (browser, provider):
        begun = await browser.get("/ui/oidc/login")
        query = parse_qs(urlsplit(begun.headers["location"]).query)
        assert query["redirect_uri"] == ["https://chimes.example/ui/oidc/callback"]
        back = provider.authorize(begun.headers["location"])
        assert (await browser.get(back.replace("https://chimes.example", ""))).status_code == 303
        answer = await browser.send("/ui/logout", on="/ui/inbox")
        assert answer.status_code == 200
        target = answer.headers["refresh"].removeprefix("0; url=")
        assert target.startswith(f"{provider.issuer}/logout?")
        assert parse_qs(urlsplit(target).query) == {
            "client_id": [CLIENT_ID],
            "post_logout_redirect_uri": ["https://chimes.example/ui/login"],
        }
        assert (await browser.get("/ui/inbox")).status_code == 303


async def test_a_provider_that_does_not_answer_or_is_another_one() -> None:
    async with with_provider() as (browser, provider):
        provider.metadata = {"issuer": "https://other.example"}
        assert "identity provider is invalid" in error_on(await browser.get("/ui/oidc/login"))
    answer_after_stop = None
    async with with_provider() as (browser, provider):
        provider._server.shutdown()
        provider._server.server_close()
        answer_after_stop = await browser.get("/ui/oidc/login")
    assert answer_after_stop.status_code == 502
    assert "Example ID does not respond" in error_on(answer_after_stop)
    async with browsing() as browser:
        assert (await browser.get("/ui/oidc/login")).status_code == 404


PROXY = Settings(
    trusted_proxies=("127.0.0.1",),
    proxy_user_header="X-Forwarded-User",
    proxy_groups_header="X-Forwarded-Groups",
    sso_roles=ROLES,
)
BERT = {"X-Forwarded-User": "bert", "X-Forwarded-Groups": "unrelated, platform"}


async def test_a_trusted_proxy_names_the_user() -> None:
    check_settings(PROXY)
    async with browsing(settings=PROXY) as browser:
        assert (await browser.get("/ui/inbox")).headers["location"].startswith("/ui/login")
        answer = await browser.get("/ui/login?next=/ui/inbox", **BERT)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/inbox")
        assert (await browser.get("/ui/inbox", **BERT)).status_code == 200
        (bert,) = await UserService(browser.rig.store).list_users(ADMIN)
        assert (bert.name, bert.role, bert.issuer) == ("bert", Role.ADMIN, "proxy")
        # The session ends when the proxy names somebody else, or is passed by.
        assert (await browser.get("/ui/inbox")).status_code == 303
        other = BERT | {"X-Forwarded-User": "carl"}
        assert (await browser.get("/ui/inbox", **other)).status_code == 303
        assert (await browser.get("/ui/inbox", **BERT)).status_code == 200
        answer = await browser.get("/ui/login", **{"X-Forwarded-User": "dora"})
        assert answer.status_code == 403
        assert "dora has no role" in error_on(answer)
    for settings in (
        replace(PROXY, trusted_proxies=("10.0.0.1",)),
        replace(PROXY, proxy_user_header="", oidc_issuer="http://127.0.0.1:9"),
    ):
        async with browsing(settings=settings) as browser:
            assert (await browser.get("/ui/login", **BERT)).status_code == 200
            assert not await UserService(browser.rig.store).has_users()


def test_settings_that_contradict_each_other() -> None:
    for settings, message in (
        (Settings(proxy_user_header="X-User"), "needs trusted_proxies"),
        (Settings(oidc_issuer="https://id.example"), "needs oidc_client_id"),
        (Settings(oidc_issuer="http://id.example", oidc_client_id="x"), "https://"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_settings(settings)
