"""Earlier definitions of a schedule, as the audit has them: every change with what was before it.

Secrets are not in the audit; a version that is taken up again keeps those of now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from chimes.errors import InvalidInput, NotFound
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.listing import AuditQuery
from chimes.model.schedule import Schedule
from chimes.redaction import HIDDEN, masked_url
from chimes.store.codec.schedule import schedule_from_plain, schedule_to_plain
from chimes.store.port import Store
from chimes.wording import say

#: What a definition consists of; switches and the cursor are no part of it.
DEFINITION = ("name", "trigger", "target", "policy", "priority", "labels", "depends_on")
#: Entries that are looked at: older versions are not offered.
MOST = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    #: The number of its audit entry.
    number: int
    at: datetime
    by: str
    verb: str
    #: Field -> what it was before and after, of the definition only; without secrets.
    changes: Mapping[str, tuple[object, object]]


async def history_of(store: Store, actor: Actor, schedule: Schedule) -> tuple[AuditEntry, ...]:
    """What the audit knows of a schedule that the actor sees, newest first."""
    owner = None if actor.sees_everything else str(actor.owner)
    query = AuditQuery(object_id=schedule.id, owner=owner, limit=MOST)
    entries = await store.list_audit(query)
    return tuple(each for each in entries if each.object_kind == "schedule" and each.allowed)


def versions_of(entries: Sequence[AuditEntry]) -> tuple[Version, ...]:
    """Of entries, newest first: those that changed the definition."""
    found = []
    for entry in entries:
        changes = {
            name: pair
            for name in DEFINITION
            if (pair := _pair(entry.changes.get(name))) is not None
        }
        if changes:
            found.append(
                Version(
                    number=entry.number,
                    at=entry.at,
                    by=entry.actor,
                    verb=entry.verb,
                    changes=changes,
                )
            )
    return tuple(found)


def as_it_was(schedule: Schedule, versions: Sequence[Version], number: int) -> Schedule:
    """`schedule` with the definition that it had after the change of this number. NotFound if that
    is not known; InvalidInput if it had a secret that is gone."""
    if number not in {each.number for each in versions}:
        raise NotFound(say("version {number} not found", number=number))
    now = schedule_to_plain(schedule)
    then = dict(now)
    for version in versions:
        if version.number == number:
            break
        for name, (before, _) in version.changes.items():
            then[name] = before
    for name in DEFINITION:
        if then.get(name) != now.get(name):
            then[name] = _with_secrets(then.get(name), now.get(name), name)
    known = {name: value for name, value in then.items() if value is not None}
    old = schedule_from_plain(known)
    return replace(
        schedule,
        name=old.name,
        trigger=old.trigger,
        target=old.target,
        policy=old.policy,
        priority=old.priority,
        labels=old.labels,
        depends_on=old.depends_on,
    )


def _pair(value: object) -> tuple[object, object] | None:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    return None


def _with_secrets(then: object, now: object, place: str) -> object:
    """What was masked has the value of now, if there is one in the same place."""
    if isinstance(then, Mapping):
        there = now if isinstance(now, Mapping) else {}
        return {
            str(name): _with_secrets(value, there.get(name), f"{place}.{name}")
            for name, value in then.items()
        }
    if isinstance(then, list | tuple):
        beside = list(now) if isinstance(now, list | tuple) else []
        return [
            _with_secrets(value, beside[at] if at < len(beside) else None, f"{place}[{at}]")
            for at, value in enumerate(then)
        ]
    if not isinstance(then, str) or HIDDEN not in then:
        return then
    if then == HIDDEN and now is not None:
        return now
    if isinstance(now, str) and masked_url(now) == then:
        return now
    raise InvalidInput(
        say("the secret of that version in {place} is not kept; edit the schedule", place=place),
        field=place,
        code="secret_gone",
    )
