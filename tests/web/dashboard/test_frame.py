"""Shared parts of all pages over ASGI: CSRF, display preferences, headers, assets, escaping."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import chimes.web.dashboard
from chimes.web.dashboard.core.page_request import local_url
from chimes.web.dashboard.core.templates import assets, environment
from tests.web.dashboard.browsing import Browser, browsing

FOLDER = Path(chimes.web.dashboard.__file__).parent
PAGES = ("/ui/", "/ui/schedules", "/ui/schedules/new", "/ui/runs", "/ui/inbox", "/ui/system")


async def test_the_root_sends_browsers_to_the_dashboard_and_programs_to_the_api() -> None:
    async with browsing() as browser:
        assert (await browser.get("/")).headers["location"] == "/ui/"
        answer = await browser.get("/", Accept="*/*")
        assert answer.headers["location"] == "/docs"


async def test_every_page_sends_security_headers() -> None:
    async with browsing() as browser:
        for path in (*PAGES, "/ui/nowhere", "/ui/static/x/nothing.js"):
            answer = await browser.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            assert answer.headers["cache-control"] == "no-store"


async def test_assets_are_cached_for_a_year_and_compressed() -> None:
    async with browsing() as browser:
        for name, asset in assets().items():
            answer = await browser.get(asset.address, **{"Accept-Encoding": "gzip"})
            assert answer.status_code == 200, name
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["content-encoding"] == "gzip"
            assert answer.content == asset.content
        plain = await browser.get(assets()["app.js"].address, **{"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        old = await browser.get("/ui/static/000000000000/app.js")
        assert old.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "name",
    ["../templates/base.html", "..%2ftemplates%2fbase.html", "app.js%00", "/etc/passwd", "vendor"],
)
async def test_only_assets_are_served(name: str) -> None:
    async with browsing() as browser:
        assert (await browser.get(f"/ui/static/x/{name}")).status_code == 404


def test_scripts_and_styles_are_small() -> None:
    # About 26 KB of script on a page without charts.
    sizes = {name: len(asset.compressed) for name, asset in assets().items()}
    assert sizes["app.js"] + sizes["vendor/htmx.js"] < 26_000
    assert sizes["app.css"] < 8_000


async def test_display_preferences_are_remembered() -> None:
    async with browsing() as browser:
        answer = await browser.send("/ui/look", on="/ui/runs", language="th", theme="dark")
        assert answer.headers["location"] == "/ui/runs"
        page = (await browser.follow(answer)).text
        assert 'lang="th"' in page
        assert 'data-theme="dark"' in page
        answer = await browser.send("/ui/look", zone="Asia/Tokyo", clock="utc")
        page = (await browser.follow(answer)).text
        assert 'data-zone="Asia/Tokyo"' in page
        assert 'lang="th"' in page


async def test_an_unknown_display_preference_is_rejected() -> None:
    async with browsing() as browser:
        for wrong in ({"theme": "pink"}, {"zone": "Mars/Base"}, {"language": "xx"}):
            answer = await browser.send("/ui/look", on="/ui/", **wrong)
            assert answer.status_code == 422
            assert "set-cookie" not in answer.headers


async def test_a_form_needs_a_csrf_token_and_the_same_origin() -> None:
    async with browsing() as browser, browsing() as other:
        good = {"csrf": await _token(browser), "theme": "dark"}
        foreign = {"csrf": await _token(other), "theme": "dark"}
        assert (await browser.post("/ui/look", {"theme": "dark"})).status_code == 403
        assert (await browser.post("/ui/look", {**good, "csrf": "x"})).status_code == 403
        assert (await browser.post("/ui/look", foreign)).status_code == 403
        elsewhere = {"Origin": "http://evil.example"}
        assert (await browser.post("/ui/look", good, **elsewhere)).status_code == 403
        across = {"Sec-Fetch-Site": "cross-site"}
        assert (await browser.post("/ui/look", good, **across)).status_code == 403
        answer = await browser.client.post(
            "/ui/look", content='{"theme":"dark"}', headers={"Content-Type": "text/plain"}
        )
        assert answer.status_code == 415
        assert (await browser.post("/ui/look", good)).status_code == 303


async def test_cookies_are_secure_and_host_only_over_https() -> None:
    async with browsing() as browser:
        browser.client.base_url = "https://localhost:7100"  # type: ignore[assignment]
        cookie = (await browser.get("/ui/")).headers["set-cookie"]
        assert cookie.startswith("__Host-chimes_guard=")
        assert "Secure" in cookie
        assert "HttpOnly" in cookie
        assert "Path=/;" in cookie
        assert "Domain" not in cookie


@pytest.mark.parametrize("path", ["/ui/runs?q=%00", "/ui/runs?%00=1", "/ui/schedules/a%00b"])
async def test_a_nul_character_is_rejected(path: str) -> None:
    async with browsing() as browser:
        assert (await browser.get(path)).status_code in (404, 422)


async def test_get_changes_nothing() -> None:
    # Routes that change something have no GET.
    from chimes.web.dashboard.site import PAGE_ROUTERS

    async with browsing() as browser:
        await browser.rig.create()
        before = await browser.rig.snapshot()
        routes = [route for router in PAGE_ROUTERS for route in router.routes]
        posts = [route.path for route in routes if route.method == "POST"]
        gets = {route.path for route in routes if route.method == "GET"}
        for path in posts:
            if path not in gets and "{" not in path:
                assert (await browser.get(f"/ui{path}")).status_code in (404, 405), path
        for path in PAGES:
            await browser.get(path)
        assert await browser.rig.snapshot() == before


@pytest.mark.parametrize(
    "given",
    ["//evil", "https://evil", r"\/evil", "/ui//\tevil", "/uix", "/ui\\@evil", "/ui/../x", "", "/"],
)
def test_redirects_to_other_sites_are_rejected(given: str) -> None:
    assert local_url(given, "/ui/") == "/ui/"


@pytest.mark.parametrize("given", ["/ui", "/ui/", "/ui/runs?q=status%3Afailed", "/ui/runs/x#L12"])
def test_redirects_within_the_dashboard_are_allowed(given: str) -> None:
    assert local_url(given) == given


async def test_an_error_page_shows_the_request_id() -> None:
    async with browsing() as browser:
        answer = await browser.get("/ui/nowhere", **{"X-Request-Id": "abc-1"})
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")
        assert "abc-1" in answer.text
        part = await browser.get("/ui/nowhere", **{"HX-Request": "true"})
        assert part.headers["hx-retarget"] == "#toasts"
        assert "<html" not in part.text


async def test_api_errors_are_json() -> None:
    async with browsing() as browser:
        answer = await browser.get("/api/v1/nowhere")
        assert answer.headers["content-type"] == "application/problem+json"


async def test_open_mode_rejects_requests_through_a_proxy() -> None:
    # Behind a proxy on this machine every client looks like loopback.
    async with browsing() as browser:
        answer = await browser.get("/ui/", **{"X-Forwarded-For": "203.0.113.9"})
        assert answer.status_code == 403
        assert "chimes user create" in answer.text
        assert "Schedules" not in answer.text


async def test_the_palette_finds_schedules() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="<b>Nightly</b> backup")
        answer = await browser.get("/ui/palette?q=Nightly")
        assert answer.json()["items"] == [
            {"title": "<b>Nightly</b> backup", "address": f"/ui/schedules/{made['id']}"}
        ]


def test_every_template_compiles() -> None:
    templates = environment()
    for name in templates.list_templates():
        templates.get_template(name)


def test_templates_have_no_inline_code_or_styles() -> None:
    # Forbidden by the content security policy, or bypasses escaping.
    forbidden = {
        r"\bhx-on": "compiles code from a string",
        r"\bjs:": "compiles code from a string",
        r"\bon[a-z]+\s*=\s*[\"']": "is inline code",
        r"\sstyle\s*=": "is an inline style",
        r"\|\s*safe\b": "goes around escaping",
        r"<script(?![^>]*(src=|application/json))": "is inline code",
        r"autoescape\s+false": "goes around escaping",
        r"hx-trigger=\"[^\"]*\[": "a trigger filter compiles code",
        r"(?:src|href|action|hx-\w+)=[\"']?(?:https?:)?//": "leads elsewhere",
    }
    for path in (FOLDER / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for pattern, why in forbidden.items():
            assert not re.search(pattern, text), f"{path.name}: {pattern} {why}"


def test_scripts_and_styles_load_nothing_external() -> None:
    for name in ("app.js", "chart.js", "app.css"):
        text = (FOLDER / "static" / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|\beval\(|new Function|@import|innerHTML\s*=", text), name


def test_every_post_form_has_a_csrf_token() -> None:
    for path in (FOLDER / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for form in re.findall(r"<form[^>]*method=\"post\".*?</form>", text, re.DOTALL):
            assert "form_token(" in form or 'name="csrf"' in form, f"{path.name}: {form[:120]}"


async def _token(browser: Browser) -> str:
    await browser.get("/ui/")
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.page)
    assert found is not None
    return found[1]
