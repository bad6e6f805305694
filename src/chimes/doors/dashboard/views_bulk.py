"""One action on many schedules: what is asked, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from chimes.errors import InvalidInput
from chimes.model.ids import ScheduleId
from chimes.model.policy import Overlap
from chimes.model.schedule import Schedule
from chimes.triggers import trigger_from_dict
from chimes.triggers.zone import parse_zone
from chimes.wording import Wording, counted, say

Edit = Callable[[Schedule], Schedule]


class Verb(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    RUN = "run"
    LABEL = "label"
    ZONE = "zone"
    OVERLAP = "overlap"
    EXPORT_YAML = "export_yaml"
    EXPORT_JSON = "export_json"
    DELETE = "delete"
    #: Undoes a deletion.
    RESTORE = "restore"


EXPORTS = (Verb.EXPORT_YAML, Verb.EXPORT_JSON)
#: What takes back what; the others cannot be taken back at once.
UNDOES: Mapping[Verb, Verb] = {
    Verb.PAUSE: Verb.RESUME,
    Verb.RESUME: Verb.PAUSE,
    Verb.DELETE: Verb.RESTORE,
}


def verb_from(text: str) -> Verb:
    if text not in set(Verb):
        raise InvalidInput(say("one of {known}", known=", ".join(Verb)), field="verb")
    return Verb(text)


def question(verb: Verb, count: int) -> Wording:
    match verb:
        case Verb.PAUSE:
            return counted("Pause {count} schedule?", "Pause {count} schedules?", count)
        case Verb.RESUME:
            return counted("Resume {count} schedule?", "Resume {count} schedules?", count)
        case Verb.RUN:
            return counted("Run {count} schedule now?", "Run {count} schedules now?", count)
        case Verb.LABEL:
            return counted("Label {count} schedule?", "Label {count} schedules?", count)
        case Verb.ZONE:
            return counted(
                "Change the time zone of {count} schedule?",
                "Change the time zone of {count} schedules?",
                count,
            )
        case Verb.OVERLAP:
            return counted(
                "Change what overlaps do in {count} schedule?",
                "Change what overlaps do in {count} schedules?",
                count,
            )
        case Verb.RESTORE:
            return counted("Bring {count} schedule back?", "Bring {count} schedules back?", count)
        case _:
            return counted("Delete {count} schedule?", "Delete {count} schedules?", count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one of them."""

    id: ScheduleId
    name: str
    #: Empty: it was done.
    error: str = ""
    #: What it led to, where that has a page.
    address: str = ""
    #: Nothing was done, and that is as it should be.
    left_out: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far an action on many had come with the requests before."""

    #: Of how many; 0: it is all done with one request.
    total: int = 0
    done: int = 0
    refused: int = 0
    left_out: int = 0
    #: Since when; None: nobody has to know.
    started: datetime | None = None
    #: Where it goes on; empty: nothing is left.
    cursor: str = ""

    @property
    def seen(self) -> int:
        return self.done + self.refused + self.left_out

    @property
    def left(self) -> int:
        return self.total - self.seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    verb: Verb
    items: Sequence[Outcome]
    #: Its cursor is where it goes on after these.
    before: Progress = Progress()

    @property
    def done(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.items if not each.error and not each.left_out)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.items if each.error)

    @property
    def progress(self) -> Progress:
        """With these."""
        done, refused = len(self.done), len(self.failed)
        return replace(
            self.before,
            done=self.before.done + done,
            refused=self.before.refused + refused,
            left_out=self.before.left_out + len(self.items) - done - refused,
        )

    @property
    def undo(self) -> Verb | None:
        return UNDOES.get(self.verb) if self.progress.done else None

    @property
    def worst_first(self) -> tuple[Outcome, ...]:
        return tuple(sorted(self.items, key=lambda each: (not each.error, each.left_out)))


def labelled(text: str) -> Edit:
    """`name` or `name=value`."""
    name, equals, value = text.strip().partition("=")
    if not name.strip():
        raise InvalidInput(say("a label is written as name or name=value"), field="label")
    return lambda before: replace(
        before, labels={**before.labels, name.strip(): value.strip() if equals else None}
    )


def in_zone(text: str) -> Edit:
    zone = parse_zone(text.strip(), field="zone").name

    def edit(before: Schedule) -> Schedule:
        plain = before.trigger.to_dict()
        if plain["kind"] == "every":
            raise InvalidInput(say("an interval is the same in every time zone"))
        after = trigger_from_dict({**plain, "timezone": zone})
        if after.zone != zone:
            raise InvalidInput(say("its expression names a time zone itself; edit it there"))
        return replace(before, trigger=after)

    return edit


def overlapping(text: str) -> Edit:
    if text not in set(Overlap):
        raise InvalidInput(say("one of {known}", known=", ".join(Overlap)), field="overlap")
    return lambda before: replace(before, policy=replace(before.policy, overlap=Overlap(text)))
