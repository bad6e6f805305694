"""Watches a page for external requests, policy violations and script errors."""

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
#: Names, which a catalogue may leave empty, and colours.
_WORDED = (
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
    """Collects complaints; `check` raises them."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self._url = url
        self._allowed: list[str] = []
        self.complaints: list[str] = []
        #: Every address that was asked for, for tests of what a page costs.
        self.asked: list[str] = []
        context.route(lambda address: not self._ours(address), self._refuse)
        context.on("request", self._note)
        context.on("console", self._heard)
        context.on("page", self._new_page)

    def _ours(self, address: str) -> bool:
        return address.startswith((self._url, "data:", "blob:", "about:"))

    def _refuse(self, route: Route) -> None:
        self.complaints.append(f"asked {route.request.url}")
        route.abort()

    def _note(self, request: Request) -> None:
        self.asked.append(request.url)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _new_page(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("dialog", self._dialog)

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def allow(self, *parts: str) -> None:
        """Complaints with one of these in them are meant: a page for an error, say."""
        self._allowed.extend(parts)

    def check(self) -> None:
        left = [each for each in self.complaints if not any(part in each for part in self._allowed)]
        assert not left, "\n".join(left)


@cache
def _axe() -> str:
    return _AXE.read_text(encoding="utf-8")


def accessible(shown: Page | Locator) -> None:
    """Nothing serious for axe: on the page, or in what has come up on a page that
    was looked at before."""
    _ask_axe(shown, {"type": "tag", "values": list(_RULES)})


def for_everybody(page: Page, language: str) -> None:
    """What holds for each page in each look. The first two looks have both
    themes and both widths; what a third language could break are words, and how they stand out."""
    if language == "zh":
        _ask_axe(page, {"type": "rule", "values": list(_WORDED)})
    else:
        accessible(page)
    fits(page)
    zoned(page)


def _ask_axe(shown: Page | Locator, rules: dict[str, object]) -> None:
    page = shown if isinstance(shown, Page) else shown.page
    page.evaluate(_axe())
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
    """No sideways scroll of the page."""
    wide, room = page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= room, f"{wide} px of content in {room}"


def zoned(page: Page) -> None:
    """No `<time>` without the zone it is in."""
    bare = page.evaluate(
        """() => [...document.querySelectorAll("time")]
            .filter((each) => !each.dateTime || !/(UTC|[+-]\\d{2}|[A-Z]{2,5})\\b/.test(
                each.querySelector(".when")?.textContent || ""))
            .map((each) => each.outerHTML)"""
    )
    assert not bare, bare


def fits_longer(page: Page) -> None:
    """Nor with words that are half as long again: other languages need more room."""
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
