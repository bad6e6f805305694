"""The documentation site builds without a warning, works offline and is up to date."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    # Broken links and anchors, and pages that are missing in the navigation, are warnings.
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 60
    loaded = re.compile(r'<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)="(?:https?:)?//')
    assert [page.name for page in pages if loaded.search(page.read_text())] == []


def test_vendored_files_are_unchanged() -> None:
    folder = ROOT / "docs" / "assets"
    listed = tomllib.loads((folder / "VENDOR.toml").read_text())
    for each in listed.values():
        assert hashlib.sha256((folder / each["file"]).read_bytes()).hexdigest() == each["sha256"]
    scripts = {path.name for path in folder.glob("*.js")}
    assert scripts == {each["file"] for each in listed.values()}


def test_llms_txt_lists_every_page_as_markdown(site: Path) -> None:
    listed = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text())
    assert len(listed) == len(set(listed))
    assert {"tutorial/first-schedule.md", "reference/cli.md", "about/security.md"} <= set(listed)
    assert [name for name in listed if not (site / name).read_text().strip()] == []


def test_generated_references_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "tools/reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
