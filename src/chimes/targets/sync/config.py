"""`sources:` of `chimes.yaml`, as frozen values (R4.19)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Collection as Collection_sections
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from chimes.errors import ConfigError, InvalidInput, InvalidTrigger
from chimes.i18n import _
from chimes.model.egress import parse_http_url
from chimes.model.sync import HIGH, MAX_SYNC_TIMEOUT, SYNC_TIMEOUT, Collection, Source, Sources
from chimes.model.validation import check_source_name
from chimes.redaction import is_secret_field
from chimes.triggers import Trigger
from chimes.triggers.decode import ensure_fires
from chimes.triggers.expression import parse_trigger_text
from chimes.triggers.once import Once

# @@ Reading a part of `chimes.yaml` strictly.
#
# Every mistake is a ConfigError that names where it stands, what was expected and, for a wrong
# name, the nearest known one. Values are not repeated unless they are one of a few words: they
# may be secrets. Nothing is imported for mistakes that are not made: this is read in every task,
# too.

T = TypeVar("T")

_NAMES = {
    dict: _("a mapping"),
    list: _("a list"),
    str: _("text"),
    bool: _("true or false"),
    int: _("a number"),
    float: _("a number"),
    type(None): _("nothing"),
}


class Section:
    def __init__(
        self, value: object, path: str, *, known: Collection_sections[str] | None = None
    ) -> None:
        """`known`: the only keys it may have; None: any."""
        self.path = path
        self._value = _mapping(value, path)
        for key in self._value:
            if known is not None and key not in known:
                raise _unknown_key(f"{path}.{key[:64]}", key, known)

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __contains__(self, key: str) -> bool:
        return self._value.get(key) is not None

    @property
    def plain(self) -> Mapping[str, object]:
        return self._value

    def at(self, key: str) -> str:
        return f"{self.path}.{key}"

    def need(self, key: str, read: Callable[[str], T | None]) -> T:
        """What `read` makes of the key, which must be there."""
        found = read(key)
        if found is None:
            from chimes.triggers.json_values import suggest_name

            hint = suggest_name(key, self._value)
            raise ConfigError(
                _(
                    "{path}: {key} is missing (did you mean {near}, which stands there?)",
                    path=self.path,
                    key=key,
                    near=hint.values["name"],
                )
                if hint
                else _("{path}: {key} is missing", path=self.path, key=key),
                key=self.at(key),
            )
        return found

    def text(self, key: str) -> str | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self.wrong(key, _("text"))
        return value

    def scalar(self, key: str) -> str | None:
        """Text, also of a number or a truth value, as YAML reads them."""
        value = self._value.get(key)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        if value is None or (isinstance(value, str) and "\0" not in value):
            return value
        raise self.wrong(key, _("text or a number"))

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value:
            raise self.wrong(key, _("a list of texts"))
        for index, each in enumerate(value):
            if not isinstance(each, str) or "\0" in each:
                raise ConfigError(
                    _(
                        "{at}[{index}]: expected text, got {given}",
                        at=self.at(key),
                        index=index,
                        given=kind_of(each),
                    ),
                    key=self.at(key),
                )
        return tuple(value)

    def number(self, key: str, *, least: int, most: int) -> int | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            given = f"{value}" if isinstance(value, int) else kind_of(value)
            raise ConfigError(
                _(
                    "{at}: expected a whole number between {least} and {most}, got {given}",
                    at=self.at(key),
                    least=least,
                    most=most,
                    given=given,
                ),
                key=self.at(key),
            )
        return value

    def duration(self, key: str, *, least: timedelta, most: timedelta) -> timedelta | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, _("a duration such as 30s, 10m or 1h30m"))
        from chimes.triggers.duration import format_duration_go, parse_duration, quote_text

        try:
            found = parse_duration(value)
        except InvalidTrigger as error:
            raise self.because(key, error) from None
        if not least <= found <= most:
            raise ConfigError(
                _(
                    "{at}: expected a duration between {least} and {most}, got {given}",
                    at=self.at(key),
                    least=format_duration_go(least),
                    most=format_duration_go(most),
                    given=quote_text(value),
                ),
                key=self.at(key),
            )
        return found

    def choice(self, key: str, known: Collection_sections[str]) -> str | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, _("one of {known}", known=", ".join(known)))
        if value not in known:
            raise _unknown_word(self.at(key), value, known)
        return value

    def section(self, key: str, *, known: Collection_sections[str] | None = None) -> Section | None:
        value = self._value.get(key)
        return None if value is None else Section(value, self.at(key), known=known)

    def wrong(self, key: str, expected: str) -> ConfigError:
        given = kind_of(self._value.get(key))
        if given == "text":
            given = _("other text")
        return ConfigError(
            _(
                "{at}: expected {expected}, got {given}",
                at=self.at(key),
                expected=expected,
                given=given,
            ),
            key=self.at(key),
        )

    def because(self, key: str, error: InvalidTrigger) -> ConfigError:
        problem = error.message
        if error.hint:
            problem = _("{message} ({hint})", message=problem, hint=error.hint)
        return ConfigError(
            _("{where}: {problem}", where=self.at(key), problem=problem), key=self.at(key)
        )


def _unknown_key(path: str, given: str, known: Collection_sections[str]) -> ConfigError:
    from chimes.triggers.duration import quote_text

    message = _(
        "{path}: unknown key {key}; {hint}",
        path=path,
        key=quote_text(given),
        hint=_meant(given, known),
    )
    return ConfigError(message, key=path)


def _unknown_word(path: str, given: str, known: Collection_sections[str]) -> ConfigError:
    from chimes.triggers.duration import quote_text

    message = _(
        "{path}: unknown {word}; {hint}",
        path=path,
        word=quote_text(given),
        hint=_meant(given, known),
    )
    return ConfigError(message, key=path)


def _meant(given: str, known: Collection_sections[str]) -> str:
    from chimes.triggers.json_values import suggest_name

    return suggest_name(given, known) or _("known are {known}", known=", ".join(sorted(known)))


def kind_of(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            _("{path}: expected `key: value`, got {given}", path=path, given=kind_of(value)),
            key=path,
        )
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(
                _("{path}: the key {key!r} is no text; quote it", path=path, key=str(key)[:64]),
                key=path,
            )
    return value


# @@ What the drivers `python` and `command` are told by the `config` of their sources; pure. Read
# at the start of a node, and once more in the process of each task.

#: `package.module:function`; the function may be an attribute of an object.
_CALLABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_PREFIX = "CHIMES_"

PLAIN, SINGER = "plain", "singer"


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonConfig:
    #: `module:function`.
    callable: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandConfig:
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Relative to the file; empty: where the file lies.
    cwd: str = ""
    #: How standard output is read: `plain` lines, or the messages of a `singer` tap.
    format: str = PLAIN
    #: JSON Lines file that the records of a tap are appended to; empty: they are only counted.
    output: str = ""


def read_python(config: Section) -> PythonConfig:
    """The function is given all of `config`, so it may have any keys."""
    found = config.need("callable", config.text)
    if not _CALLABLE.fullmatch(found):
        raise config.wrong("callable", _("module:function, such as shop.orders:sync"))
    return PythonConfig(callable=found)


def read_command(config: Section) -> CommandConfig:
    """Besides these keys it may have any others: the command reads them in CHIMES_CONFIG_FILE."""
    if isinstance(config.plain.get("command"), str):
        raise ConfigError(
            _(
                "{at}: expected a list, such as [tap-shop, --all]; what a shell "
                'is to read is written [sh, -c, "…"]',
                at=config.at("command"),
            ),
            key=config.at("command"),
        )
    command = config.need("command", config.texts)
    if not command[0].strip():
        raise ConfigError(
            _("{at}[0]: names no program", at=config.at("command")), key=config.at("command")
        )
    how = config.choice("format", (PLAIN, SINGER)) or PLAIN
    output = config.text("output") or ""
    if output and how != SINGER:
        raise ConfigError(
            _(
                "{at}: records are only written for format: {format}",
                at=config.at("output"),
                format=SINGER,
            ),
            key=config.at("output"),
        )
    return CommandConfig(
        command=command,
        env=_environment(config.section("env")),
        cwd=config.text("cwd") or "",
        format=how,
        output=output,
    )


def _environment(section: Section | None) -> Mapping[str, str]:
    if section is None:
        return {}
    for name in section:
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(
                _("{path}: {name!r} is no name of a variable", path=section.path, name=name[:64])
            )
        if name.startswith(_OWN_PREFIX):
            raise ConfigError(
                _(
                    "{at}: variables that begin with {prefix} are set by Chimes",
                    at=section.at(name),
                    prefix=_OWN_PREFIX,
                ),
                key=section.at(name),
            )
    return {name: section.scalar(name) or "" for name in section}


# @@ The `config` of a source with the driver `http_json`; pure.

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
            _("{at}: {{cursor}} needs a cursor: {{field: …}}", at=section.at("url")),
            key=section.at("url"),
        )
    try:
        parse_http_url(_PLACEHOLDER.sub("x", url))
    except InvalidInput as error:
        raise ConfigError(
            _("{where}: {problem}", where=section.at("url"), problem=error.message),
            key=section.at("url"),
        ) from None
    return url


def _check_placeholders(section: Section, key: str, text: str, known: tuple[str, ...]) -> None:
    for name in _PLACEHOLDER.findall(text):
        if name not in known:
            raise ConfigError(
                _(
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
                _(
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
            _("{path}: size_parameter needs size", path=section.path), key=section.at("size")
        )
    if style == "offset" and size == 0:
        raise ConfigError(_("{path}: size is missing", path=section.path), key=section.at("size"))
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
                raise ConfigError(_("{at}: only for format: sqlite", at=section.at(key)))
        return Output(format="jsonl", path=path)
    table = section.text("table") or "{collection}"
    _check_placeholders(section, "table", table, ("source", "collection"))
    if not _TABLE.fullmatch(_PLACEHOLDER.sub("x", table)):
        raise section.wrong("table", _("a name of letters, digits and _"))
    single = section.plain.get("key")
    key_fields = (
        (section.text("key") or "",) if isinstance(single, str) else section.texts("key") or ()
    )
    return Output(format="sqlite", path=path, table=table, key=key_fields)


def _path(text: str | None) -> tuple[str, ...]:
    """`data.items` step by step."""
    return tuple(text.split(".")) if text else ()


# @@ The drivers that there are, and how each reads its `config`.

#: One line per driver.
DRIVERS: Mapping[str, Callable[[Section], object]] = {
    "python": read_python,
    "command": read_command,
    "http_json": read_http_json,
}


SOURCE_KEYS = ("driver", "config", "collections")
COLLECTION_KEYS = ("name", "schedule", "priority", "timeout")
#: Names of schedules and concurrency keys are made of both.
LONGEST_PAIR = 180
HIGHEST_CLASS = 1000


def read_sources(raw: object, directory: str, now: datetime) -> Sources:
    """Raises ConfigError. `now`: a schedule that has no moment after it is refused."""
    if raw is None:
        return Sources(directory=directory)
    section = Section(raw, "sources")
    found = {name: _source(section, name, now) for name in section}
    return Sources(found, directory)


def _source(sources: Section, name: str, now: datetime) -> Source:
    _check_name(name, "source", sources.at(name))
    section = Section(sources.plain[name], sources.at(name), known=SOURCE_KEYS)

    def driver_of(key: str) -> str | None:
        return section.choice(key, DRIVERS)

    driver = section.need("driver", driver_of)
    config = section.section("config") or Section({}, section.at("config"))
    DRIVERS[driver](config)
    return Source(
        id=name,
        driver=driver,
        config=config.plain,
        collections=tuple(_collections(section, name, now)),
    )


def _collections(section: Section, source: str, now: datetime) -> Iterable[Collection]:
    raw = section.plain.get("collections")
    path = section.at("collections")
    if not isinstance(raw, list) or not raw:
        raise ConfigError(
            _(
                "{path}: expected a list of collections, such as [{{name: orders}}], got {given}",
                path=path,
                given=_("an empty list") if raw == [] else kind_of(raw),
            ),
            key=path,
        )
    seen: dict[str, int] = {}
    for index, each in enumerate(raw):
        at = f"{path}[{index}]"
        # As the original had it, a bare name is enough.
        given = {"name": each} if isinstance(each, str) else each
        collection = _collection(Section(given, at, known=COLLECTION_KEYS), now)
        if collection.name in seen:
            raise ConfigError(
                _(
                    "{at}.name: {name!r} is the name of {path}[{index}] already",
                    at=at,
                    name=collection.name,
                    path=path,
                    index=seen[collection.name],
                ),
                key=f"{at}.name",
            )
        if len(source) + len(collection.name) > LONGEST_PAIR:
            raise ConfigError(
                _(
                    "{at}.name: source and collection together have at most {most} characters",
                    at=at,
                    most=LONGEST_PAIR,
                ),
                key=f"{at}.name",
            )
        seen[collection.name] = index
        yield collection


def _collection(section: Section, now: datetime) -> Collection:
    name = section.need("name", section.text)
    _check_name(name, "collection", section.at("name"))
    timeout = section.duration("timeout", least=timedelta(seconds=1), most=MAX_SYNC_TIMEOUT)
    return Collection(
        name=name,
        trigger=_trigger(section, now),
        priority=section.number("priority", least=1, most=HIGHEST_CLASS) or HIGH,
        timeout=timeout or SYNC_TIMEOUT,
    )


def _trigger(section: Section, now: datetime) -> Trigger | None:
    """C2, C2b: 5 fields, descriptors, 6 fields, 7 of Quartz, `@every`."""
    text = section.text("schedule")
    if text is None:
        return None
    try:
        trigger = parse_trigger_text(text, None)
        if isinstance(trigger, Once):
            raise InvalidTrigger(_("a collection is synchronised again and again, not once"))
        ensure_fires(trigger, now)
    except InvalidTrigger as error:
        raise section.because("schedule", error) from None
    return trigger


def _check_name(name: str, what: str, path: str) -> None:
    try:
        check_source_name(name, what)
    except InvalidInput as error:
        raise ConfigError(
            _("{where}: {problem}", where=path, problem=error.message), key=path
        ) from None


def secrets_of(sources: Sources) -> tuple[str, ...]:
    """Values of the drivers' configurations that must not appear in a log."""
    found: list[str] = []
    for source in sources.by_id.values():
        found.extend(secrets_in(source.config))
    return tuple(found)


def secrets_in(value: object, *, secret: bool = False) -> Iterable[str]:
    """Texts below names that tell of a secret, at any depth. Of `Bearer abc` the last word is
    one by itself."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from secrets_in(inner, secret=secret or is_secret_field(str(name)))
        case list() | tuple():
            for inner in value:
                yield from secrets_in(inner, secret=secret)
        case str() if secret and value:
            yield value
            if " " in value.strip():
                yield value.split()[-1]
