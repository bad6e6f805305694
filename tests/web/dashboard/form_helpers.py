"""Fills in and submits forms like a browser without scripts."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx2

from tests.web.dashboard.browsing import HOST, Browser


class Fields(HTMLParser):
    """The fields of the form with this id, as a browser would send them."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form
        self._inside = False
        self._text: list[str] | None = None
        self._name = ""
        self._chosen: str | None = None
        self._first: str | None = None
        self.pairs: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = found.get("id") == self._form
        if not self._inside:
            return
        if tag == "input" and "name" in found:
            if found.get("type") in ("checkbox", "radio"):
                if "checked" in found:
                    self.pairs.append((found["name"], found.get("value", "on")))
            else:
                self.pairs.append((found["name"], found.get("value", "")))
        elif tag == "textarea":
            self._name, self._text = found["name"], []
        elif tag == "select":
            self._name, self._chosen, self._first = found["name"], None, None
        elif tag == "option" and self._name and self._text is None:
            self._first = found.get("value", "") if self._first is None else self._first
            if "selected" in found:
                self._chosen = found.get("value", "")

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        elif tag == "textarea" and self._text is not None:
            self.pairs.append((self._name, "".join(self._text).removeprefix("\n")))
            self._name, self._text = "", None
        elif tag == "select" and self._name:
            chosen = self._first if self._chosen is None else self._chosen
            self.pairs.append((self._name, chosen or ""))
            self._name = ""


def fields_on(page: str, form: str = "editor") -> dict[str, str | list[str]]:
    parser = Fields(form)
    parser.feed(page)
    found: dict[str, str | list[str]] = {}
    for name, value in parser.pairs:
        before = found.get(name)
        if before is None:
            found[name] = value
        else:
            found[name] = [*(before if isinstance(before, list) else [before]), value]
    return found


async def fill(
    browser: Browser, action: str, *, without: tuple[str, ...] = (), **fields: str | list[str]
) -> httpx2.Response:
    """Sends the form of the last page with these fields changed. `do_` is the button."""
    sent = {name: value for name, value in fields_on(browser.page).items() if name not in without}
    sent |= {name.replace("__", "."): value for name, value in fields.items() if name != "do_"}
    sent["do"] = fields.get("do_", "save")
    answer = await browser.client.post(
        action, data=sent, headers={"Origin": HOST, "Sec-Fetch-Site": "same-origin"}
    )
    browser.page = answer.text
    return answer
