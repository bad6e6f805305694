"""A crontab read as schedules: what each line becomes, or why it cannot be one.

Chimes calls addresses and runs tasks, not shells. A line that calls `curl` or `wget` becomes that
call; any other needs a task to hand its command to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from chimes.errors import ChimesError, InvalidInput
from chimes.service.shell_calls import call_in
from chimes.triggers import Cron
from chimes.triggers.zone import parse_zone
from chimes.wording import Wording, say

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
    note: Wording | None = None


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
            say("a crontab has at most {most} lines here", most=MOST_LINES), field="text"
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
                note = say("{name} is for shells and has no meaning here", name=name)
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
        raise InvalidInput(say("@reboot has no time; a schedule needs one"))
    trigger = Cron(expression, timezone=zone)
    if users:
        rest = rest.partition(" ")[2].strip()
    if not rest:
        raise InvalidInput(say("there is no command after the time"))
    command = _without_percent(rest)
    called = call_in(command)
    if called is not None:
        target, policy = called.target, called.policy
    elif task:
        target, policy = {"kind": "task", "name": task, "args": {"command": command}}, {}
    else:
        raise InvalidInput(
            say(
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
            say("a line is five fields and a command, such as: 0 9 * * 1-5 curl https://…")
        )
    return " ".join(parts[:-1]), parts[-1]


def _without_percent(command: str) -> str:
    """Cron takes what follows a % as input of the command; `\\%` is a sign like others."""
    if re.search(r"(?<!\\)%", command):
        raise InvalidInput(
            say(r"a % begins the input of a command, which a call does not have; write \%")
        )
    return command.replace("\\%", "%")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
