"""Sign-in in a browser, and live updates across nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from chimes.clock import SystemClock
from tests.browser.conftest import PHONE, WITH_AND_WITHOUT_SCRIPTS, Site, Visitor
from tests.browser.page_checks import accessible, fits
from tests.web.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider

TOKEN = "an-admin-token-for-tests"
PASSWORD = "correct horse battery"
_COUNT_LINES = """each => {
  const text = document.createRange();
  text.selectNodeContents(each);
  return new Set([...text.getClientRects()].map((box) => box.top)).size;
}"""


@WITH_AND_WITHOUT_SCRIPTS
def test_sign_in_and_out_through_an_identity_provider(
    serve: Callable[..., Site], visitor: Callable[..., Visitor], scripts: bool
) -> None:
    with Provider(SystemClock().now) as provider:
        provider.account["groups"] = ["platform"]
        site = serve(
            CHIMES_OIDC_ISSUER=provider.issuer,
            CHIMES_OIDC_CLIENT_ID=CLIENT_ID,
            CHIMES_OIDC_CLIENT_SECRET=CLIENT_SECRET,
            CHIMES_OIDC_NAME="Example ID",
            CHIMES_SSO_ROLES="platform=admin",
        )
        user = visitor(site, width=PHONE, scripts=scripts)
        user.watch.visit(provider.issuer)
        page = user.open("/ui/inbox")
        if scripts:
            accessible(page)
        fits(page)
        page.get_by_role("link", name="Sign in with Example ID").click()
        page.wait_for_url("**/ui/inbox")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        provider.requests.clear()
        page.locator("summary[aria-label='Account']").click()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/ui/login")
        assert "/logout" in provider.requests


@WITH_AND_WITHOUT_SCRIPTS
def test_sign_in_with_password_and_sign_out(
    serve: Callable[..., Site], visitor: Callable[..., Visitor], scripts: bool
) -> None:
    site = serve(CHIMES_ADMIN_TOKEN=TOKEN)
    site.post(
        "/users",
        {"name": "anna", "password": PASSWORD, "role": "admin"},
        Authorization=f"Bearer {TOKEN}",
    )
    user = visitor(site, width=PHONE, scripts=scripts)
    user.watch.allow("401")
    page = user.open("/ui/inbox")
    assert "/ui/login" in page.url
    if scripts:
        accessible(page)
    fits(page)
    page.get_by_label("Name").fill("anna")
    page.get_by_label("Password").fill("a wrong password")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/ui/inbox")
    [cookie] = [each for each in user.context.cookies() if "session" in each["name"]]
    assert cookie["httpOnly"]
    page.locator("summary[aria-label='Account']").click()
    expect(page.locator(".menu-body:visible")).to_contain_text("user:anna")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator(".toast")).to_be_visible()
    page.goto("/ui/inbox")
    assert "/ui/login" in page.url


def test_sign_in_with_an_api_key(
    serve: Callable[..., Site], visitor: Callable[..., Visitor]
) -> None:
    site = serve(CHIMES_ADMIN_TOKEN=TOKEN)
    page = visitor(site).open("/ui/runs")
    page.get_by_label("API key").fill(TOKEN)
    page.get_by_role("button", name="Sign in with an API key").click()
    page.wait_for_url("**/ui/runs")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    # A long user agent does not wrap the address or the button of a session.
    page.goto("/ui/system/access")
    row = page.locator("[aria-labelledby='sessions-title'] tbody tr")
    for each in (row.get_by_text("127.0.0.1"), row.get_by_role("button", name="End")):
        assert each.evaluate(_COUNT_LINES) == 1
    expect(row.locator(".agent")).to_have_attribute("title", re.compile("Mozilla"))
    fits(page)


def test_input_is_kept_when_the_session_ends(
    serve: Callable[..., Site], visitor: Callable[..., Visitor]
) -> None:
    site = serve(CHIMES_ADMIN_TOKEN=TOKEN)
    admin = {"Authorization": f"Bearer {TOKEN}"}
    site.post("/users", {"name": "anna", "password": PASSWORD, "role": "member"}, **admin)
    user = visitor(site)
    user.watch.allow("401")

    def sign_in(page: Page) -> None:
        page.get_by_label("Name").fill("anna")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()

    page = user.open("/ui/schedules/new")
    sign_in(page)
    page.wait_for_url("**/ui/schedules/new")
    dot = page.locator("#live")
    expect(dot).to_have_attribute("data-state", "live")
    answer = site.node.call("PATCH", "/api/v1/users/anna", {"password": PASSWORD}, admin)
    assert answer.status < 300, answer.text
    # Reconnects, as at the next heartbeat.
    dot.evaluate("dot => { dot.stop(); dot.start(); }")
    expect(dot).to_have_attribute("data-state", "signed_out")
    toast = page.locator(".toast", has_text="You are signed out")
    expect(toast.get_by_role("link", name="Sign in")).to_be_visible()
    expect(page.locator("#live-words")).to_have_text("You are signed out")
    page.get_by_label("Name", exact=True).fill("kept")
    kept = page.locator(".toast", has_text="your input is kept")
    expect(kept).to_be_visible()
    expect(toast).to_have_count(0)
    accessible(page)
    page.get_by_label("Name", exact=True).fill("kept to the last")
    expect(kept.locator("input[name='name']")).to_have_value("kept to the last")
    expect(kept).to_have_count(1)
    kept.get_by_role("button", name="Sign in").click()
    expect(page.locator("#ended")).to_be_visible()
    accessible(page)
    sign_in(page)
    expect(page.get_by_role("heading", name="Signed in again")).to_be_visible()
    accessible(page)
    fits(page)
    page.get_by_role("button", name="Send my input").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("kept to the last")
    expect(dot).to_have_attribute("data-state", "live")


def test_change_on_one_node_updates_a_page_of_another(
    serve: Callable[..., Site], visitor: Callable[..., Visitor], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'both.db'}"
    one, other = serve(store), serve(store)
    page = visitor(one).open("/ui/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.evaluate(
        "() => document.addEventListener('schedules.changed', () => { document.title = 'heard'; })"
    )
    body = {
        "name": "report",
        "trigger": {"kind": "cron", "expression": "0 9 * * *"},
        "target": {"kind": "http", "url": "http://127.0.0.1:9/"},
    }
    assert json.dumps(other.post("/schedules", body))
    expect(page).to_have_title("heard")
