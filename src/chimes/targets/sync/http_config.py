"""The `config` of a source with the driver `http_json`; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from chimes.errors import ConfigError, InvalidInput
from chimes.model.http_url import parse_http_url
from chimes.targets.sync.sections import Section
from chimes.wording import say

HTTP_KEYS = (
    "url", "headers", "params", "records", "pagination", "cursor", "output", "timeout", "retries",
    "max_pages", "max_page_bytes",
)  # fmt: skip
STYLES = ("none", "page", "offset", "next", "link")
#: Which keys each style has besides `style`.
STYLE_KEYS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "page": ("parameter", "start", "size_parameter", "size"),
    "offset": ("parameter", "size_parameter", "size"),
    "next": ("path", "parameter"),
    "link": (),
}
MEGABYTE = 1024 * 1024
_SHORTEST, _USUAL = timedelta(milliseconds=100), timedelta(seconds=30)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_TABLE = re.compile(r"[^\W\d]\w{0,62}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pagination:
    style: str = "none"
    #: The query parameter of the page, of the offset, or of the token.
    parameter: str = ""
    #: Number of the first page.
    start: int = 1
    size_parameter: str = ""
    #: Records of a full page; 0: not known. A page with fewer is the last one.
    size: int = 0
    #: Where in the body the next link or token stands.
    path: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    #: Field of a record; its highest value is kept for the next time.
    field: tuple[str, ...]
    #: Query parameter that it is sent in; empty: `{cursor}` in the URL.
    parameter: str = ""
    #: For the first time; None: nothing is sent then.
    start: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    format: Literal["jsonl", "sqlite"]
    #: Relative to the file.
    path: str
    table: str = ""
    #: Fields by which a record replaces the one that is there; empty: it is added.
    key: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpJsonConfig:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Where in the body the list of records stands; empty: the body is the list.
    records: tuple[str, ...] = ()
    pagination: Pagination = field(default_factory=Pagination)
    cursor: Cursor | None = None
    output: Output
    #: Of one request.
    timeout: timedelta = _USUAL
    #: Of one page, after 429, 5xx and lost connections.
    retries: int = 5
    max_pages: int = 10_000
    max_page_bytes: int = 64 * MEGABYTE


def read_http_json(config: Section) -> HttpJsonConfig:
    section = Section(config.plain, config.path, known=HTTP_KEYS)
    cursor = _cursor(section.section("cursor", known=("field", "parameter", "start")))
    return HttpJsonConfig(
        url=_url(section, cursor),
        headers=_headers(section.section("headers")),
        params=_texts(section.section("params")),
        records=_path(section.text("records")),
        pagination=_pagination(section),
        cursor=cursor,
        output=_output(section),
        timeout=section.duration("timeout", least=_SHORTEST, most=timedelta(hours=1)) or _USUAL,
        retries=_number(section, "retries", 5, least=0, most=100),
        max_pages=_number(section, "max_pages", 10_000, least=1, most=10_000_000),
        max_page_bytes=_number(
            section, "max_page_bytes", 64 * MEGABYTE, least=1024, most=1024 * MEGABYTE
        ),
    )


def _number(section: Section, key: str, usual: int, *, least: int, most: int) -> int:
    found = section.number(key, least=least, most=most)
    return usual if found is None else found


def _url(section: Section, cursor: Cursor | None) -> str:
    url = section.need("url", section.text)
    _check_placeholders(section, "url", url, ("source", "collection", "cursor"))
    if "{cursor}" in url and cursor is None:
        raise ConfigError(
            say("{at}: {{cursor}} needs a cursor: {{field: …}}", at=section.at("url")),
            key=section.at("url"),
        )
    try:
        parse_http_url(_PLACEHOLDER.sub("x", url))
    except InvalidInput as error:
        raise ConfigError(
            say("{where}: {problem}", where=section.at("url"), problem=error.message),
            key=section.at("url"),
        ) from None
    return url


def _check_placeholders(section: Section, key: str, text: str, known: tuple[str, ...]) -> None:
    for name in _PLACEHOLDER.findall(text):
        if name not in known:
            raise ConfigError(
                say(
                    "{at}: unknown placeholder {name}; known are {known}",
                    at=section.at(key),
                    name=f"{{{name[:64]}}}",
                    known=", ".join(f"{{{each}}}" for each in known),
                ),
                key=section.at(key),
            )


def _headers(section: Section | None) -> Mapping[str, str]:
    found = _texts(section)
    for name, value in found.items():
        if not _HEADER_NAME.fullmatch(name) or any(ord(char) < 32 for char in value):
            raise ConfigError(
                say(
                    "{path}: {name!r} is no header that can be sent",
                    path=section.path if section else "",
                    name=name[:64],
                )
            )
    return found


def _texts(section: Section | None) -> Mapping[str, str]:
    return {} if section is None else {name: section.scalar(name) or "" for name in section}


def _pagination(config: Section) -> Pagination:
    loose = config.section("pagination")
    if loose is None:
        return Pagination()
    style = loose.need("style", lambda key: loose.choice(key, STYLES))
    section = Section(loose.plain, loose.path, known=("style", *STYLE_KEYS[style]))
    size = section.number("size", least=1, most=1_000_000) or 0
    if size == 0 and "size_parameter" in section:
        raise ConfigError(
            say("{path}: size_parameter needs size", path=section.path), key=section.at("size")
        )
    if style == "offset" and size == 0:
        raise ConfigError(say("{path}: size is missing", path=section.path), key=section.at("size"))
    if style == "next":
        section.need("path", section.text)
    start = section.number("start", least=0, most=1_000_000)
    return Pagination(
        style=style,
        parameter=section.text("parameter") or {"page": "page", "offset": "offset"}.get(style, ""),
        start=1 if start is None else start,
        size_parameter=section.text("size_parameter") or ("limit" if style == "offset" else ""),
        size=size,
        path=_path(section.text("path")),
    )


def _cursor(section: Section | None) -> Cursor | None:
    if section is None:
        return None
    return Cursor(
        field=_path(section.need("field", section.text)),
        parameter=section.text("parameter") or "",
        start=section.scalar("start"),
    )


def _output(config: Section) -> Output:
    section = config.need(
        "output", lambda key: config.section(key, known=("format", "path", "table", "key"))
    )
    style = section.need("format", lambda key: section.choice(key, ("jsonl", "sqlite")))
    path = section.need("path", section.text)
    _check_placeholders(section, "path", path, ("source", "collection"))
    if style == "jsonl":
        for key in ("table", "key"):
            if key in section:
                raise ConfigError(say("{at}: only for format: sqlite", at=section.at(key)))
        return Output(format="jsonl", path=path)
    table = section.text("table") or "{collection}"
    _check_placeholders(section, "table", table, ("source", "collection"))
    if not _TABLE.fullmatch(_PLACEHOLDER.sub("x", table)):
        raise section.wrong("table", say("a name of letters, digits and _"))
    single = section.plain.get("key")
    key_fields = (
        (section.text("key") or "",) if isinstance(single, str) else section.texts("key") or ()
    )
    return Output(format="sqlite", path=path, table=table, key=key_fields)


def _path(text: str | None) -> tuple[str, ...]:
    """`data.items` step by step."""
    return tuple(text.split(".")) if text else ()
