"""Redacts secrets and escapes control characters in text that is shown or logged."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
#: What an encrypted value begins with (`chimes.envelope`).
SEALED = "chimes:sealed:"

_Mask = Callable[[Mapping[str, object]], dict[str, object]]

_MIN_SECRET_LENGTH = 4
_MAX_DEPTH = 8
_SENSITIVE_WORDS = (
    r"auth(?!or(?!i))|token|secret|passw|pwd|api-?_?key|access-?_?key|private-?_?key|signature"
    r"|credential|session|cookie"
)
_SENSITIVE_NAMES = r"key|sig|code|jwt"
#: Secret as names of headers and parameters, but ordinary as fields of a record.
_ORDINARY_FIELDS = frozenset({"code", "key"})


def is_sealed(value: object) -> bool:
    """Whether the value is an envelope of `chimes.envelope`."""
    return isinstance(value, str) and value.startswith(SEALED)


@lru_cache(maxsize=1)
def _secret_names() -> re.Pattern[str]:
    return re.compile(rf"{_SENSITIVE_WORDS}|^({_SENSITIVE_NAMES})$", re.IGNORECASE)


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether the value of a header or a query parameter of this name is a secret."""
    return _secret_names().search(name) is not None


def is_secret_field(name: str) -> bool:
    """The same for a field of a log record or of a stored value."""
    return name.lower() not in _ORDINARY_FIELDS and is_secret_name(name)


#: What a placeholder begins with, and that of a named secret, whose value is filled in at execution
#: (`chimes.model.access`).
PLACEHOLDER_MARK = "{{"
_PLACEHOLDER = r"\{\{ *secret\.([A-Za-z_][A-Za-z0-9_-]{0,63}) *\}\}"


@lru_cache(maxsize=1)
def secret_placeholders() -> re.Pattern[str]:
    return re.compile(_PLACEHOLDER)


@lru_cache(maxsize=1)
def _only_placeholders() -> re.Pattern[str]:
    return re.compile(rf"(?:(?i:Bearer|Basic|Token|ApiKey) +)?{_PLACEHOLDER}(?::{_PLACEHOLDER})*")


def is_placeholder(value: object) -> bool:
    """Whether a value names secrets instead of containing one, perhaps after a scheme such as
    Bearer. It is shown where a secret would be hidden."""
    return (
        isinstance(value, str)
        and PLACEHOLDER_MARK in value
        and _only_placeholders().fullmatch(value) is not None
    )


def _mask(value: object) -> object:
    return value if is_placeholder(value) else HIDDEN


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: HIDDEN if is_secret_name(name) and not is_placeholder(value) else value
        for name, value in headers.items()
    }


def mask_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Hide non-empty values under secret-looking names, and secrets in texts, at any depth."""
    return {
        name: _mask(value) if is_secret_field(name) and value else _mask_nested(value)
        for name, value in arguments.items()
    }


def mask_values(values: Iterable[object]) -> list[object]:
    """The same for a list of any JSON values."""
    return [_mask_nested(each) for each in values]


def mask_result(result: Mapping[str, object]) -> dict[str, object]:
    """Like `mask_arguments`, but shows token counts of a model."""
    return {
        name: HIDDEN if _is_secret(name, value) else _mask_nested(value, mask_result)
        for name, value in result.items()
    }


def _is_secret(name: str, value: object) -> bool:
    counts = isinstance(value, int | float) and "tokens" in name.lower()
    return is_secret_field(name) and bool(value) and not counts


def _mask_nested(value: object, masked: _Mask = mask_arguments) -> object:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return masked(value)
    if isinstance(value, list | tuple):
        return [_mask_nested(each, masked) for each in value]
    return value


def mask_secrets(value: Mapping[str, object]) -> dict[str, object]:
    """A stored value, such as a schedule, with secrets masked at any depth."""
    return {name: _mask_value(name, item) for name, item in value.items()}


def _mask_value(name: str, value: object) -> object:
    if name == "headers" and isinstance(value, Mapping):
        return {key: _mask(item) if is_secret_name(key) else item for key, item in value.items()}
    if name in ("args", "input", "params", "identities"):
        return mask_arguments({name: value})[name]
    if name == "body" and isinstance(value, str):
        return _mask_body(value)
    if name == "url" and isinstance(value, str):
        return mask_url(value)
    if name == "to" and isinstance(value, str) and "://" in value:
        return mask_url(value)
    if is_secret_field(name):
        return [_mask(each) for each in value] if isinstance(value, list) else _mask(value)
    return _mask_nested(value, mask_secrets)


def _mask_body(body: str) -> object:
    """Without field names secrets cannot be recognised, so only the length is recorded."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return mask_arguments(found)
    return {"characters": len(body)}


def replace_secrets(
    value: Mapping[str, object], replace: Callable[[str, object], object]
) -> dict[str, object]:
    """Replaces whole values of stored JSON that are or contain what `mask_secrets` recognises.
    `replace` gets the name of the field and its value."""
    return {name: _replaced(name, item, replace) for name, item in value.items()}


def _replaced(name: str, value: object, replace: Callable[[str, object], object]) -> object:
    if isinstance(value, str):
        return replace(name, value) if value and _is_secret_text(name, value) else value
    if name == "headers" and isinstance(value, Mapping):
        return {
            key: replace(key, item)
            if item and is_secret_name(key) and not is_placeholder(item)
            else _replaced(key, item, replace)
            for key, item in value.items()
        }
    if not isinstance(value, Mapping | list | tuple) or not value:
        return value
    if is_secret_field(name):
        return replace(name, value)
    if isinstance(value, Mapping):
        return replace_secrets(value, replace)
    return [_replaced(name, item, replace) for item in value]


def _is_secret_text(name: str, text: str) -> bool:
    if is_placeholder(text):
        return False
    if is_secret_field(name) or text.startswith(SEALED) or has_secrets(text):
        return True
    return name in ("url", "to") and mask_url(text) != text


def unmask_headers(headers: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """Replaces `***` in secret headers by the stored values."""
    known = {name.lower(): value for name, value in stored.items()}
    return {
        name: known.get(name.lower(), value) if value == HIDDEN and is_secret_name(name) else value
        for name, value in headers.items()
    }


def unmask_arguments(
    arguments: Mapping[str, object], stored: Mapping[str, object]
) -> dict[str, object]:
    """Replaces `***` in secret arguments by the stored values, at any depth. The items of a list
    are matched by position if it has its old length."""
    return {
        name: stored.get(name, value)
        if value == HIDDEN and is_secret_field(name)
        else unmask_value(value, stored.get(name))
        for name, value in arguments.items()
    }


def unmask_value(value: object, stored: object) -> object:
    """Like `unmask_arguments`, for any JSON value."""
    if isinstance(value, str) and isinstance(stored, str):
        return unmask_text(value, stored)
    if isinstance(value, Mapping) and isinstance(stored, Mapping):
        return unmask_arguments(value, stored)
    if (
        isinstance(value, list | tuple)
        and isinstance(stored, list | tuple)
        and len(value) == len(stored)
    ):
        return [unmask_value(*pair) for pair in zip(value, stored, strict=True)]
    return value


# --- secrets in a text: a URL, a JSON document, a form, or text with URLs in it -------------------


class _Span(NamedTuple):
    """A part of a text that is a secret, or a JSON string that may contain one."""

    #: Name or path, by which it is found again in an edited text.
    key: tuple[object, ...]
    start: int
    end: int
    secret: bool = True
    #: What stands for the secret.
    mask: str = HIDDEN


def mask_text(text: str) -> str:
    """Hides passwords and secret query parameters of URLs, and secret fields of a JSON document or
    a form. The rest of the text, including its spacing, stays as it is."""
    return _spliced(text, _masks(text))


def unmask_text(text: str, stored: str) -> str:
    """Replaces `***`, where `mask_text` writes it, by what the stored text has there."""
    if HIDDEN not in text or text == stored:
        return text
    known = {span.key: span for span in _spans(stored)}
    return _spliced(text, _restored(text, stored, known))


def secrets_in(text: str) -> Iterator[str]:
    """The secrets that `mask_text` hides."""
    for span in _spans(text):
        content = _content(text[span.start : span.end])
        if span.secret:
            yield content
        else:
            yield from secrets_in(content)


def has_secrets(text: str) -> bool:
    """Whether `mask_text` hides anything."""
    return any(secrets_in(text))


def masked_names(value: object, path: str = "") -> Iterator[str]:
    """Where `***` stands instead of a secret, e.g. in an exported definition."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from masked_names(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from masked_names(inner, f"{path}[{index}]")
    elif isinstance(value, str) and (value == HIDDEN or _has_masks(value)):
        yield path


def _has_masks(text: str) -> bool:
    return HIDDEN in text and any(
        _has_masks(_content(text[span.start : span.end]))
        if not span.secret
        else text[span.start : span.end] == span.mask
        for span in _spans(text)
    )


_Splice = tuple[int, int, str]


def _spliced(text: str, splices: Iterable[_Splice]) -> str:
    parts, at = [], 0
    for start, end, new in splices:
        parts += [text[at:start], new]
        at = end
    return "".join((*parts, text[at:])) if parts else text


def _masks(text: str) -> Iterator[_Splice]:
    for span in _spans(text):
        if span.secret:
            yield span.start, span.end, span.mask
        else:
            content = _content(text[span.start : span.end])
            if (masked := mask_text(content)) != content:
                yield span.start, span.end, json.dumps(masked, ensure_ascii=False)


def _restored(
    text: str, stored: str, known: Mapping[tuple[object, ...], _Span]
) -> Iterator[_Splice]:
    for span in _spans(text):
        before = known.get(span.key)
        if before is None or before.secret != span.secret:
            continue
        old, new = stored[before.start : before.end], text[span.start : span.end]
        if not span.secret and HIDDEN in new:
            content = unmask_text(_content(new), _content(old))
            yield span.start, span.end, json.dumps(content, ensure_ascii=False)
        elif span.secret and new == span.mask:
            yield span.start, span.end, old


def _content(raw: str) -> str:
    """The text of a JSON string; other text as it is."""
    if not raw.startswith('"'):
        return raw
    try:
        found = json.loads(raw, strict=False)
    except ValueError:
        return raw.strip('"')
    return found if isinstance(found, str) else raw


def _spans(text: str) -> list[_Span]:
    """In the order of the text; they do not overlap."""
    return _without_placeholders(text, _all_spans(text))


def _without_placeholders(text: str, spans: list[_Span]) -> list[_Span]:
    if not spans or PLACEHOLDER_MARK not in text:
        return spans
    return [
        span
        for span in spans
        if not (span.secret and is_placeholder(_content(text[span.start : span.end])))
    ]


def _all_spans(text: str) -> list[_Span]:
    form, url, url_inside = _text_patterns()
    start = text.lstrip()[:2]
    # A form may begin with a placeholder, a JSON document does not.
    if start[:1] in ("{", "[") and not (start == "{{" and "=" in text and form.match(text)):
        return _JsonScanner(text).spans() if may_have_secrets(text) else []
    if url.fullmatch(text):
        return _url_spans(text)
    if "=" in text and form.match(text):
        return _form_spans(text)
    return [
        _shifted(span, each.start(), place)
        for place, each in enumerate(url_inside.finditer(text))
        for span in _url_spans(each[0])
    ]


def _shifted(span: _Span, by: int, place: int = 0) -> _Span:
    return span._replace(key=(place, *span.key), start=span.start + by, end=span.end + by)


class _Frame:
    """An open object or list of a JSON document."""

    __slots__ = ("is_list", "name", "position")

    def __init__(self, *, is_list: bool) -> None:
        self.is_list = is_list
        #: Of the current field of an object.
        self.name = ""
        self.position = 0

    def next(self) -> None:
        self.name = ""
        self.position += 1


class _JsonScanner:
    """Finds the values under secret names, and the other strings. The document need not be valid,
    because placeholders may stand in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._frames: list[_Frame] = []
        self._found: list[tuple[tuple[_Frame, ...], tuple[object, ...], int, int, bool]] = []
        #: Depth and start of an object or list that is hidden as a whole.
        self._hidden: tuple[int, int] | None = None

    def spans(self) -> list[_Span]:
        for token in _json_tokens().finditer(self._text):
            self._read(token)
        if self._hidden is not None:
            # The value does not end: the rest may belong to it.
            depth, start = self._hidden
            del self._frames[depth:]
            self._add(start, len(self._text), secret=True)
        return [
            _Span(_path(frames, names), start, end, secret, f'"{HIDDEN}"' if secret else "")
            for frames, names, start, end, secret in self._found
            if not secret or self._text[start:end] not in _EMPTY
        ]

    def _read(self, token: re.Match[str]) -> None:
        mark, frames = token[0], self._frames
        if mark in "{[":
            self._open(token.start(), is_list=mark == "[")
        elif mark in "}]":
            self._close(token.end())
        elif mark == ",":
            if frames:
                frames[-1].next()
        elif mark != ":" and self._hidden is None:
            secret = bool(frames) and is_secret_field(frames[-1].name)
            if token["colon"] is not None and frames and not frames[-1].is_list:
                frames[-1].name = _content(token["text"])
            elif secret or mark.startswith('"'):
                self._add(token.start(), token.end(), secret=secret)

    def _open(self, start: int, *, is_list: bool) -> None:
        frames = self._frames
        secret = bool(frames) and is_secret_field(frames[-1].name)
        # Paths in a very deep document would take too much memory: its depth is hidden, too.
        if self._hidden is None and (secret or len(frames) == _MAX_PATH):
            self._hidden = (len(frames), start)
        frames.append(_Frame(is_list=is_list))

    def _close(self, end: int) -> None:
        if self._frames:
            self._frames.pop()
        if self._hidden is not None and self._hidden[0] == len(self._frames):
            self._add(self._hidden[1], end, secret=True)
            self._hidden = None

    def _add(self, start: int, end: int, *, secret: bool) -> None:
        names = tuple(each.position if each.is_list else each.name for each in self._frames)
        self._found.append((tuple(self._frames), names, start, end, secret))


_MAX_PATH = 64
#: Values that are shown even under a secret name.
_EMPTY = frozenset({'""', "null", "false", "0", "{}", "[]"})


def _path(frames: Iterable[_Frame], names: Iterable[object]) -> tuple[object, ...]:
    """An item of a list has the length of the list in its path, known once the list has ended."""
    return tuple(
        (name, frame.position) if frame.is_list else name
        for frame, name in zip(frames, names, strict=True)
    )


def _url_spans(url: str) -> list[_Span]:
    user, service, *shapes = _url_patterns()
    if (whole := service.fullmatch(url)) is not None:
        return [_Span(("service",), *whole.span("secret"))]
    found = _pair_spans(url)
    if (userinfo := user.match(url)) is not None:
        found.append(_Span(("user",), *userinfo.span("secret")))
    for pattern in shapes:
        for place, each in enumerate(pattern.finditer(url)):
            start, end = each.span("secret")
            if not any(span.start <= start < span.end for span in found):
                found.append(_Span((each[1], place), start, end))
    return sorted(found, key=lambda span: span.start)


def _form_spans(form: str) -> list[_Span]:
    """Values of secret fields, and secrets of URLs and known shapes between them. A value ends at
    the next `&`: it may contain spaces, `;` and `#`, and placeholders with spaces."""
    pairs = [
        _shifted(_trimmed(span, f"&{form}"), -1) for span in _pair_spans(f"&{form}", form=True)
    ]
    found: list[_Span] = []
    counts: Counter[str] = Counter()
    starts = (0, *(span.end for span in pairs))
    ends = (*(span.start for span in pairs), len(form))
    for start, end in zip(starts, ends, strict=True):
        for name, first, last in _shapes(form[start:end]):
            if end < len(form) and start + last == end:
                continue  # It is part of the name of the next field.
            found.append(_Span((0, name, counts[name]), start + first, start + last))
            counts[name] += 1
    return sorted((*pairs, *found), key=lambda span: span.start)


def _trimmed(span: _Span, text: str) -> _Span:
    """Without the whitespace at the end, such as the last line break of a body."""
    return span._replace(end=span.start + len(text[span.start : span.end].rstrip()))


def _shapes(text: str) -> list[tuple[str, int, int]]:
    """Kind, start and end of passwords of URLs, bot tokens and keys; they do not overlap."""
    user, _service, *shapes = _url_patterns()
    url_inside = _text_patterns()[-1]
    found: list[tuple[str, int, int]] = []
    for url in url_inside.finditer(text):
        if (userinfo := user.match(url[0])) is not None:
            first, last = userinfo.span("secret")
            found.append(("user", url.start() + first, url.start() + last))
    for pattern in shapes:
        found += ((each[1], *each.span("secret")) for each in pattern.finditer(text))
    kept: list[tuple[str, int, int]] = []
    for shape in sorted(found, key=lambda shape: shape[1]):
        if not kept or shape[1] >= kept[-1][2]:
            kept.append(shape)
    return kept


def _pair_spans(query: str, *, form: bool = False) -> list[_Span]:
    """Values of secret parameters, also of a URL in a parameter. The nth of a name is matched with
    the nth of that name."""
    found: list[_Span] = []
    names: Counter[str] = Counter()
    name_pattern, end_pattern = _form_patterns() if form else _pair_patterns()
    at = 0
    while (pair := name_pattern.search(query, at)) is not None:
        at = pair.end()
        if is_secret_name(unquote(pair[1])):
            ended = end_pattern.search(query, at)
            end = len(query) if ended is None else ended.start()
            found.append(_Span((pair[1], names[pair[1]]), at, end))
            names[pair[1]] += 1
            at = end
    return found


def query_pairs(query: str) -> list[tuple[str, str, str]]:
    """Separator, name and value of each parameter; the query begins with its `?`."""
    return re.findall(r"([?&;])([^=&;]*)=([^&;]*)", query)


def mask_url(url: str) -> str:
    """The URL, or its path and query, without password and values of secret parameters."""
    spans = _without_placeholders(url, _url_spans(url))
    return _spliced(url, ((span.start, span.end, HIDDEN) for span in spans))


@lru_cache(maxsize=1)
def _pair_patterns() -> tuple[re.Pattern[str], ...]:
    """Separator and name of a parameter, and the end of its value."""
    return re.compile(r"[?&;#]([^=&;#?]*)="), re.compile(r"[&;#]")


@lru_cache(maxsize=1)
def _form_patterns() -> tuple[re.Pattern[str], ...]:
    """The same in a form. A name has no whitespace in it: `token = 5` is prose."""
    return re.compile(r"(?:[?;#]|[&\r\n]\s*+)([^\s=&;#?]*+)="), re.compile(r"&")


@lru_cache(maxsize=1)
def _url_patterns() -> tuple[re.Pattern[str], ...]:
    return (
        # The password; of an http URL also a user name without one, which may be a token.
        re.compile(r"(?i)(?:[a-z][a-z0-9+.-]{0,20}://[^/?#@:]*:|https?://)(?P<secret>[^/?#]+)@"),
        # The URL of a service that Apprise knows consists of tokens; those of servers do not.
        re.compile(
            r"(?i)(?!(?:https?|jsons?|xmls?|forms?|postgres(?:ql)?|mysql|mariadb|rediss?|sqlite|json"
            r"|memory|mongodb|amqps?|nats|kafka|s?ftp|s3|file|wss?)(?:\+[a-z]+)?://)"
            r"[a-z][a-z0-9+.-]{1,30}://(?P<secret>\S+)"
        ),
        re.compile(r"(/bot\d+:)(?P<secret>[^/?#&;\r\n]+)"),
        re.compile(r"(hooks\.slack\.com/[a-z]+/)(?P<secret>[^?#&;\s]+)"),
        re.compile(r"(whsec_|chm_)(?P<secret>[A-Za-z0-9+/=_-]{8,}|\*{3})"),
    )


@lru_cache(maxsize=1)
def _text_patterns() -> tuple[re.Pattern[str], ...]:
    """The start of a form, a URL or a path with a query, and URLs and known shapes in a text. A
    placeholder may have spaces in it."""
    placeholder = r"\{(?:\{[^{}\"=&]*+\}\})?+"
    other = r"(?!://|whsec_|chm_|/bot)"
    return (
        # `name=`, `name&` without a value, or any words before `&name=`.
        re.compile(
            rf"\s*+(?:(?:\{{\{{[^{{}}\"=&]*+\}}\}}|{other}[^\s=&\"<>{{}}])*+[=&]"
            rf"|(?:\{{\{{[^{{}}\"=&]*+\}}\}}|{other}[^=&\"<>{{}}/:?])*+&[^\s=&]++=)",
            re.IGNORECASE,
        ),
        re.compile(rf"(?i)(?:[a-z][a-z0-9+.-]{{0,20}}://|/)(?:[^\s{{]++|{placeholder})*+"),
        re.compile(
            rf"(?i)\b(?:[a-z][a-z0-9+.-]{{0,20}}://(?:[^\s\"'<>{{]++|{placeholder})++"
            r"|(?:whsec_|chm_)\S+)"
        ),
    )


#: Documents without any of these need not be parsed. Each secret name contains one of the first.
_HINTS = (
    *("auth", "token", "secret", "passw", "pwd", "key", "sig", "credential", "session", "cookie"),
    *("code", "jwt", "\\", "://", "/bot", "=", "whsec_", "chm_"),
)


def may_have_secrets(text: str) -> bool:
    """Whether a JSON document has to be searched for secrets."""
    folded = text.casefold()
    return any(hint in folded for hint in _HINTS)


@lru_cache(maxsize=1)
def _json_tokens() -> re.Pattern[str]:
    """A string, with the colon after it if it is a name; punctuation; any other value."""
    return re.compile(
        r'(?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))(?=\s*+(?P<colon>:)|)'
        r"|[\[\]{},:]|[^\s\[\]{},:\"]+",
        re.DOTALL,
    )


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compiled on first use: most CLI commands never need them."""
    return (
        # A header in a message, a dict or byte pairs: up to the closing quote, or the line.
        (
            re.compile(
                r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie"
                rf"|x-[a-z0-9_-]{{0,40}}?(?:{_SENSITIVE_WORDS})[a-z0-9_-]{{0,40}})"
                r"(\\?[\"']?\s*[:=,]\s*b?\\?[\"']?)[^\"'\\\r\n]+"
            ),
            r"\1\2" + HIDDEN,
        ),
        (re.compile(r"(?i)\b(Bearer|ApiKey|Basic)\s+[A-Za-z0-9._~+/=-]{6,}"), r"\1 " + HIDDEN),
        (re.compile(r"chm_[A-Za-z0-9_-]+"), "chm_" + HIDDEN),
        (re.compile(r"whsec_[A-Za-z0-9+/=_-]+"), "whsec_" + HIDDEN),
        (re.compile(r"/bot[0-9]+:[A-Za-z0-9_-]+"), "/bot" + HIDDEN),
        # The scheme is bounded: unbounded, a long text without one costs its length squared.
        (
            re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s:/@]{0,200}):[^\s/]*@"),
            r"\1:" + HIDDEN + "@",
        ),
        # A field of a JSON document or a dict, whose quotes may be escaped.
        (
            re.compile(
                rf"(?i)((\\?[\"'])[\w.-]{{0,40}}?(?:{_SENSITIVE_WORDS})[\w.-]{{0,40}}\2"
                r"\s{0,5}:\s{0,5}\2)(?:(?!\2)(?:\\.|[^\\]))+"
            ),
            r"\1" + HIDDEN,
        ),
        (
            re.compile(
                rf"(?i)([?&;](?:[\w.-]{{0,40}}?(?:{_SENSITIVE_WORDS})[\w.-]{{0,40}}|{_SENSITIVE_NAMES})=)"
                r"[^&;\s\"'#]+"
            ),
            r"\1" + HIDDEN,
        ),
    )


# --- known values, wherever they occur ------------------------------------------------------------
#: Shorter lines and encodings occur everywhere; masking them would garble results.
_MIN_PART_LENGTH = 8


def echoed_forms(values: Iterable[str]) -> tuple[str, ...]:
    """Values as a receiver or a program may repeat them: as they are, line by line, in a URL, in
    JSON and in base64, also within a longer text such as `user:password`. Longest first, so that
    none is part of another."""
    found: set[str] = set()
    for value in values:
        found |= {value, quote(value, safe=""), quote(value), quote_plus(value)}
        found |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
        parts = {each.strip() for each in value.splitlines()}
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            parts |= set(_base64_cores(value.encode("utf-8", "replace"), encode))
        found |= {part for part in parts if len(part) >= _MIN_PART_LENGTH}
    return tuple(sorted(found - {""}, key=lambda form: (-len(form), form)))


def _base64_cores(value: bytes, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """The characters that depend on the value alone, at each of the three alignments."""
    for before in range(3):
        length = before + len(value)
        yield encode(bytes(before) + value).decode()[-(-before * 8 // 6) : length * 8 // 6]


def mask_known(value: object, secrets: Sequence[str]) -> object:
    """Masks secrets in a text, or in JSON-like data at any depth."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, Mapping):
        return {mask_known(key, secrets): mask_known(each, secrets) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [mask_known(each, secrets) for each in value]
    return value


class Redactor:
    """Hides secrets of known formats, and the given ones."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first, so that a secret inside another leaves no rest of it.
        known = {secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH}
        self._known = sorted(known, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, HIDDEN)
        for pattern, hidden in _patterns():
            text = pattern.sub(hidden, text)
        return text

    def value(self, value: object, depth: int = 0) -> object:
        """The same for JSON-like data; other values become text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth < _MAX_DEPTH and isinstance(value, Mapping):
            return {
                str(key): HIDDEN
                if is_secret_field(str(key)) and inner
                else self.value(inner, depth + 1)
                for key, inner in value.items()
            }
        if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
            return [self.value(inner, depth + 1) for inner in value]
        return self.text(value if isinstance(value, str) else str(value))


def escape_control(text: str) -> str:
    """The text on one line, without terminal control sequences."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
