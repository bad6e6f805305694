"""Corrupt rows: decodes as much as possible of rows that are damaged or were edited manually.

One such row must not hide other rows, nor stop work on them. Parts that cannot be decoded are
replaced by placeholders, and the error names them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chimes.clock import EPOCH
from chimes.errors import message_of
from chimes.i18n import _
from chimes.model import replace
from chimes.model.policy import Policy
from chimes.model.run import Origin, Reason, Run, RunDefinition, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.store.codec.values import labels_from_plain
from chimes.store.sql.rows.run import attempts_of, run_of
from chimes.store.sql.rows.schedule import dependency_of, schedule_of
from chimes.store.sql.rows.values import (
    STATUSES,
    TargetTexts,
    decode_object,
    encode,
    owner_of,
    policy_of,
    policy_text,
    target_of,
    trigger_of,
)
from chimes.store.sql.tables import RUN_COLUMNS, SCHEDULE_COLUMNS
from chimes.triggers import Once

_log = logging.getLogger(__name__)

#: Decoder of a column, and its placeholder.
_Part = tuple[Callable[[Any], object], object]

_SCHEDULE_NAMES = tuple(each.name for each in SCHEDULE_COLUMNS)
_RUN_NAMES = tuple(each.name for each in RUN_COLUMNS)
_SCHEDULE: Mapping[str, _Part] = {
    "owner_type": (lambda word: owner_of(word, "x"), "system"),
    "trigger": (trigger_of, encode(Once(EPOCH).to_dict())),
    "target": (target_of, TargetTexts()(HttpTarget(url="unreadable:"))),
    "policy": (policy_of, policy_text(Policy())),
    "labels": (lambda text: labels_from_plain(decode_object(text)), "{}"),
    "depends_on": (dependency_of, None),
    "compat_data": (decode_object, "{}"),
    "last_status": (STATUSES.__getitem__, None),
}
_RUN: Mapping[str, _Part] = {
    "origin": (Origin, Origin.MANUAL.value),
    "status": (STATUSES.__getitem__, RunStatus.FAILED.value),
    "result": (decode_object, None),
    "attempts": (attempts_of, None),
}


def decode_schedule(row: Sequence[Any]) -> Schedule:
    return decode_schedule_and_damage(row)[0]


def decode_schedule_and_damage(row: Sequence[Any]) -> tuple[Schedule, frozenset[str]]:
    """Returns the schedule, and the names of its fields that are placeholders."""
    try:
        return schedule_of(row), frozenset()
    except Exception as error:
        _log.warning("schedule %s cannot be read: %s", row[1], error)
        repaired, damage = _repair(row, _SCHEDULE_NAMES, _SCHEDULE)
        message = _(
            "{parts} of this schedule cannot be read: {error}",
            parts=", ".join(sorted(damage)),
            error=message_of(error),
        )
        # The last status is not part of the definition, so losing it is no damage.
        return replace(schedule_of(repaired), last_error=str(message)), damage - {"last_status"}


def decode_run(row: Sequence[Any], definition: RunDefinition) -> Run:
    """The run has the reason `unreadable_row` if a field is a placeholder."""
    try:
        return run_of(row, definition)
    except Exception as error:
        _log.warning("run %s cannot be read: %s", row[0], error)
        repaired, damage = _repair(row, _RUN_NAMES, _RUN)
        message = _(
            "{parts} of this run cannot be read: {error}",
            parts=", ".join(sorted(damage)),
            error=message_of(error),
        )
        run = run_of(repaired, definition)
        return replace(run, error=str(message), reason=Reason.UNREADABLE)


def _repair(
    row: Sequence[Any], names: Sequence[str], parts: Mapping[str, _Part]
) -> tuple[list[Any], frozenset[str]]:
    values, damage = list(row), set()
    for place, name in enumerate(names):
        if name not in parts or values[place] is None:
            continue
        read, instead = parts[name]
        try:
            read(values[place])
        except Exception:
            values[place] = instead
            damage.add(name)
    return values, frozenset(damage)
