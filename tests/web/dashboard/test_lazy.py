"""The dashboard is imported with the first request to it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from tests.web.dashboard.browsing import browsing

HEAVY = ("jinja2", "babel", "argon2", "markdown_it", "chimes.web.dashboard.site")


def test_dashboard_is_not_imported_before_the_first_request() -> None:
    code = (
        "import sys, chimes.runtime.http_server, chimes.runtime.serve\n"
        f"print([each for each in {HEAVY!r} if each in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


async def test_concurrent_first_requests_are_all_answered() -> None:
    async with browsing() as browser:
        answers = await asyncio.gather(*(browser.client.get("/ui/") for _ in range(5)))
        assert [each.status_code for each in answers] == [200] * 5
