"""Shared parts of charts: escaped SVG elements, title and description, equivalent table."""

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
#: Cache of attribute names; bounded, because the names are literals in this package.
_ATTRIBUTES: dict[str, str] = {}
#: As in `macros/status.html`.
STATUS_SYMBOLS = {
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
#: For marks that stand for several runs: the worst status is shown.
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
    #: `<svg role="img">`, escaped.
    svg: Markup
    #: Builds the table; lazy, because charts in list rows have none.
    make_table: Callable[[], Markup]
    #: Names of the rows as a second image, which stays visible while the chart scrolls sideways.
    names: Markup | None = None

    @property
    def table(self) -> Markup:
        """The same data as a `<table>`, for accessibility."""
        return self.make_table()


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartTexts:
    title: str
    description: str


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """`class_` is class, `_` in a name is a hyphen; attributes with None are omitted."""
    rendered = "".join(
        [
            f' {_ATTRIBUTES.get(name) or _attribute(name)}="{escaped(value)}"'
            for name, value in attributes.items()
            if value is not None
        ]
    )
    inner = "".join([escaped(each) for each in content])
    return safe(f"<{tag}{rendered}>{inner}</{tag}>" if inner else f"<{tag}{rendered}/>")


def safe(text: str) -> Markup:
    """As `Markup(…)`, but faster; every value in it must be `escaped`."""
    return str.__new__(Markup, text)


def _attribute(name: str) -> str:
    return _ATTRIBUTES.setdefault(name, name.rstrip("_").replace("_", "-"))


def escaped(value: object) -> str:
    """Escapes a value unless it is Markup. Numbers first: they are most of thousands of values."""
    if type(value) is float:
        return format_number(value)
    if type(value) is int:
        return str(value)
    if isinstance(value, Markup):
        return value
    text = str(value)
    return escape(text) if _UNSAFE(text) else text


def share_of(x: float, width: float) -> str:
    """A place or a width of a fluid chart, as a share of its width."""
    return f"{format_number(100 * x / width)}%"


def format_number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def svg_image(
    title: str,
    description: str,
    parts: Iterable[Markup],
    *,
    width: float,
    height: float,
    kind: str = "",
    links: bool = False,
    fluid: bool = False,
    stretched: bool = False,
) -> Markup:
    """`links`: the chart contains links, so its role is `group` instead of `img`. `fluid`: it fills
    its container, its horizontal places are shares of the width (`share_of`), and `width` is the
    width below which its container scrolls. `stretched`: it may be scaled in one direction."""
    number = next(_numbers) % 1_000_000
    return element(
        "svg",
        element("title", title, id=f"c{number}t"),
        element("desc", description or title, id=f"c{number}d"),
        *parts,
        class_=f"chart {kind}{' fluid' if fluid else ''}".strip(),
        viewBox=None
        if fluid
        else f"0 0 {format_number(float(width))} {format_number(float(height))}",
        preserveAspectRatio="none" if stretched else None,
        width="100%" if fluid else float(width),
        height=float(height),
        role="group" if links else "img",
        aria_labelledby=f"c{number}t",
        aria_describedby=f"c{number}d",
    )


def chart(
    texts: ChartTexts,
    parts: Iterable[Markup],
    heads: Sequence[str],
    rows: Callable[[], Iterable[Sequence[object]]],
    *,
    width: float,
    height: float,
    kind: str,
    links: bool = False,
    fluid: bool = False,
    stretched: bool = False,
    names: Markup | None = None,
) -> Chart:
    """`heads` and `rows` are the table."""
    return Chart(
        title=texts.title,
        svg=svg_image(
            texts.title,
            texts.description,
            parts,
            width=width,
            height=height,
            kind=kind,
            links=links,
            fluid=fluid,
            stretched=stretched,
        ),
        names=names,
        make_table=lambda: table(texts.title, heads, rows()),
    )


def empty_chart(title: str, heads: Sequence[str]) -> Chart:
    return Chart(title=title, svg=Markup(""), make_table=lambda: table(title, heads, ()))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    head = element("tr", *(element("th", each, scope="col") for each in heads))
    body = "".join(
        f"<tr>{''.join([f'<td>{escaped(cell)}</td>' for cell in row])}</tr>" for row in rows
    )
    return element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", head),
        Markup(f"<tbody>{body}</tbody>"),  # noqa: S704 - every cell in it was escaped above
    )


def worst_status(states: Iterable[RunStatus]) -> RunStatus:
    found = frozenset(states)
    return next(each for each in WORST_FIRST if each in found)
