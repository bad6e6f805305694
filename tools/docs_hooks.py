"""Hooks of the documentation site (`mkdocs.yml`).

Documents at the root of the repository become pages, links to files outside of `docs` become pages
or plain text, and the site gets `llms.txt` and the Markdown source of every page.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: Pages of the site that are documents at the root of the repository.
ROOT_PAGES = {
    "ARCHITECTURE.md": "about/architecture.md",
    "SECURITY.md": "about/security.md",
    "CHANGELOG.md": "about/changelog.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "bench/README.md": "about/benchmark.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
#: The first line of a list or a table.
_LIST_OR_TABLE = re.compile(r"(?:[-*+]|1\.) |\|")
_FENCE = re.compile(r"(```.*?```)", re.DOTALL)

_navigation: Navigation | None = None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    about = next(each["About"] for each in config.nav or [] if "About" in each)
    for source, page in ROOT_PAGES.items():
        title = "Benchmark" if source.startswith("bench") else Path(source).stem.capitalize()
        about.append({title: page})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    found = []
    for position, part in enumerate(_FENCE.split(markdown)):
        if position % 2:
            found.append(part)
        else:
            found.append(with_blank_lines(_with_links(part, page), after_block=position > 0))
    return "".join(found)


def with_blank_lines(text: str, *, after_block: bool = False) -> str:
    """A blank line before each list and table. Other readers of Markdown need none after a
    paragraph or a block of code, but the site would show the list as part of the paragraph."""
    first, *lines = text.split("\n")
    found, previous, inside = [first], "block" if after_block else first, False
    for line in lines:
        if not line.strip():
            inside = False
        elif _LIST_OR_TABLE.match(line) and not inside:
            if previous.strip():
                found.append("")
            inside = True
        found.append(line)
        previous = line
    return "\n".join(found)


def _with_links(text: str, page: Page) -> str:
    here = page.file.src_uri
    source = next((name for name, uri in ROOT_PAGES.items() if uri == here), f"docs/{here}")

    def rewritten(found: re.Match[str]) -> str:
        mark, label, target, anchor = found.groups(default="")
        if re.match(r"[a-z]+:|/", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        uri = ROOT_PAGES.get(path) or path.removeprefix("docs/")
        if path.startswith("docs/") or path in ROOT_PAGES:
            link = posixpath.relpath(uri, posixpath.dirname(here) or ".")
            return f"{mark}[{label}]({link}{anchor})"
        if not (ROOT / path).exists():
            return found[0]  # a broken link, which the strict build reports
        # A file that is not part of the site.
        return f"`{path}`" if label.strip("`") == path else f"{label} (`{path}`)"

    return _LINK.sub(rewritten, text)


def on_nav(nav: Navigation, **_: Any) -> Navigation:
    global _navigation
    _navigation = nav
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    assert _navigation is not None
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for item in _navigation.items:
        lines += _entries(item, 2)
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for page in _navigation.pages:
        target = site / page.file.src_uri
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page.markdown or "", encoding="utf-8")


def _entries(item: Any, level: int) -> list[str]:
    if isinstance(item, Page):
        return [f"- [{item.title}]({item.file.src_uri})"]
    if isinstance(item, Section):
        lines = ["", f"{'#' * level} {item.title}", ""]
        for child in item.children:
            lines += _entries(child, level + 1)
        return lines
    return []
