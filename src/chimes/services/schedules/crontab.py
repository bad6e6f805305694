"""Import of crontabs: each line becomes a schedule, or an error that says why it cannot.

Chimes runs no shell commands. A line with `curl` or `wget` becomes an HTTP call; any other command
needs a task that receives it.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import Message, _
from chimes.redaction import mask_url
from chimes.triggers import Cron
from chimes.triggers.zones import parse_zone

# --- curl and wget --------------------------------------------------------------------------------
# Only options with an exact counterpart are accepted; any other is an error that names it.

_SHELL_OPERATORS = ("|", "||", "&&", ";", "&", "<", "<<")
#: Redirections of the output are ignored.
_REDIRECTIONS = (">", ">>", "1>", "2>", "&>", "2>>", "1>>", "&>>")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpCall:
    """Target and policy as JSON objects of the API."""

    target: Mapping[str, object]
    policy: Mapping[str, object]


@dataclass(slots=True)
class _Command:
    url: str = ""
    method: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    verify_tls: bool = True
    policy: dict[str, object] = field(default_factory=dict)


OptionHandler = Callable[[_Command, str], None]


def parse_http_command(command: str) -> HttpCall | None:
    """The call of a `curl` or `wget` command; None for any other command. Raises InvalidInput for
    an option without a counterpart."""
    try:
        words = shlex.split(command)
    except ValueError:
        raise InvalidInput(_("a quotation mark is not closed")) from None
    program = words[0].rpartition("/")[2] if words else ""
    if program == "curl":
        return _to_call(_parse_options(words[1:], _CURL_FLAGS, _CURL_VALUES, program))
    if program == "wget":
        return _to_call(_parse_options(words[1:], _WGET_FLAGS, _WGET_VALUES, program))
    return None


def _parse_options(
    words: list[str], flags: frozenset[str], values: Mapping[str, OptionHandler], program: str
) -> _Command:
    command, rest = _Command(), list(words)
    while rest:
        word = rest.pop(0)
        if word in _REDIRECTIONS:
            if rest:
                rest.pop(0)
        elif word.startswith(_REDIRECTIONS):
            continue
        elif _needs_shell(word):
            raise InvalidInput(_("{word!r} needs a shell, which is not available", word=word))
        elif not word.startswith("-") or word == "-":
            _url(command, word)
        elif word.startswith("--"):
            _parse_long_option(command, word, rest, flags, values, program)
        else:
            _parse_short_options(command, word, rest, flags, values, program)
    if not command.url:
        raise InvalidInput(_("{program} has no URL", program=program))
    return command


def _needs_shell(word: str) -> bool:
    return word in _SHELL_OPERATORS or word.startswith(("|", ";", "$(", "`")) or word.endswith(";")


def _parse_long_option(
    command: _Command,
    word: str,
    rest: list[str],
    flags: frozenset[str],
    values: Mapping[str, OptionHandler],
    program: str,
) -> None:
    name, equals, value = word.partition("=")
    if name in values:
        if not equals and not rest:
            raise InvalidInput(_("{option} needs a value", option=name))
        values[name](command, value if equals else rest.pop(0))
    elif name in _FLAG_ACTIONS:
        _FLAG_ACTIONS[name](command, "")
    elif name not in flags:
        raise _unknown(name, program)


def _parse_short_options(
    command: _Command,
    word: str,
    rest: list[str],
    flags: frozenset[str],
    values: Mapping[str, OptionHandler],
    program: str,
) -> None:
    """Combined short options such as `-fsSLX POST`; the last one may have a value."""
    for index, letter in enumerate(word[1:], 1):
        name = f"-{letter}"
        if name in values:
            value = word[index + 1 :]
            if not value and not rest:
                raise InvalidInput(_("{option} needs a value", option=name))
            values[name](command, value or rest.pop(0))
            return
        if name in _FLAG_ACTIONS:
            _FLAG_ACTIONS[name](command, "")
        elif name not in flags:
            raise _unknown(name, program)


def _unknown(name: str, program: str) -> InvalidInput:
    return InvalidInput(
        _("option {option} of {program} is not supported", option=name, program=program)
    )


def _to_call(command: _Command) -> HttpCall:
    target: dict[str, object] = {
        "kind": "http",
        "url": command.url if "://" in command.url else f"http://{command.url}",
        "method": command.method or ("POST" if command.body else "GET"),
    }
    if command.headers:
        target["headers"] = command.headers
    if command.body:
        target["body"] = "&".join(command.body)
    if not command.verify_tls:
        target["verify_tls"] = False
    return HttpCall(target=target, policy=command.policy)


# --- options --------------------------------------------------------------------------------------
def _url(command: _Command, value: str) -> None:
    if command.url:
        raise InvalidInput(_("one line can call only one URL; {url!r} is a second one", url=value))
    command.url = value


def _method(command: _Command, value: str) -> None:
    command.method = value.upper()


def _header(command: _Command, value: str) -> None:
    name, colon, content = value.partition(":")
    if not colon or not name.strip():
        raise InvalidInput(_("a header has the form Name: value, not {text!r}", text=value))
    command.headers[name.strip()] = content.strip()


def _data(command: _Command, value: str) -> None:
    if value.startswith("@"):
        raise InvalidInput(_("the file {file} cannot be read on the server", file=value[1:]))
    command.body.append(value)


def _form_data(command: _Command, value: str) -> None:
    _data(command, value)
    command.headers.setdefault("Content-Type", "application/x-www-form-urlencoded")


def _raw_data(command: _Command, value: str) -> None:
    command.body.append(value)
    command.headers.setdefault("Content-Type", "application/x-www-form-urlencoded")


def _json(command: _Command, value: str) -> None:
    _data(command, value)
    command.headers |= {"Content-Type": "application/json", "Accept": "application/json"}


def _user(command: _Command, value: str) -> None:
    command.headers["Authorization"] = f"Basic {base64.b64encode(value.encode()).decode()}"


def _agent(command: _Command, value: str) -> None:
    command.headers["User-Agent"] = value


def _timeout(command: _Command, value: str) -> None:
    command.policy["timeout"] = f"{value}s"


def _retries(command: _Command, value: str) -> None:
    if not value.isdigit():
        raise InvalidInput(_("{value!r} is not a number of attempts", value=value))
    command.policy["max_retries"] = int(value)


def _tries(command: _Command, value: str) -> None:
    _retries(command, value)
    command.policy["max_retries"] = max(0, int(value) - 1)


def _ignore(command: _Command, value: str) -> None:
    """For options that concern the output, or that Chimes does anyway."""


def _insecure(command: _Command, value: str) -> None:
    command.verify_tls = False


def _head(command: _Command, value: str) -> None:
    command.method = "HEAD"


#: Flags that change the call.
_FLAG_ACTIONS: Mapping[str, OptionHandler] = {
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
_CURL_VALUES: Mapping[str, OptionHandler] = {
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
    "--url": _url,
    "-o": _ignore,
    "--output": _ignore,
    "-w": _ignore,
    "--write-out": _ignore,
    "--connect-timeout": _ignore,
    "--retry-delay": _ignore,
}
_WGET_FLAGS = frozenset(["-q", "-n", "-v", "--quiet", "--no-verbose"])
_WGET_VALUES: Mapping[str, OptionHandler] = {
    "-O": _ignore,
    "--output-document": _ignore,
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


MAX_LINES = 2000
_MAX_NAME = 80
_SETTING = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")
_ZONES = ("CRON_TZ", "TZ")
#: A line of a crontab, to distinguish a crontab from other texts.
_LINE = re.compile(r"\s*(?:@[a-z]+|(?:[0-9*][^\s:]*)(?:\s+[0-9A-Za-z*?,/#-]+){4})\s+\S")

Json = dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class CrontabLine:
    number: int
    text: str
    #: The schedule as JSON of the API; None: see `error`.
    definition: Json | None = None
    error: str = ""
    #: Something that was ignored.
    note: Message | None = None


def is_crontab(text: str) -> bool:
    """Whether the first line that is not blank, a comment or a setting is a crontab line."""
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#") or _SETTING.match(line):
            continue
        return _LINE.match(line) is not None
    return False


def crontab_lines(
    text: str, *, zone: str, task: str = "", users: bool = False
) -> tuple[CrontabLine, ...]:
    """`task`: receives the commands that are no HTTP calls as its argument `command`. `users`: a
    user name stands before the command, as in /etc/crontab."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        raise InvalidInput(_("a crontab has at most {most} lines", most=MAX_LINES), field="text")
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
                note = _("{name} was ignored, because no shell is used", name=name)
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
        raise InvalidInput(_("@reboot is not a time"))
    trigger = Cron(expression, timezone=zone)
    if users:
        rest = rest.partition(" ")[2].strip()
    if not rest:
        raise InvalidInput(_("there is no command after the time"))
    command = _without_percent(rest)
    call = parse_http_command(command)
    if call is not None:
        target, policy = call.target, call.policy
    elif task:
        target, policy = {"kind": "task", "name": task, "args": {"command": command}}, {}
    else:
        raise InvalidInput(
            _(
                "{command!r} is a shell command; use curl to call a URL, or name a task that"
                " receives such commands",
                command=_short(command),
            )
        )
    default_name = command if call is None else f"{target['method']} {mask_url(str(target['url']))}"
    found: Json = {
        "name": _short(title or default_name),
        "trigger": trigger.to_dict(),
        "target": dict(target),
    }
    return found | ({"policy": dict(policy)} if policy else {})


def _split(text: str) -> tuple[str, str]:
    parts = text.split(maxsplit=1 if text.startswith("@") else 5)
    wanted = 2 if text.startswith("@") else 6
    if len(parts) < wanted:
        raise InvalidInput(
            _("a line has five fields and a command, such as: 0 9 * * 1-5 curl https://…")
        )
    return " ".join(parts[:-1]), parts[-1]


def _without_percent(command: str) -> str:
    """In a crontab, text after % is the standard input of the command; `\\%` is a literal %."""
    if re.search(r"(?<!\\)%", command):
        raise InvalidInput(
            _(r"standard input after % is not supported; write \% for a percent sign")
        )
    return command.replace("\\%", "%")


def _short(text: str) -> str:
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…"
