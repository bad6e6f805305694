"""From what was written to what is wanted; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,64})(?:@([A-Za-z0-9_]+))?(?:\s+|$)(.*)", re.DOTALL)


class Verb(StrEnum):
    CREATE = "schedule"
    LIST = "schedules"
    RUNS = "schedule_runs"
    PAUSE = "schedule_pause"
    RESUME = "schedule_resume"
    RUN = "schedule_run"
    DELETE = "schedule_delete"
    SNOOZE = "schedule_snooze"
    #: Only by a button: a run that has no schedule.
    RETRY = "run_again"
    #: Only by a button: what a message tells is dealt with.
    DONE = "done"
    START = "start"
    LINK = "link"
    UNLINK = "unlink"
    LANGUAGE = "language"
    TIMEZONE = "timezone"
    HELP = "help"
    #: Words without a command.
    WORDS = "words"
    UNKNOWN = "unknown"

    @property
    def changes(self) -> bool:
        """Whether doing it much later than it was asked for may surprise (S58)."""
        return self not in (Verb.LIST, Verb.RUNS, Verb.HELP, Verb.UNKNOWN)


_BY_BUTTON_OR_NONE = (Verb.WORDS, Verb.UNKNOWN, Verb.DONE)
_NAMES = {verb.value: verb for verb in Verb if verb not in _BY_BUTTON_OR_NONE} | {
    # Other names of the seed's users.
    "schedule_disable": Verb.PAUSE,
    "schedule_enable": Verb.RESUME,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    verb: Verb
    argument: str = ""
    #: As it was written, for an answer.
    name: str = ""
    #: The bot that was meant, where one was named.
    bot: str = ""


def read_command(text: str) -> Command:
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return Command(verb=Verb.WORDS, argument=text.strip())
    name = found[1].lower()
    return Command(
        verb=_NAMES.get(name, Verb.UNKNOWN),
        argument=found[3].strip(),
        name=name,
        bot=found[2] or "",
    )
