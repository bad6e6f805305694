"""Takes the screenshots of the README: a browser visits a node with demo data.

.venv/bin/python tools/pictures.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import quote, urlencode

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = (
    os.environ.get("CHIMES_CHROMIUM")
    or shutil.which("chromium-headless-shell")
    or "/usr/bin/chromium"
)
WORDS = "ทุกวันทำงาน 09:00 ส่งสรุปยอดขาย"


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        node = subprocess.Popen(
            [Path(sys.executable).with_name("chimes"), "serve", "--demo"],
            cwd=home,
            env=os.environ | {"CHIMES_PORT": "0", "CHIMES_LANG": "en"},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            _take(_address(node))
        finally:
            node.send_signal(signal.SIGTERM)
            node.wait(30)


def _address(node: subprocess.Popen[str]) -> str:
    assert node.stderr is not None
    for line in node.stderr:
        if found := re.search(r"(http://[\d.:]+)/ui/", line):
            return found[1]
    raise SystemExit("the node did not start")


def _take(url: str) -> None:
    with urllib.request.urlopen(f"{url}/api/v1/runs?status=failed&limit=1") as answer:
        failed = json.load(answer)["items"][0]["id"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shot = _Camera(browser, url)
        shot("today-light", "/ui/")
        shot("today-dark", "/ui/", theme="dark")
        shot("schedules", "/ui/schedules", height=900)
        shot("run", f"/ui/runs/{failed}", height=900)
        shot("editor", f"/ui/schedules/new?words={quote(WORDS)}", height=900)
        shot("phone", "/ui/", language="th", theme="dark", width=375, height=812)
        browser.close()


class _Camera:
    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url

    def __call__(
        self,
        name: str,
        path: str,
        *,
        language: str = "en",
        theme: str = "light",
        width: int = 1280,
        height: int = 1000,
    ) -> None:
        context = self._browser.new_context(
            base_url=self._url,
            viewport={"width": width, "height": height},
            timezone_id="Asia/Bangkok",
        )
        look = urlencode({"language": language, "theme": theme, "seen_zone": "Asia/Bangkok"})
        context.add_cookies([{"name": "chimes_look", "value": look, "url": self._url}])
        page = context.new_page()
        page.goto(path)
        page.wait_for_load_state("load")
        page.screenshot(path=str(PICTURES / f"{name}.png"))
        context.close()


if __name__ == "__main__":
    main()
