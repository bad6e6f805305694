"""`curl …` and `wget …` as what they do: a call of an address. Only what can be said in full is
taken; anything else is an error that names it, and nothing is guessed."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chimes.errors import InvalidInput
from chimes.wording import say

_STOPS = ("|", "||", "&&", ";", "&", "<", "<<")
#: Where the output goes is no part of a call.
_OUTPUT = (">", ">>", "1>", "2>", "&>", "2>>", "1>>", "&>>")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """As the API takes them."""

    target: Mapping[str, object]
    policy: Mapping[str, object]


@dataclass(slots=True)
class _Found:
    url: str = ""
    method: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    verify_tls: bool = True
    policy: dict[str, object] = field(default_factory=dict)


Take = Callable[[_Found, str], None]


def call_in(command: str) -> Call | None:
    """None: it is another command. InvalidInput: it is one of these, with something in it that a
    call has no place for."""
    try:
        words = shlex.split(command)
    except ValueError:
        raise InvalidInput(say("a quotation mark is not closed")) from None
    program = words[0].rpartition("/")[2] if words else ""
    if program == "curl":
        return _called(_read(words[1:], _CURL_FLAGS, _CURL_VALUES, program))
    if program == "wget":
        return _called(_read(words[1:], _WGET_FLAGS, _WGET_VALUES, program))
    return None


def _read(
    words: list[str], flags: frozenset[str], values: Mapping[str, Take], program: str
) -> _Found:
    found, rest = _Found(), list(words)
    while rest:
        word = rest.pop(0)
        if word in _OUTPUT:
            if rest:
                rest.pop(0)
        elif word.startswith(_OUTPUT):
            continue
        elif word in _STOPS or word.startswith(("|", ";", "$(", "`")) or word.endswith(";"):
            raise InvalidInput(say("{word!r} is for a shell", word=word))
        elif not word.startswith("-") or word == "-":
            _address(found, word)
        elif word.startswith("--"):
            _long(found, word, rest, flags, values, program)
        else:
            _short(found, word, rest, flags, values, program)
    if not found.url:
        raise InvalidInput(say("{program} is told no address", program=program))
    return found


def _long(
    found: _Found,
    word: str,
    rest: list[str],
    flags: frozenset[str],
    values: Mapping[str, Take],
    program: str,
) -> None:
    name, equals, value = word.partition("=")
    if name in values:
        if not equals and not rest:
            raise InvalidInput(say("{option} needs a value", option=name))
        values[name](found, value if equals else rest.pop(0))
    elif name in _ACTS:
        _ACTS[name](found, "")
    elif name not in flags:
        raise _unknown(name, program)


def _short(
    found: _Found,
    word: str,
    rest: list[str],
    flags: frozenset[str],
    values: Mapping[str, Take],
    program: str,
) -> None:
    """`-fsSLX POST`: flags in a row, the last of which may have a value."""
    for place, sign in enumerate(word[1:], 1):
        name = f"-{sign}"
        if name in values:
            value = word[place + 1 :]
            if not value and not rest:
                raise InvalidInput(say("{option} needs a value", option=name))
            values[name](found, value or rest.pop(0))
            return
        if name in _ACTS:
            _ACTS[name](found, "")
        elif name not in flags:
            raise _unknown(name, program)


def _unknown(name: str, program: str) -> InvalidInput:
    return InvalidInput(
        say("{option} of {program} has no counterpart here", option=name, program=program)
    )


def _called(found: _Found) -> Call:
    target: dict[str, object] = {
        "kind": "http",
        "url": found.url if "://" in found.url else f"http://{found.url}",
        "method": found.method or ("POST" if found.body else "GET"),
    }
    if found.headers:
        target["headers"] = found.headers
    if found.body:
        target["body"] = "&".join(found.body)
    if not found.verify_tls:
        target["verify_tls"] = False
    return Call(target=target, policy=found.policy)


# --- what the options mean ------------------------------------------------------------------------
def _address(found: _Found, value: str) -> None:
    if found.url:
        raise InvalidInput(say("one line can call one address; {url!r} is another", url=value))
    found.url = value


def _method(found: _Found, value: str) -> None:
    found.method = value.upper()


def _header(found: _Found, value: str) -> None:
    name, colon, content = value.partition(":")
    if not colon or not name.strip():
        raise InvalidInput(say("a header is written as Name: value, not {text!r}", text=value))
    found.headers[name.strip()] = content.strip()


def _data(found: _Found, value: str) -> None:
    if value.startswith("@"):
        raise InvalidInput(say("the file {file} cannot be read from here", file=value[1:]))
    found.body.append(value)


def _form_data(found: _Found, value: str) -> None:
    _data(found, value)
    found.headers.setdefault("Content-Type", "application/x-www-form-urlencoded")


def _raw_data(found: _Found, value: str) -> None:
    found.body.append(value)
    found.headers.setdefault("Content-Type", "application/x-www-form-urlencoded")


def _json(found: _Found, value: str) -> None:
    _data(found, value)
    found.headers |= {"Content-Type": "application/json", "Accept": "application/json"}


def _user(found: _Found, value: str) -> None:
    found.headers["Authorization"] = f"Basic {base64.b64encode(value.encode()).decode()}"


def _agent(found: _Found, value: str) -> None:
    found.headers["User-Agent"] = value


def _timeout(found: _Found, value: str) -> None:
    found.policy["timeout"] = f"{value}s"


def _retries(found: _Found, value: str) -> None:
    if not value.isdigit():
        raise InvalidInput(say("{value!r} is no number of attempts", value=value))
    found.policy["max_retries"] = int(value)


def _tries(found: _Found, value: str) -> None:
    _retries(found, value)
    found.policy["max_retries"] = max(0, int(value) - 1)


def _nothing(found: _Found, value: str) -> None:
    """Is about the output, or is done anyway."""


def _insecure(found: _Found, value: str) -> None:
    found.verify_tls = False


def _head(found: _Found, value: str) -> None:
    found.method = "HEAD"


#: Flags that change the call.
_ACTS: Mapping[str, Take] = {
    "-k": _insecure,
    "--insecure": _insecure,
    "--no-check-certificate": _insecure,
    "-I": _head,
    "--head": _head,
    "--spider": _head,
}
_CURL_FLAGS = frozenset(
    [
        *("-s", "-S", "-f", "-L", "-i", "-v", "-g", "-q", "--silent", "--show-error", "--fail"),
        *("--fail-with-body", "--location", "--include", "--verbose", "--compressed"),
        *("--no-progress-meter", "--http1.1", "--http2"),
    ]
)
_CURL_VALUES: Mapping[str, Take] = {
    "-X": _method,
    "--request": _method,
    "-H": _header,
    "--header": _header,
    "-d": _form_data,
    "--data": _form_data,
    "--data-ascii": _form_data,
    "--data-binary": _form_data,
    "--data-raw": _raw_data,
    "--json": _json,
    "-u": _user,
    "--user": _user,
    "-A": _agent,
    "--user-agent": _agent,
    "-m": _timeout,
    "--max-time": _timeout,
    "--retry": _retries,
    "--url": _address,
    "-o": _nothing,
    "--output": _nothing,
    "-w": _nothing,
    "--write-out": _nothing,
    "--connect-timeout": _nothing,
    "--retry-delay": _nothing,
}
_WGET_FLAGS = frozenset(["-q", "-n", "-v", "--quiet", "--no-verbose"])
_WGET_VALUES: Mapping[str, Take] = {
    "-O": _nothing,
    "--output-document": _nothing,
    "--post-data": _form_data,
    "--method": _method,
    "--body-data": _data,
    "--header": _header,
    "-U": _agent,
    "--user-agent": _agent,
    "-T": _timeout,
    "--timeout": _timeout,
    "-t": _tries,
    "--tries": _tries,
}
