"""Import of crontabs: each line becomes a schedule, or an error that says why it cannot.

A line with `curl` or `wget` becomes an HTTP call if it does nothing else: all its options have a
counterpart, it writes no file, and no shell has to expand or connect anything. Any other line
becomes a command, or the argument of a task that receives such lines.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import Message, _
from chimes.redaction import mask_url
from chimes.triggers import Cron
from chimes.triggers.zones import parse_zone

# --- curl and wget --------------------------------------------------------------------------------
# Only options with an exact counterpart are accepted; any other is an error that names it.

#: A quoted or escaped part of a command, in which operators of a shell have no meaning.
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
#: Redirections without an effect besides the call. A digit is a descriptor if it stands alone.
_DISCARDED = re.compile(r"(?:(?:(?<!\S)[12]|&)?>{1,2}\s*/dev/null|(?:(?<!\S)[12])?>&[12])(?!\S)")
#: What only a shell can do, and `{{`, which would become a placeholder of Chimes. Variables and
#: substitutions count within quotation marks, too.
_OPERATOR = re.compile(r"[|&;<>()]+")
_EXPANSION = re.compile(r"\$|`|\{\{")
#: curl calls each URL of such a pattern, and shells expand the first form.
_URL_PATTERN = re.compile(r"\{.*\}|\[\w+-\w+(?::\d+)?\]")
#: Values of the option for the output that write no file.
_NO_FILE = ("/dev/null", "-")


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
    #: Where the answer is written; empty: curl prints it, wget writes a file.
    output: str = ""


OptionHandler = Callable[[_Command, str], None]


def parse_http_command(command: str) -> HttpCall | None:
    """The call of a `curl` or `wget` command; None for any other command, and for one that writes
    the answer to a file. Raises InvalidInput for a part without a counterpart."""
    words = _words(command)
    program = words[0].rpartition("/")[2] if words else ""
    if program not in ("curl", "wget"):
        return None
    words = _words(_without_discarded_output(command))[1:]
    if program == "curl":
        found = _parse_options(words, _CURL_FLAGS, _CURL_VALUES, program)
    else:
        found = _parse_options(words, _WGET_FLAGS, _WGET_VALUES, program)
    printed = found.output in _NO_FILE or (program == "curl" and not found.output)
    return _to_call(found) if printed else None


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        raise InvalidInput(_("a quotation mark is not closed")) from None


def _without_discarded_output(command: str) -> str:
    """The command without redirections to /dev/null. Raises InvalidInput if the rest needs a
    shell."""
    # Quoted parts keep their length, so that the positions are those of the command.
    unquoted = _QUOTED.sub(lambda found: "x" * len(found[0]), command)
    kept, copied = "", 0
    for redirection in _DISCARDED.finditer(unquoted):
        kept += command[copied : redirection.start()] + " "
        copied = redirection.end()
    found = _OPERATOR.search(_DISCARDED.sub(" ", unquoted)) or _EXPANSION.search(command)
    if found is not None:
        raise InvalidInput(_("{word!r} needs a shell, which is not available", word=found[0]))
    return kept + command[copied:]


def _parse_options(
    words: list[str], flags: frozenset[str], values: Mapping[str, OptionHandler], program: str
) -> _Command:
    command, rest = _Command(), list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            _url(command, word)
        elif word.startswith("--"):
            _parse_long_option(command, word, rest, flags, values, program)
        else:
            _parse_short_options(command, word, rest, flags, values, program)
    if not command.url:
        raise InvalidInput(_("{program} has no URL", program=program))
    return command


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
    if command.url or _URL_PATTERN.search(value):
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


def _retry_delay(command: _Command, value: str) -> None:
    command.policy["retry_backoff"] = f"{value}s"


def _output(command: _Command, value: str) -> None:
    if not command.output or command.output in _NO_FILE:
        command.output = value


def _ignore(command: _Command, value: str) -> None:
    """For options that concern messages, or limits that Chimes sets itself."""


def _insecure(command: _Command, value: str) -> None:
    command.verify_tls = False


def _head(command: _Command, value: str) -> None:
    command.method = "HEAD"
    command.output = command.output or "-"


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
    "-o": _output,
    "--output": _output,
    "-w": _ignore,
    "--write-out": _ignore,
    "--connect-timeout": _ignore,
    "--retry-delay": _retry_delay,
}
_WGET_FLAGS = frozenset(["-q", "-n", "-v", "--quiet", "--no-verbose"])
_WGET_VALUES: Mapping[str, OptionHandler] = {
    "-O": _output,
    "--output-document": _output,
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
#: A line of a crontab, to distinguish a crontab from other texts.
_LINE = re.compile(r"\s*(?:@[a-z]+|(?:[0-9*][^\s:]*)(?:\s+[0-9A-Za-z*?,/#-]+){4})\s+\S")
#: Cron's rules for times that a clock change skips or repeats.
_DST: Final = "vixie"
_DEFAULT_SHELL = "/bin/sh"
_PERCENT = re.compile(r"\\%|%")

Json = dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class CrontabLine:
    number: int
    text: str
    #: The schedule as JSON of the API; None: see `error`.
    definition: Json | None = None
    error: str = ""
    #: What was ignored or means something else.
    notes: tuple[Message, ...] = ()


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
    reader = _Reader(parse_zone(zone, field="zone").name, task, users)
    return tuple(reader.read(lines))


class _Reader:
    """Reads a crontab from top to bottom: settings apply to the lines below them."""

    def __init__(self, zone: str, task: str, users: bool) -> None:
        self._zone = zone
        self._task = task
        self._users = users
        self._variables: dict[str, str] = {}
        self._shell = _DEFAULT_SHELL
        self._recipients: list[Json] = []

    def read(self, lines: list[str]) -> Iterator[CrontabLine]:
        title = ""
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if text.startswith("#"):
                title = text.lstrip("# ").strip()
                continue
            if not text:
                title = ""
                continue
            try:
                if setting := _SETTING.match(line):
                    note = self._set(setting[1], _unquoted(setting[2]))
                    if note is not None:
                        yield CrontabLine(number=number, text=text, notes=(note,))
                    continue
                definition, notes = self._definition(text, title)
                yield CrontabLine(number=number, text=text, definition=definition, notes=notes)
            except ChimesError as error:
                yield CrontabLine(number=number, text=text, error=error.message)
            title = ""

    def _set(self, name: str, value: str) -> Message | None:
        """Returns a note if the setting does not mean what it does for cron."""
        match name:
            case "CRON_TZ":
                self._zone = parse_zone(value).name
            case "SHELL":
                self._shell = value or _DEFAULT_SHELL
            case "MAILTO":
                addresses = [each.strip() for each in value.split(",") if each.strip()]
                self._recipients = [
                    {"channel": "email", "to": each, "on": ["failure"]}
                    for each in addresses
                    if "@" in each
                ]
                if local := [each for each in addresses if "@" not in each]:
                    return _(
                        "{users}: a local user is no e-mail address; write MAILTO=name@domain",
                        users=", ".join(local),
                    )
                if addresses:
                    return _("failures are mailed, not every output")
            case "MAILFROM" | "CONTENT_TYPE" | "CONTENT_TRANSFER_ENCODING" | "RANDOM_DELAY":
                return _("{name} was ignored", name=name)
            case _:
                self._variables[name] = value
                if name == "TZ":
                    return _(
                        "TZ is a variable of the commands, as for cron; CRON_TZ sets the zone of "
                        "the times"
                    )
        return None

    def _definition(self, text: str, title: str) -> tuple[Json, tuple[Message, ...]]:
        expression, rest = _split(text)
        if expression == "@reboot":
            raise InvalidInput(
                _(
                    "@reboot is not a time: it runs when the machine starts. Let the init system "
                    "start it, for example a systemd unit"
                )
            )
        trigger = Cron(expression, timezone=self._zone, dst=_DST)
        user = ""
        if self._users:
            user, rest = _first_word(rest)
        if not rest:
            raise InvalidInput(_("there is no command after the time"))
        command, stdin = _split_percent(rest)
        notes: list[Message] = []
        call = None if stdin is not None else _http_call(command)
        target: Mapping[str, object]
        policy: Mapping[str, object] = {}
        name = command
        if call is not None:
            target, policy = call.target, call.policy
            name = f"{target['method']} {mask_url(str(target['url']))}"
        elif self._task:
            target = {"kind": "task", "name": self._task, "args": {"command": command}}
            if stdin is not None:
                raise InvalidInput(_("the task cannot receive the standard input after %"))
        else:
            target = self._command(command, stdin, user)
            if command.rstrip().endswith("&"):
                notes.append(
                    _("processes in the background end with their command; remove the & at the end")
                )
        found: Json = {
            "name": _short(title or name),
            "trigger": trigger.to_dict(),
            "target": dict(target),
        }
        if policy:
            found["policy"] = dict(policy)
        if self._recipients:
            found["delivery"] = [dict(each) for each in self._recipients]
        return found, tuple(notes)

    def _command(self, command: str, stdin: str | None, user: str) -> Json:
        own_shell = self._shell != _DEFAULT_SHELL
        found: Json = {"kind": "command"}
        found |= {"command": [self._shell, "-c", command]} if own_shell else {"shell": command}
        variables = self._variables | ({"SHELL": self._shell} if own_shell else {})
        if variables:
            found["env"] = variables
        if home := variables.get("HOME"):
            found["cwd"] = home
        if stdin is not None:
            found["stdin"] = stdin
        return found | ({"user": user} if user else {})


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _http_call(command: str) -> HttpCall | None:
    """None also for a call with options that have no counterpart: it stays a command."""
    try:
        return parse_http_command(command)
    except InvalidInput:
        return None


def _first_word(text: str) -> tuple[str, str]:
    word, *rest = text.split(None, 1)
    return word, rest[0] if rest else ""


def _split(text: str) -> tuple[str, str]:
    parts = text.split(maxsplit=1 if text.startswith("@") else 5)
    wanted = 2 if text.startswith("@") else 6
    if len(parts) < wanted:
        raise InvalidInput(
            _("a line has five fields and a command, such as: 0 9 * * 1-5 curl https://…")
        )
    return " ".join(parts[:-1]), parts[-1]


def _split_percent(text: str) -> tuple[str, str | None]:
    """The command and its standard input: text after the first % is the input, in which every
    further % is a line break; `\\%` is a literal %."""
    parts, copied = [""], 0
    for found in _PERCENT.finditer(text):
        parts[-1] += text[copied : found.start()]
        copied = found.end()
        if found[0] == "%":
            parts.append("")
        else:
            parts[-1] += "%"
    parts[-1] += text[copied:]
    command, *lines = parts
    if not lines:
        return command, None
    stdin = "\n".join(lines)
    return command, stdin if stdin.endswith("\n") or not stdin else stdin + "\n"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…"
