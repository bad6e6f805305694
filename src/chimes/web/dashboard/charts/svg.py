"""What all pictures share: elements, escaped; a title and a description; the table beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

from markupsafe import Markup

from chimes.model.run import RunStatus

_numbers = count(1)
_UNSAFE = re.compile("[&<>\"']").search
#: Names as they are written; only ever those that are in this package's calls of `element`.
_ATTRIBUTES: dict[str, str] = {}
#: As in `macros/status.html`.
SHAPES = {
    RunStatus.QUEUED: "⋯",
    RunStatus.RUNNING: "▶",
    RunStatus.SUCCEEDED: "✓",
    RunStatus.FAILED: "✕",
    RunStatus.TIMEOUT: "⏱",
    RunStatus.CANCELED: "⊘",
    RunStatus.SKIPPED: "⤼",
    RunStatus.MISSED: "⌀",
    RunStatus.UNKNOWN: "?",
}
#: From the worst to the best, for pictures in which one mark stands for several runs.
WORST_FIRST = (
    RunStatus.FAILED,
    RunStatus.TIMEOUT,
    RunStatus.UNKNOWN,
    RunStatus.MISSED,
    RunStatus.CANCELED,
    RunStatus.SKIPPED,
    RunStatus.RUNNING,
    RunStatus.QUEUED,
    RunStatus.SUCCEEDED,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    title: str
    #: `<svg role="img">`; safe.
    svg: Markup
    #: Makes the table. In a row of a list there is no room for it, and nobody pays for it.
    twin: Callable[[], Markup]
    #: The names of its rows, as high as it is, which stay in view where it is scrolled sideways.
    names: Markup | None = None

    @property
    def table(self) -> Markup:
        """The same as a `<table>`, for whoever does not look at pictures."""
        return self.twin()


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """`class_` is class, `_` in a name is a hyphen; what is None is left out."""
    named = "".join(
        [
            f' {_ATTRIBUTES.get(name) or _attribute(name)}="{written(value)}"'
            for name, value in attributes.items()
            if value is not None
        ]
    )
    inner = "".join([written(each) for each in content])
    return safe(f"<{tag}{named}>{inner}</{tag}>" if inner else f"<{tag}{named}/>")


def safe(text: str) -> Markup:
    """As `Markup(…)` without its questions; every value in it must be `written`."""
    return str.__new__(Markup, text)


def _attribute(name: str) -> str:
    return _ATTRIBUTES.setdefault(name, name.rstrip("_").replace("_", "-"))


def written(value: object) -> str:
    """Escaped, unless it is safe already. There are thousands of them on a page, and most are
    numbers."""
    if type(value) is float:
        return plain(value)
    if type(value) is int:
        return str(value)
    if isinstance(value, Markup):
        return value
    text = str(value)
    return escape(text) if _UNSAFE(text) else text


def plain(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def picture(
    title: str,
    description: str,
    parts: Iterable[Markup],
    *,
    width: float,
    height: float,
    kind: str = "",
    links: bool = False,
) -> Markup:
    """`links`: there are links in it, so that it is a group of things and not one image."""
    number = next(_numbers) % 1_000_000
    return element(
        "svg",
        element("title", title, id=f"c{number}t"),
        element("desc", description or title, id=f"c{number}d"),
        *parts,
        class_=f"chart {kind}".strip(),
        viewBox=f"0 0 {plain(float(width))} {plain(float(height))}",
        width=float(width),
        height=float(height),
        role="group" if links else "img",
        aria_labelledby=f"c{number}t",
        aria_describedby=f"c{number}d",
    )


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    head = element("tr", *(element("th", each, scope="col") for each in heads))
    body = "".join(
        f"<tr>{''.join([f'<td>{written(cell)}</td>' for cell in row])}</tr>" for row in rows
    )
    return element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", head),
        Markup(f"<tbody>{body}</tbody>"),  # noqa: S704 - every cell in it was escaped above
    )


def worst(states: Iterable[RunStatus]) -> RunStatus:
    found = frozenset(states)
    return next(each for each in WORST_FIRST if each in found)
