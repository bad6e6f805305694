"""Markdown that somebody else's program wrote, as HTML that can do nothing: no HTML of its own, no
pictures that would be fetched, links only to where people go, no styles (S47, S74). A line is a
line, as in every other place where the text is sent to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from chimes.delivery.plain_text import DEEPEST, readable_markdown, shown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

#: Our own pages of runs are what digests lead to.
_LINKED = ("http://", "https://", "mailto:", "/ui/runs/")
#: A message has its place in a page: its first heading is not the page's.
_HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}


@lru_cache(maxsize=64)
def safe_html(markdown: str) -> Markup:
    """What would take too long to read, or is nested too deep, stays the text that it is."""
    text = shown(markdown)
    if not readable_markdown(text):
        return _as_it_is(text)
    parser = _parser()
    try:
        tokens = parser.parse(text)
        if any(token.level >= DEEPEST - 1 for token in tokens):
            return _as_it_is(text)
        _tame(tokens)
        html = parser.renderer.render(tokens, parser.options, {})
    except RecursionError:
        return _as_it_is(text)
    return Markup(html)  # noqa: S704 - written by the parser, which escapes and knows no HTML


def _as_it_is(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(text)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": DEEPEST})
    parser.enable(["table", "strikethrough"]).disable("image")
    # Replaced as the library's documents say it is done.
    setattr(parser, "validateLink", _leads_somewhere)  # noqa: B010
    return parser


def _leads_somewhere(url: str) -> bool:
    return url.strip().lower().startswith(_LINKED)


def _tame(tokens: Sequence[Token]) -> None:
    for token in tokens:
        # The alignment of a table would be an inline style, which no page of ours has.
        token.attrs.pop("style", None)
        if token.type in ("heading_open", "heading_close"):
            token.tag = _HEADINGS[token.tag]
        elif token.type == "link_open":
            token.attrs |= {"rel": "noopener noreferrer nofollow", "target": "_blank"}
        if token.children:
            _tame(token.children)
