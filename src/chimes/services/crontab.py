"""A crontab read as schedules: what each line becomes, or why it cannot be one.

Chimes calls addresses and runs tasks, not shells. A line that calls `curl` or `wget` becomes that
call; any other needs a task to hand its command to."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import Message, _
from chimes.triggers import Cron
from chimes.triggers.zones import parse_zone

# @@ `curl …` and `wget …` as what they do: a call of an address. Only what can be said in full is
# taken; anything else is an error that names it, and nothing is guessed.

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


def parse_http_command(command: str) -> Call | None:
    """None: it is another command. InvalidInput: it is one of these, with something in it that a
    call has no place for."""
    try:
        words = shlex.split(command)
    except ValueError:
        raise InvalidInput(_("a quotation mark is not closed")) from None
    program = words[0].rpartition("/")[2] if words else ""
    if program == "curl":
        return _called(_read_shell_calls(words[1:], _CURL_FLAGS, _CURL_VALUES, program))
    if program == "wget":
        return _called(_read_shell_calls(words[1:], _WGET_FLAGS, _WGET_VALUES, program))
    return None


def _read_shell_calls(
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
            raise InvalidInput(_("{word!r} is for a shell", word=word))
        elif not word.startswith("-") or word == "-":
            _address(found, word)
        elif word.startswith("--"):
            _long(found, word, rest, flags, values, program)
        else:
            _short_shell_calls(found, word, rest, flags, values, program)
    if not found.url:
        raise InvalidInput(_("{program} is told no address", program=program))
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
            raise InvalidInput(_("{option} needs a value", option=name))
        values[name](found, value if equals else rest.pop(0))
    elif name in _ACTS:
        _ACTS[name](found, "")
    elif name not in flags:
        raise _unknown(name, program)


def _short_shell_calls(
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
                raise InvalidInput(_("{option} needs a value", option=name))
            values[name](found, value or rest.pop(0))
            return
        if name in _ACTS:
            _ACTS[name](found, "")
        elif name not in flags:
            raise _unknown(name, program)


def _unknown(name: str, program: str) -> InvalidInput:
    return InvalidInput(
        _("{option} of {program} has no counterpart here", option=name, program=program)
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
        raise InvalidInput(_("one line can call one address; {url!r} is another", url=value))
    found.url = value


def _method(found: _Found, value: str) -> None:
    found.method = value.upper()


def _header(found: _Found, value: str) -> None:
    name, colon, content = value.partition(":")
    if not colon or not name.strip():
        raise InvalidInput(_("a header is written as Name: value, not {text!r}", text=value))
    found.headers[name.strip()] = content.strip()


def _data(found: _Found, value: str) -> None:
    if value.startswith("@"):
        raise InvalidInput(_("the file {file} cannot be read from here", file=value[1:]))
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
        raise InvalidInput(_("{value!r} is no number of attempts", value=value))
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


MOST_LINES = 2000
_LONGEST_NAME = 80
_SETTING = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")
_ZONES = ("CRON_TZ", "TZ")
#: Lines that look like one, for telling a crontab from other texts.
_LINE = re.compile(r"\s*(?:@[a-z]+|(?:[0-9*][^\s:]*)(?:\s+[0-9A-Za-z*?,/#-]+){4})\s+\S")

Json = dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class CrontabLine:
    number: int
    text: str
    #: As the API takes it; None: see `error`.
    definition: Json | None = None
    error: str = ""
    #: What was left out on the way.
    note: Message | None = None


def is_crontab(text: str) -> bool:
    """Whether the first line that says something reads like one."""
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#") or _SETTING.match(line):
            continue
        return _LINE.match(line) is not None
    return False


def crontab_lines(
    text: str, *, zone: str, task: str = "", users: bool = False
) -> tuple[CrontabLine, ...]:
    """`task`: gets the commands that are no calls, as its argument `command`. `users`: there is a
    user before the command, as in /etc/crontab."""
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise InvalidInput(
            _("a crontab has at most {most} lines here", most=MOST_LINES), field="text"
        )
    return tuple(_read(lines, parse_zone(zone, field="zone").name, task, users))


def _read(lines: list[str], zone: str, task: str, users: bool) -> Iterator[CrontabLine]:
    title = ""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("#"):
            title = text.lstrip("# ").strip()
            continue
        if not text:
            title = ""
            continue
        if setting := _SETTING.match(line):
            name, value = setting[1], setting[2].strip("\"'")
            if name in _ZONES:
                try:
                    zone = parse_zone(value).name
                except InvalidInput as error:
                    yield CrontabLine(number=number, text=text, error=error.message)
            else:
                note = _("{name} is for shells and has no meaning here", name=name)
                yield CrontabLine(number=number, text=text, note=note)
            continue
        try:
            definition = _definition(text, zone, task, users, title)
            yield CrontabLine(number=number, text=text, definition=definition)
        except ChimesError as error:
            yield CrontabLine(number=number, text=text, error=error.message)
        title = ""


def _definition(text: str, zone: str, task: str, users: bool, title: str) -> Json:
    expression, rest = _split(text)
    if expression == "@reboot":
        raise InvalidInput(_("@reboot has no time; a schedule needs one"))
    trigger = Cron(expression, timezone=zone)
    if users:
        rest = rest.partition(" ")[2].strip()
    if not rest:
        raise InvalidInput(_("there is no command after the time"))
    command = _without_percent(rest)
    called = parse_http_command(command)
    if called is not None:
        target, policy = called.target, called.policy
    elif task:
        target, policy = {"kind": "task", "name": task, "args": {"command": command}}, {}
    else:
        raise InvalidInput(
            _(
                "{command!r} is a command for a shell; call an address with curl, or name a task"
                " that gets such commands",
                command=_short(command),
            )
        )
    usual = command if called is None else f"{target['method']} {target['url']}"
    found: Json = {
        "name": _short(title or usual),
        "trigger": trigger.to_dict(),
        "target": dict(target),
    }
    return found | ({"policy": dict(policy)} if policy else {})


def _split(text: str) -> tuple[str, str]:
    parts = text.split(maxsplit=1 if text.startswith("@") else 5)
    wanted = 2 if text.startswith("@") else 6
    if len(parts) < wanted:
        raise InvalidInput(
            _("a line is five fields and a command, such as: 0 9 * * 1-5 curl https://…")
        )
    return " ".join(parts[:-1]), parts[-1]


def _without_percent(command: str) -> str:
    """Cron takes what follows a % as input of the command; `\\%` is a sign like others."""
    if re.search(r"(?<!\\)%", command):
        raise InvalidInput(
            _(r"a % begins the input of a command, which a call does not have; write \%")
        )
    return command.replace("\\%", "%")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
