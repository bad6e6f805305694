"""Pages of waiting flows, of the simulator and of cron expressions in a browser, in every look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

from playwright.sync_api import expect

from tests.browser.conftest import EACH_LOOK, Site, Visitor
from tests.browser.page_checks import check_page

TOKEN = "an-admin-token-for-tests"
AUTHORIZATION = f"Bearer {TOKEN}"
APP = dedent(
    """
    from chimes import Chimes

    app = Chimes()
    report = app.flow("report")


    @report.step(name="extract")
    async def extract() -> int:
        return 1


    report.wait_for_approval(
        "approve", after=[extract], prompt="Publish the report of October?\\nIt has three pages."
    )


    @report.step(name="publish", after=["approve"])
    async def publish() -> None: ...
    """
)


@EACH_LOOK
def test_pages_fit_and_are_accessible(
    serve: Callable[..., Site],
    visitor: Callable[..., Visitor],
    tmp_path: Path,
    language: str,
    theme: str,
    width: int,
) -> None:
    home = tmp_path / "node0"
    home.mkdir()
    (home / "flow_app.py").write_text(APP)
    site = serve(
        CHIMES_APP="flow_app:app", CHIMES_ADMIN_TOKEN=TOKEN, CHIMES_PUBLIC_CRON_PAGE="true"
    )
    flow = {"kind": "flow", "name": "report"}
    run = site.post("/runs", {"target": flow}, Authorization=AUTHORIZATION)["id"]
    hourly = {
        "name": "hourly",
        "trigger": {"kind": "cron", "expression": "0 * * * *", "timezone": "Asia/Bangkok"},
        "target": flow,
        "policy": {"misfire": "skip"},
    }
    site.post("/schedules", hourly, Authorization=AUTHORIZATION)

    user = visitor(site, language=language, theme=theme, width=width)
    # Invalid expressions are answered with 422.
    user.watch.allow("422")
    # Without an account the page has a frame of its own.
    page = user.open("/ui/cron?expression=0+30+2+*+*+0%238")
    expect(page.get_by_role("alert")).to_be_visible()
    check_page(page, language)
    page = user.open("/ui/cron?expression=30+2+*+*+*&zone=Europe/Berlin")
    expect(page.locator(".fires tbody tr")).to_have_count(10)
    check_page(page, language)

    page = user.open("/ui/login?next=/ui/cron%3Fexpression%3D30%2B2%2B*%2B*%2B*")
    page.locator("#key").fill(TOKEN)
    page.locator("form:has(#key) [type=submit]").click()
    expect(page.locator(".rail, nav").first).to_be_visible()
    expect(page.locator(".fires tbody tr")).to_have_count(10)
    check_page(page, language)

    page = user.open("/ui/simulate?days=8&nodes=1&workers=1&outage=Mon+02:00+3h")
    expect(page.locator("[data-row]").first).to_be_visible()
    expect(page.locator("figure.chart, svg.chart").first).to_be_visible()
    check_page(page, language)

    page = user.open(f"/ui/runs/{run}")
    # The open page shows when the flow waits.
    approve = page.locator("svg.flow a", has_text="approve")
    expect(approve).to_be_visible()
    check_page(page, language)

    page = user.open("/ui/approvals")
    expect(page.locator("[data-row]")).to_have_count(1)
    check_page(page, language)
    page.locator("[data-open-row]").click()
    expect(page.locator("main h1")).to_contain_text("report")
    check_page(page, language)
    page.locator("#decision-reason").fill("the wrong month")
    page.locator("form .danger").click()
    # Back on the page of the run.
    expect(page.locator("[name=from_step]")).to_have_count(1)
    check_page(page, language)
    page = user.open("/ui/approvals?status=all")
    page.locator("[data-open-row]").click()
    expect(page.locator("dl.facts")).to_contain_text("the wrong month")
    check_page(page, language)
