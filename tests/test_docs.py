"""The documentation site builds without a warning, works offline and is up to date."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from chimes.cli.command import cli

ROOT = Path(__file__).parents[1]
#: Blocks in which a line is a command.
SHELL = ("", "sh", "text")


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


def test_lists_and_tables_are_no_part_of_a_paragraph(site: Path) -> None:
    wrong = []
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        paragraphs = re.findall(r"<p>(.*?)</p>", text, re.DOTALL)
        if any(re.search(r"^(?:[-*] |1\. |\|-{3})", each, re.MULTILINE) for each in paragraphs):
            wrong.append(str(page.relative_to(site)))
    assert wrong == []


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


def test_commands_in_the_pages_exist_with_their_options() -> None:
    """Lines of shell blocks and code in the text that begin with `chimes`."""
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
    wrong, checked = [], 0
    for page in pages:
        for text in chimes_commands(page.read_text()):
            checked += 1
            if (problem := unknown_part(text)) is not None:
                wrong.append(f"{page.relative_to(ROOT)}: {text}: {problem}")
    assert checked > 500
    assert wrong == []
    assert unknown_part("ls --no-such") == "--no-such"
    assert unknown_part("monitor no-such") == "no-such"


def chimes_commands(page: str) -> Iterator[str]:
    """What follows `chimes`, up to a pipe, a comment or another command."""
    kind: str | None = None
    for line in page.splitlines():
        if (fence := re.match(r"\s*```(\w*)", line)) is not None:
            kind = fence[1] if kind is None else None
            continue
        shell = re.sub(r"^\s*(?:\$ )?(?:(?:\w+=\S*|sudo|env) )*", "", line)
        if kind is None:
            found = re.findall(r"`(?:\.venv/bin/)?chimes ([^`]+)`", line)
        else:
            found = re.findall(r"^(?:\.venv/bin/)?chimes (.+)", shell) if kind in SHELL else []
        for text in found:
            yield re.split(r"\s(?:#|\||>|2>|&&|;)", text)[0].rstrip("\\ ")


def unknown_part(text: str) -> str | None:
    """The first word that is neither a command nor an option of it."""
    command: click.Command = cli
    context = click.Context(command)
    words = [word.strip("[],()") for word in lexed(text)]
    for position, word in enumerate(words):
        if word in ("", "--"):
            return None
        if word.startswith("--"):
            known = {name for each in command.get_params(context) for name in each.opts}
            known |= {name for each in command.get_params(context) for name in each.secondary_opts}
            if word.partition("=")[0] not in known:
                return word
        elif isinstance(command, click.Group):
            if position and words[position - 1] == "--lang":
                continue
            for name in word.split("|"):
                found = command.get_command(context, name)
                if found is None:
                    return None if name == "…" else name
            command, context = found, click.Context(found, parent=context)
    return None


def lexed(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # The quotation goes on in the next line.
        return text.split()


def test_the_index_of_guides_lists_each_of_them_once() -> None:
    folder = ROOT / "docs" / "guides"
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (folder / "index.md").read_text())
    assert sorted(linked) == sorted(p.name for p in folder.glob("*.md") if p.name != "index.md")
