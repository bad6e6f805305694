"""Page checks: accessibility, width, zones of times, external requests and script errors."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    Route,
)

_AXE = Path(__file__).parent / "vendor" / "axe.js"
_SERIOUS = ("serious", "critical")
_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
#: Rules that depend on translated texts or on colours.
_LANGUAGE_DEPENDENT_RULES = (
    "aria-command-name",
    "aria-dialog-name",
    "aria-input-field-name",
    "aria-toggle-field-name",
    "button-name",
    "color-contrast",
    "document-title",
    "empty-heading",
    "empty-table-header",
    "html-has-lang",
    "html-lang-valid",
    "image-alt",
    "input-button-name",
    "label",
    "link-name",
    "select-name",
    "summary-name",
    "svg-img-alt",
    "valid-lang",
)


class Watch:
    """Collects external requests, console and script errors and dialogs; `check` raises them."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self._urls = [url]
        self._allowed: list[str] = []
        self.complaints: list[str] = []
        #: URLs of all requests, for tests of the cost of a page.
        self.requested_urls: list[str] = []
        context.route(lambda address: not self._is_own_url(address), self._abort)
        context.on("request", self._record_request)
        context.on("console", self._on_console)
        context.on("page", self._new_page)

    def _is_own_url(self, address: str) -> bool:
        return address.startswith((*self._urls, "data:", "blob:", "about:"))

    def visit(self, url: str) -> None:
        """Lets pages lead to another site that the test runs."""
        self._urls.append(url)

    def _abort(self, route: Route) -> None:
        self.complaints.append(f"external request {route.request.url}")
        route.abort()

    def _record_request(self, request: Request) -> None:
        self.requested_urls.append(request.url)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _new_page(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("dialog", self._dialog)

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def allow(self, *parts: str) -> None:
        """Ignores complaints that contain one of these texts."""
        self._allowed.extend(parts)

    def check(self) -> None:
        left = [each for each in self.complaints if not any(part in each for part in self._allowed)]
        assert not left, "\n".join(left)


@cache
def _axe() -> str:
    return _AXE.read_text(encoding="utf-8")


def accessible(shown: Page | Locator) -> None:
    """axe finds no serious violation on the page, or in one element of it."""
    _run_axe(shown, {"type": "tag", "values": list(_RULES)})


def check_page(page: Page, language: str) -> None:
    """Accessibility, width and times. For Chinese only the rules that depend on the language: the
    other languages cover both themes and both widths."""
    if language == "zh":
        _run_axe(page, {"type": "rule", "values": list(_LANGUAGE_DEPENDENT_RULES)})
    else:
        accessible(page)
    fits(page)
    has_zoned_times(page)


def _run_axe(shown: Page | Locator, rules: dict[str, object]) -> None:
    page = shown if isinstance(shown, Page) else shown.page
    # After a navigation elements are visible before the page's style sheets have been applied.
    page.wait_for_load_state("load")
    page.evaluate(_axe())
    # axe takes what lies below a sticky bar for too small; it can be scrolled.
    sticky = page.locator(".save-line")
    if sticky.count():
        sticky.evaluate("(bar) => { bar.style.position = 'static'; }")
    root = shown.locator(":root") if isinstance(shown, Page) else shown
    found: list[dict[str, Any]] = root.evaluate(
        """async (root, options) => (await axe.run(
            root === document.documentElement ? document : root, options)).violations""",
        {"runOnly": rules, "resultTypes": ["violations"]},
    )
    serious = [
        {
            "rule": each["id"],
            "help": each["help"],
            "where": [
                {"html": node["html"][:300], "why": node["failureSummary"][:500]}
                for node in each["nodes"][:3]
            ],
        }
        for each in found
        if each["impact"] in _SERIOUS
    ]
    assert not serious, json.dumps(serious, indent=1, ensure_ascii=False)


def fits(page: Page) -> None:
    """The page does not scroll horizontally."""
    page.wait_for_load_state("load")
    wide, room = page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= room, f"{wide} px of content in {room}"


def has_zoned_times(page: Page) -> None:
    """Every `<time>` shows its zone."""
    bare = page.evaluate(
        """() => [...document.querySelectorAll("time")]
            .filter((each) => !each.dateTime || !/(UTC|[+-]\\d{2}|[A-Z]{2,5})\\b/.test(
                each.querySelector(".when")?.textContent || ""))
            .map((each) => each.outerHTML)"""
    )
    assert not bare, bare


def fits_with_longer_texts(page: Page) -> None:
    """The page fits with texts that are 50 % longer, as in other languages."""
    page.evaluate(
        """() => {
            const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const found = [];
            while (walk.nextNode()) found.push(walk.currentNode);
            for (const node of found) {
                const text = node.textContent.trim();
                const fixed = node.parentElement.closest("script, svg, code, pre, kbd, time");
                if (!text || fixed) continue;
                node.textContent += " " + text.slice(0, Math.ceil(text.length * 0.5));
            }
        }"""
    )
    fits(page)
