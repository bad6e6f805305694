"""Reads `sources:` of `chimes.yaml` into frozen values.

Every mistake is a ConfigError that names its key, the expected value and, for an unknown name, the
nearest known one. Values are not repeated in messages unless they are keywords: they may be
secrets. Modules that only errors need are imported there: every task reads its section again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Collection as AbstractCollection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from chimes.egress import parse_http_url
from chimes.errors import ConfigError, InvalidInput, InvalidTrigger
from chimes.i18n import _
from chimes.model.sync import HIGH, MAX_SYNC_TIMEOUT, SYNC_TIMEOUT, Collection, Source, Sources
from chimes.model.validation import MAX_RETRIES, check_source_name
from chimes.redaction import is_secret_field
from chimes.triggers import Trigger, ensure_fires
from chimes.triggers.once import Once
from chimes.triggers.text import parse_trigger_text

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
    """A mapping of the file, read strictly."""

    def __init__(
        self, value: object, path: str, *, known: AbstractCollection[str] | None = None
    ) -> None:
        """`known`: the allowed keys; None: any."""
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

    def require(self, key: str, read: Callable[[str], T | None]) -> T:
        """Reads a required key."""
        found = read(key)
        if found is None:
            from chimes.triggers.values import suggest_name

            hint = suggest_name(key, self._value)
            raise ConfigError(
                _(
                    "{path}: {key} is missing (found {near}: is that a typo?)",
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
            raise self.invalid(key, _("text"))
        return value

    def scalar(self, key: str) -> str | None:
        """Text, a number or a boolean, as text."""
        value = self._value.get(key)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        if value is None or (isinstance(value, str) and "\0" not in value):
            return value
        raise self.invalid(key, _("text or a number"))

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value:
            raise self.invalid(key, _("a list of texts"))
        for index, each in enumerate(value):
            if not isinstance(each, str) or "\0" in each:
                raise ConfigError(
                    _(
                        "{at}[{index}]: expected text, got {given}",
                        at=self.at(key),
                        index=index,
                        given=type_name(each),
                    ),
                    key=self.at(key),
                )
        return tuple(value)

    def number(self, key: str, *, least: int, most: int) -> int | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            given = f"{value}" if isinstance(value, int) else type_name(value)
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
            raise self.invalid(key, _("a duration such as 30s, 10m or 1h30m"))
        from chimes.triggers.values import format_duration_go, parse_duration, quote_text

        try:
            found = parse_duration(value)
        except InvalidTrigger as error:
            raise self.from_error(key, error) from None
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

    def choice(self, key: str, known: AbstractCollection[str]) -> str | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.invalid(key, _("one of {known}", known=", ".join(known)))
        if value not in known:
            raise _unknown_word(self.at(key), value, known)
        return value

    def section(self, key: str, *, known: AbstractCollection[str] | None = None) -> Section | None:
        value = self._value.get(key)
        return None if value is None else Section(value, self.at(key), known=known)

    def invalid(self, key: str, expected: str) -> ConfigError:
        given = type_name(self._value.get(key))
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

    def from_error(self, key: str, error: InvalidTrigger) -> ConfigError:
        problem = error.message
        if error.hint:
            problem = _("{message} ({hint})", message=problem, hint=error.hint)
        return ConfigError(
            _("{where}: {problem}", where=self.at(key), problem=problem), key=self.at(key)
        )


def _unknown_key(path: str, given: str, known: AbstractCollection[str]) -> ConfigError:
    from chimes.triggers.values import quote_text

    message = _(
        "{path}: unknown key {key}; {hint}",
        path=path,
        key=quote_text(given),
        hint=_suggest(given, known),
    )
    return ConfigError(message, key=path)


def _unknown_word(path: str, given: str, known: AbstractCollection[str]) -> ConfigError:
    from chimes.triggers.values import quote_text

    message = _(
        "{path}: unknown {word}; {hint}",
        path=path,
        word=quote_text(given),
        hint=_suggest(given, known),
    )
    return ConfigError(message, key=path)


def _suggest(given: str, known: AbstractCollection[str]) -> str:
    from chimes.triggers.values import suggest_name

    return suggest_name(given, known) or _(
        "expected one of {known}", known=", ".join(sorted(known))
    )


def type_name(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            _("{path}: expected `key: value`, got {given}", path=path, given=type_name(value)),
            key=path,
        )
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(
                _("{path}: the key {key!r} is not text; quote it", path=path, key=str(key)[:64]),
                key=path,
            )
    return value


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
    #: Relative to the configuration file; empty: its directory.
    cwd: str = ""
    #: Format of standard output: `plain` lines, or messages of a `singer` tap.
    format: str = PLAIN
    #: JSON Lines file that the records of a tap are appended to; empty: they are only counted.
    output: str = ""


def read_python(config: Section) -> PythonConfig:
    """Allows any keys, since the function receives the whole `config`."""
    found = config.require("callable", config.text)
    if not _CALLABLE.fullmatch(found):
        raise config.invalid("callable", _("module:function, such as shop.orders:sync"))
    return PythonConfig(callable=found)


def read_command(config: Section) -> CommandConfig:
    """Allows other keys, which the command reads from CHIMES_CONFIG_FILE."""
    if isinstance(config.plain.get("command"), str):
        raise ConfigError(
            _(
                "{at}: expected a list such as [tap-shop, --all]; for a shell command "
                'use [sh, -c, "…"]',
                at=config.at("command"),
            ),
            key=config.at("command"),
        )
    command = config.require("command", config.texts)
    if not command[0].strip():
        raise ConfigError(
            _("{at}[0]: the program is empty", at=config.at("command")), key=config.at("command")
        )
    how = config.choice("format", (PLAIN, SINGER)) or PLAIN
    output = config.text("output") or ""
    if output and how != SINGER:
        raise ConfigError(
            _(
                "{at}: output requires format: {format}",
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
                _(
                    "{path}: {name!r} is not a valid variable name",
                    path=section.path,
                    name=name[:64],
                )
            )
        if name.startswith(_OWN_PREFIX):
            raise ConfigError(
                _(
                    "{at}: names that begin with {prefix} are reserved",
                    at=section.at(name),
                    prefix=_OWN_PREFIX,
                ),
                key=section.at(name),
            )
    return {name: section.scalar(name) or "" for name in section}


HTTP_KEYS = (
    "url", "headers", "params", "records", "pagination", "cursor", "output", "timeout", "retries",
    "max_pages", "max_page_bytes",
)  # fmt: skip
STYLES = ("none", "page", "offset", "next", "link")
#: Keys of each style besides `style`.
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
    #: Query parameter of the page number, offset or token.
    parameter: str = ""
    #: Number of the first page.
    start: int = 1
    size_parameter: str = ""
    #: Records of a full page; 0: unknown. A page with fewer is the last one.
    size: int = 0
    #: Path of the next link or token in the body.
    path: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    #: Field of a record; its highest value is the checkpoint for the next run.
    field: tuple[str, ...]
    #: Query parameter of the cursor; empty: `{cursor}` in the URL.
    parameter: str = ""
    #: Cursor of the first run; None: not sent.
    start: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    format: Literal["jsonl", "sqlite"]
    #: Relative to the configuration file.
    path: str
    table: str = ""
    #: Fields that identify a record for the upsert; empty: records are appended.
    key: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpJsonConfig:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Path of the list of records in the body; empty: the body is the list.
    records: tuple[str, ...] = ()
    pagination: Pagination = field(default_factory=Pagination)
    cursor: Cursor | None = None
    output: Output
    #: Timeout of one request.
    timeout: timedelta = _USUAL
    #: Retries of one page after 408, 429, 5xx and network errors.
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
    url = section.require("url", section.text)
    _check_placeholders(section, "url", url, ("source", "collection", "cursor"))
    if "{cursor}" in url and cursor is None:
        raise ConfigError(
            _("{at}: {{cursor}} requires cursor: {{field: …}}", at=section.at("url")),
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
                    "{at}: unknown placeholder {name}; expected one of {known}",
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
                    "{path}: {name!r} is not a valid header",
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
    style = loose.require("style", lambda key: loose.choice(key, STYLES))
    section = Section(loose.plain, loose.path, known=("style", *STYLE_KEYS[style]))
    size = section.number("size", least=1, most=1_000_000) or 0
    if size == 0 and "size_parameter" in section:
        raise ConfigError(
            _("{path}: size_parameter requires size", path=section.path), key=section.at("size")
        )
    if style == "offset" and size == 0:
        raise ConfigError(_("{path}: size is missing", path=section.path), key=section.at("size"))
    if style == "next":
        section.require("path", section.text)
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
        field=_path(section.require("field", section.text)),
        parameter=section.text("parameter") or "",
        start=section.scalar("start"),
    )


def _output(config: Section) -> Output:
    section = config.require(
        "output", lambda key: config.section(key, known=("format", "path", "table", "key"))
    )
    style = section.require("format", lambda key: section.choice(key, ("jsonl", "sqlite")))
    path = section.require("path", section.text)
    _check_placeholders(section, "path", path, ("source", "collection"))
    if style == "jsonl":
        for key in ("table", "key"):
            if key in section:
                raise ConfigError(_("{at}: allowed only with format: sqlite", at=section.at(key)))
        return Output(format="jsonl", path=path)
    table = section.text("table") or "{collection}"
    _check_placeholders(section, "table", table, ("source", "collection"))
    if not _TABLE.fullmatch(_PLACEHOLDER.sub("x", table)):
        raise section.invalid("table", _("a name of letters, digits and _"))
    single = section.plain.get("key")
    key_fields = (
        (section.text("key") or "",) if isinstance(single, str) else section.texts("key") or ()
    )
    return Output(format="sqlite", path=path, table=table, key=key_fields)


def _path(text: str | None) -> tuple[str, ...]:
    """Splits `data.items` at the dots."""
    return tuple(text.split(".")) if text else ()


#: Reads the `config` of each driver.
DRIVERS: Mapping[str, Callable[[Section], object]] = {
    "python": read_python,
    "command": read_command,
    "http_json": read_http_json,
}


SOURCE_KEYS = ("driver", "config", "collections")
COLLECTION_KEYS = ("name", "schedule", "priority", "timeout", "max_retries", "retry_backoff")
#: Characters of source and collection name, which form schedule names and concurrency keys.
MAX_PAIR_LENGTH = 180
MAX_PRIORITY = 1000


def read_sources(raw: object, directory: str, now: datetime) -> Sources:
    """Raises ConfigError, also for a schedule that never fires after `now`."""
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

    driver = section.require("driver", driver_of)
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
                given=_("an empty list") if raw == [] else type_name(raw),
            ),
            key=path,
        )
    seen: dict[str, int] = {}
    for index, each in enumerate(raw):
        at = f"{path}[{index}]"
        # EventNative accepts a bare name.
        given = {"name": each} if isinstance(each, str) else each
        collection = _collection(Section(given, at, known=COLLECTION_KEYS), now)
        if collection.name in seen:
            raise ConfigError(
                _(
                    "{at}.name: {name!r} is already the name of {path}[{index}]",
                    at=at,
                    name=collection.name,
                    path=path,
                    index=seen[collection.name],
                ),
                key=f"{at}.name",
            )
        if len(source) + len(collection.name) > MAX_PAIR_LENGTH:
            raise ConfigError(
                _(
                    "{at}.name: source and collection name together exceed {most} characters",
                    at=at,
                    most=MAX_PAIR_LENGTH,
                ),
                key=f"{at}.name",
            )
        seen[collection.name] = index
        yield collection


def _collection(section: Section, now: datetime) -> Collection:
    name = section.require("name", section.text)
    _check_name(name, "collection", section.at("name"))
    timeout = section.duration("timeout", least=timedelta(seconds=1), most=MAX_SYNC_TIMEOUT)
    return Collection(
        name=name,
        trigger=_trigger(section, now),
        priority=section.number("priority", least=1, most=MAX_PRIORITY) or HIGH,
        timeout=timeout or SYNC_TIMEOUT,
        max_retries=section.number("max_retries", least=0, most=MAX_RETRIES) or 0,
        retry_backoff=section.duration(
            "retry_backoff", least=timedelta(milliseconds=1), most=timedelta(days=1)
        )
        or Collection(name=name).retry_backoff,
    )


def _trigger(section: Section, now: datetime) -> Trigger | None:
    """Cron with 5, 6 or 7 (Quartz) fields, descriptors such as `@daily`, or `@every`."""
    text = section.text("schedule")
    if text is None:
        return None
    try:
        trigger = parse_trigger_text(text, None)
        if isinstance(trigger, Once):
            raise InvalidTrigger(_("a collection needs a recurring schedule"))
        ensure_fires(trigger, now)
    except InvalidTrigger as error:
        raise section.from_error("schedule", error) from None
    return trigger


def _check_name(name: str, what: str, path: str) -> None:
    try:
        check_source_name(name, what)
    except InvalidInput as error:
        raise ConfigError(
            _("{where}: {problem}", where=path, problem=error.message), key=path
        ) from None


def secrets_of(sources: Sources) -> tuple[str, ...]:
    """Secrets of all sources, for redaction."""
    found: list[str] = []
    for source in sources.by_id.values():
        found.extend(secrets_in(source.config))
    return tuple(found)


def secrets_in(value: object, *, secret: bool = False) -> Iterable[str]:
    """Strings under secret names, at any depth. The last word of `Bearer abc` is also listed
    alone."""
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
