"""Markdown as plain text, and text split into parts for a channel (pure).

Link targets are written out, so that a reader sees every address before following it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from textwrap import indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode


MAX_NESTING = 20
#: Longer texts, and texts with more markup, are not parsed: untrusted output must not cost seconds.
MAX_PARSED = 50_000
MAX_MARKERS = 3000
_MARKS = re.compile(r"[\n\[\]!*_`~<>|&#\\]")
_LINKED = ("http://", "https://", "mailto:")
#: Control characters and bidirectional overrides, which can disguise a text.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def sanitize(text: str) -> str:
    """The text without control characters and bidirectional overrides."""
    return _UNSAFE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str) -> str:
    return " ".join(sanitize(text).split())


@lru_cache(maxsize=8)
def plain(markdown: str) -> str:
    """Markdown as plain text. Cached: the same text goes to several recipients and attempts."""
    text = sanitize(markdown)
    return (_parsed(text) if readable_markdown(text) else "") or text.strip()


def readable_markdown(text: str) -> bool:
    """Whether the text is small enough to be parsed."""
    return len(text) <= MAX_PARSED and len(_MARKS.findall(text)) <= MAX_MARKERS


def _parsed(text: str) -> str:
    """Empty if it is nested so deeply that the parser would drop some of it."""
    from markdown_it.tree import SyntaxTreeNode

    try:
        tokens = _parser().parse(text)
        if any(token.level >= MAX_NESTING - 1 for token in tokens):
            return ""
        return _block(SyntaxTreeNode(tokens)).strip()
    except RecursionError:
        return ""


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # HTML is not interpreted.
    options = {"html": False, "maxNesting": MAX_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "root":
            return "\n\n".join(_block(each) for each in node.children)
        case "fence" | "code_block":
            return node.content.rstrip("\n")
        case "bullet_list":
            return "\n".join(_item(each, "• ") for each in node.children)
        case "ordered_list":
            first = int(node.attrs.get("start", 1))
            return "\n".join(
                _item(each, f"{first + place}. ") for place, each in enumerate(node.children)
            )
        case "blockquote":
            inside = "\n\n".join(_block(each) for each in node.children)
            return indent(inside, "> ", lambda _: True)
        case "hr":
            return "———"
        case "table":
            return "\n".join(_row(row) for part in node.children for row in part.children)
        case _:
            return "".join(_inline(each) for each in node.children)


def _item(node: SyntaxTreeNode, mark: str) -> str:
    inside = "\n".join(_block(each) for each in node.children)
    return mark + inside.replace("\n", "\n" + " " * len(mark))


def _row(node: SyntaxTreeNode) -> str:
    return " | ".join("".join(map(_inline, cell.children)) for cell in node.children)


def _inline(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text" | "code_inline":
            return node.content
        case "softbreak" | "hardbreak":
            return "\n"
        case "image":
            return node.content
        case "link":
            return _link(node)
        case _:
            return "".join(_inline(each) for each in node.children)


def _link(node: SyntaxTreeNode) -> str:
    text = "".join(_inline(each) for each in node.children)
    url = str(node.attrs.get("href", ""))
    if not url.startswith(_LINKED) or text == url:
        return text
    return f"{text} ({url})" if text else url


# --- splitting ------------------------------------------------------------------------------------
_JOINER = "\u200d"
_AM = "\u0e33\u0eb3"  # Thai and Lao AM: one syllable with the consonant before it
_LEADING_VOWELS = "เแโใไເແໂໃໄ"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)
_JAMO = range(0x1160, 0x1200)
_BREAKS = (re.compile(r"\n[ \t]*\n"), re.compile(r"\n"), re.compile(r"[ \t\u3000]"))


def utf16_length(text: str) -> int:
    """The length as the Telegram Bot API counts it."""
    return len(text) + sum(char > "\uffff" for char in text)


def split(text: str, limit: int) -> list[str]:
    """Parts of at most `limit` UTF-16 code units: cut between paragraphs, else lines, else words,
    else characters, never inside a grapheme. Only white space around the cuts is lost; a blank
    text has no parts."""
    parts = []
    rest = text.strip()
    while rest:
        end = _fitting(rest, limit)
        cut = len(rest) if end == len(rest) else _cut(rest, end)
        parts.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return parts


def _fitting(text: str, limit: int) -> int:
    """The number of characters that fit into `limit` UTF-16 code units."""
    units = 0
    for place, char in enumerate(text):
        units += 2 if char > "\uffff" else 1
        if units > limit:
            return max(place, 1)
    return len(text)


def _cut(text: str, end: int) -> int:
    # Not before half the limit, to avoid many small parts.
    for pattern in _BREAKS:
        found = [match.start() for match in pattern.finditer(text, end // 2, end + 1)]
        if found:
            return found[-1]
    cut = end
    while cut > end // 2 and _together(text[cut - 1], text[cut]):
        cut -= 1
    return cut if cut > end // 2 else end


def _together(before: str, after: str) -> bool:
    """Whether a cut between the two characters would break a grapheme."""
    return (
        unicodedata.category(after) in ("Mn", "Me", "Mc")
        or after in _AM
        or before in _LEADING_VOWELS
        or _JOINER in (before, after)
        or ord(after) in _SKIN_TONES
        or ord(after) in _JAMO
        or (ord(before) in _FLAGS and ord(after) in _FLAGS)
    )
