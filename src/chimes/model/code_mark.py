"""What a schedule keeps of the code that declares it: where that is, and what it was like when it
was last written from there. Who edits it otherwise detaches it: code that is started again does
not overwrite the edit (ADR 33)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum

from chimes.model.change import replace
from chimes.model.schedule import Schedule
from chimes.triggers import Trigger

#: Among what doors keep.
_KEY = "declared"


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeMark:
    #: `shop/tasks.py:12`
    at: str
    #: Of the definition as the code last wrote it; empty: whatever it is, the code may write it.
    digest: str


def code_mark(schedule: Schedule) -> CodeMark | None:
    """None: no code declares it, as far as is known."""
    kept = schedule.door_data.get(_KEY)
    if not isinstance(kept, Mapping):
        return None
    return CodeMark(at=str(kept.get("at", "")), digest=str(kept.get("digest", "")))


def is_detached(schedule: Schedule) -> bool:
    """Whether somebody has edited it since the code wrote it."""
    mark = code_mark(schedule)
    return mark is not None and mark.digest not in ("", definition_digest(schedule))


def marked(schedule: Schedule, at: str) -> Schedule:
    """As it is now it was written by the code that stands there."""
    return _with(schedule, CodeMark(at=at, digest=definition_digest(schedule)))


def found_at(schedule: Schedule, at: str) -> Schedule:
    """The same mark, of code that stands elsewhere by now."""
    mark = code_mark(schedule)
    return schedule if mark is None else _with(schedule, replace(mark, at=at))


def attached(schedule: Schedule) -> Schedule:
    """Edits or not, the code may write it when it is started again."""
    mark = code_mark(schedule)
    return schedule if mark is None else _with(schedule, replace(mark, digest=""))


def unmarked(schedule: Schedule) -> Schedule:
    kept = {name: each for name, each in schedule.door_data.items() if name != _KEY}
    return schedule if len(kept) == len(schedule.door_data) else replace(schedule, door_data=kept)


def _with(schedule: Schedule, mark: CodeMark) -> Schedule:
    plain = {"at": mark.at, "digest": mark.digest}
    if schedule.door_data.get(_KEY) == plain:
        return schedule
    return replace(schedule, door_data={**schedule.door_data, _KEY: plain})


def definition_digest(schedule: Schedule) -> str:
    """Equal for equal definitions, before and after a store has kept them. Fields that have their
    usual value are left out, so that a release with more of them changes no digest."""
    definition = {
        "trigger": schedule.trigger,
        "target": schedule.target,
        "policy": schedule.policy,
        "priority": schedule.priority,
        "labels": schedule.labels,
        "depends_on": schedule.depends_on,
    }
    text = json.dumps(_plain(definition), sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, Trigger):
        return _plain(value.to_dict())
    if is_dataclass(value):
        found: dict[str, object] = {"is": type(value).__name__}
        for each in fields(value):
            item = getattr(value, each.name)
            made = each.default_factory
            usual = each.default if made is MISSING else made()
            if item != usual:
                found[each.name] = _plain(item)
        return found
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, str | Enum):
        return str(value)
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value
