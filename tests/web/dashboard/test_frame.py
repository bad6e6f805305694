"""The frame over ASGI: forms, choices, policy, escaping."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

import chimes.web.dashboard
from chimes.web.dashboard.core.assets import assets
from chimes.web.dashboard.core.page_request import local_url
from chimes.web.dashboard.core.templates import environment
from tests.web.dashboard.browsing import Browser, browsing

FOLDER = Path(chimes.web.dashboard.__file__).parent
PAGES = ("/ui/", "/ui/schedules", "/ui/schedules/new", "/ui/runs", "/ui/inbox", "/ui/system")


async def test_the_root_sends_browsers_to_the_dashboard_and_programs_to_the_api() -> None:
    async with browsing() as browser:
        assert (await browser.get("/")).headers["location"] == "/ui/"
        answer = await browser.get("/", Accept="*/*")
        assert answer.headers["location"] == "/docs"


async def test_every_page_has_the_whole_policy() -> None:
    # S48
    async with browsing() as browser:
        for path in (*PAGES, "/ui/nowhere", "/ui/static/x/nothing.js"):
            answer = await browser.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            assert answer.headers["cache-control"] == "no-store"


async def test_assets_are_kept_for_a_year_and_packed() -> None:
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
async def test_nothing_but_assets_is_served(name: str) -> None:
    # S54
    async with browsing() as browser:
        assert (await browser.get(f"/ui/static/x/{name}")).status_code == 404


def test_the_frame_is_small() -> None:
    # UX: about 26 KB of script on a page without charts
    sizes = {name: len(asset.compressed) for name, asset in assets().items()}
    assert sizes["app.js"] + sizes["vendor/htmx.js"] < 26_000
    assert sizes["app.css"] < 8_000


async def test_choices_are_kept_and_come_back() -> None:
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


async def test_a_choice_that_there_is_not_is_refused() -> None:
    async with browsing() as browser:
        for wrong in ({"theme": "pink"}, {"zone": "Mars/Base"}, {"language": "xx"}):
            answer = await browser.send("/ui/look", on="/ui/", **wrong)
            assert answer.status_code == 422
            assert "set-cookie" not in answer.headers


async def test_a_form_needs_its_token_and_our_own_page() -> None:
    # S49
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


async def test_over_https_cookies_are_secure_and_for_this_host_only() -> None:
    # RELIABILITY 8
    async with browsing() as browser:
        browser.client.base_url = "https://localhost:7100"  # type: ignore[assignment]
        cookie = (await browser.get("/ui/")).headers["set-cookie"]
        assert cookie.startswith("__Host-chimes_guard=")
        assert "Secure" in cookie
        assert "HttpOnly" in cookie
        assert "Path=/;" in cookie
        assert "Domain" not in cookie


@pytest.mark.parametrize("path", ["/ui/runs?q=%00", "/ui/runs?%00=1", "/ui/schedules/a%00b"])
async def test_a_nul_never_reaches_a_store(path: str) -> None:
    # S15
    async with browsing() as browser:
        assert (await browser.get(path)).status_code in (404, 422)


async def test_a_get_changes_nothing() -> None:
    # S49: a route that changes something has no GET
    from chimes.web.dashboard.site import ALL_PAGES

    async with browsing() as browser:
        await browser.rig.create()
        before = await browser.rig.snapshot()
        posts = [page.path for pages in ALL_PAGES for page in pages.listed if page.method == "POST"]
        gets = {page.path for pages in ALL_PAGES for page in pages.listed if page.method == "GET"}
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
def test_nobody_is_sent_elsewhere(given: str) -> None:
    # S52
    assert local_url(given, "/ui/") == "/ui/"


@pytest.mark.parametrize("given", ["/ui", "/ui/", "/ui/runs?q=status%3Afailed", "/ui/runs/x#L12"])
def test_pages_of_ours_are_kept(given: str) -> None:
    assert local_url(given) == given


async def test_an_error_is_a_page_with_its_request_id() -> None:
    async with browsing() as browser:
        answer = await browser.get("/ui/nowhere", **{"X-Request-Id": "abc-1"})
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")
        assert "abc-1" in answer.text
        part = await browser.get("/ui/nowhere", **{"HX-Request": "true"})
        assert part.headers["hx-retarget"] == "#toasts"
        assert "<html" not in part.text


async def test_the_api_never_answers_with_a_page() -> None:
    async with browsing() as browser:
        answer = await browser.get("/api/v1/nowhere")
        assert answer.headers["content-type"] == "application/problem+json"


async def test_behind_a_proxy_open_mode_is_closed() -> None:
    # RELIABILITY 8: a proxy on this machine makes the whole world look like loopback
    async with browsing() as browser:
        answer = await browser.get("/ui/", **{"X-Forwarded-For": "203.0.113.9"})
        assert answer.status_code == 403
        assert "chimes user create" in answer.text
        assert "Schedules" not in answer.text


async def test_the_palette_finds_schedules_of_its_reader() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="<b>Nightly</b> backup")
        answer = await browser.get("/ui/palette?q=Nightly")
        assert answer.json()["items"] == [
            {"title": "<b>Nightly</b> backup", "address": f"/ui/schedules/{made['id']}"}
        ]


def test_every_template_can_be_read() -> None:
    templates = environment()
    for name in templates.list_templates():
        templates.get_template(name)


def test_templates_have_no_code_and_no_styles_of_their_own() -> None:
    # UX 2.4: what the policy forbids, and what would get around escaping
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


def test_scripts_and_styles_ask_nobody() -> None:
    for name in ("app.js", "chart.js", "app.css"):
        text = (FOLDER / "static" / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|\beval\(|new Function|@import|innerHTML\s*=", text), name


def test_every_form_that_posts_has_its_guard() -> None:
    for path in (FOLDER / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for form in re.findall(r"<form[^>]*method=\"post\".*?</form>", text, re.DOTALL):
            assert "guard(" in form or 'name="csrf"' in form, f"{path.name}: {form[:120]}"


async def test_a_page_is_quick() -> None:
    """Not a benchmark: catches a page that asks the store for everything."""
    async with browsing() as browser:
        await browser.get("/ui/")
        answer = await browser.get("/ui/")
        assert answer.elapsed < timedelta(seconds=2)


async def _token(browser: Browser) -> str:
    await browser.get("/ui/")
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.page)
    assert found is not None
    return found[1]
