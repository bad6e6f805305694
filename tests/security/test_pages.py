"""Pages in frames, links that open windows, and names of downloads."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.run import LogEntry
from chimes.store.port import RunLog
from chimes.web import dashboard
from tests.builders import NOW, a_run
from tests.web.dashboard.browsing import browsing

TEMPLATES = Path(dashboard.__file__).parent
_ANCHOR = re.compile(r"<(?:a|form|area)\b[^>]*\starget=[^>]*>", re.DOTALL)


def test_links_that_open_a_window_give_it_no_access_to_the_page() -> None:
    found = [
        (file.name, link)
        for file in TEMPLATES.rglob("*.html")
        for link in _ANCHOR.findall(file.read_text())
    ]
    assert len(found) >= 3
    assert [each for each in found if "noopener" not in each[1]] == []


async def test_no_page_can_be_framed() -> None:
    async with browsing() as browser:
        schedule = (await browser.rig.create())["id"]
        for path in (
            *("/ui/", "/ui/login", "/ui/schedules", f"/ui/schedules/{schedule}", "/ui/runs"),
            *("/ui/inbox", "/ui/system", "/ui/nowhere", "/ui/runs/export.csv", "/docs"),
        ):
            headers = (await browser.get(path)).headers
            assert headers["x-frame-options"] == "DENY", path
            assert "frame-ancestors 'none'" in headers["content-security-policy"], path


async def test_the_name_of_a_download_has_no_characters_of_headers_or_paths() -> None:
    run_id = RunId('x";evil=..ก')
    async with browsing() as browser:
        lines = (LogEntry(at=NOW, message="<script>", number=1),)
        await browser.rig.store.load(
            [replace(a_run(), id=run_id), RunLog(run_id=run_id, entries=lines)]
        )
        file = await browser.get(f"/ui/runs/{quote(run_id, safe='')}/log.txt")
    assert file.status_code == 200
    assert file.headers["content-disposition"] == 'attachment; filename="run-xevil.log"'
    assert file.headers["content-type"] == "text/plain; charset=utf-8"
    assert file.headers["x-content-type-options"] == "nosniff"
