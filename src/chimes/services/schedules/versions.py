"""Earlier versions of the definition of a schedule.

The audit log has every change with the values before it, but no secrets: a restored version keeps
the current ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from chimes.egress import parse_http_url
from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.redaction import HIDDEN, masked_names, unmask_text
from chimes.services.schedules.history import MAX_AUDIT_ENTRIES, audit_query
from chimes.store.codec.values import schedule_from_plain, schedule_to_plain
from chimes.store.port import Store
from chimes.triggers import Trigger, trigger_from_dict

#: The fields of a definition; `enabled` and the cursor are not part of it.
DEFINITION_FIELDS = ("name", "trigger", "target", "policy", "priority", "labels", "depends_on")


#: Number of the definition before the oldest version; numbers of entries begin with 1.
ORIGINAL = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    #: The number of its audit entry.
    number: int
    at: datetime
    by: str
    verb: str
    #: Definition field -> value before and after, without secrets.
    changes: Mapping[str, tuple[object, object]]


async def list_schedule_audit(
    store: Store, actor: Actor, schedule: Schedule, *, since: datetime | None = None
) -> tuple[AuditEntry, ...]:
    """The audit entries of a schedule that the actor may see, newest first."""
    query = audit_query(actor, schedule.id)
    entries = await store.list_audit(replace(query, since=since, limit=MAX_AUDIT_ENTRIES))
    return tuple(each for each in entries if each.object_kind == "schedule" and each.allowed)


def versions_in(entries: Sequence[AuditEntry]) -> tuple[Version, ...]:
    """The entries that changed the definition, in the same order."""
    versions = []
    for entry in entries:
        changes = {
            name: pair
            for name in DEFINITION_FIELDS
            if (pair := before_and_after(entry.changes.get(name))) is not None
        }
        if changes:
            versions.append(
                Version(
                    number=entry.number,
                    at=entry.at,
                    by=entry.actor,
                    verb=entry.verb,
                    changes=changes,
                )
            )
    return tuple(versions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """A time in which the trigger of a schedule did not change."""

    start: datetime
    end: datetime
    #: None: the schedule was paused.
    trigger: Trigger | None


def periods_of(
    schedule: Schedule, entries: Sequence[AuditEntry], since: datetime, now: datetime
) -> tuple[Period, ...]:
    """The triggers that a schedule had from `since` until now, oldest first; `entries` are all its
    audit entries of that time, newest first."""
    trigger: Trigger | None = schedule.trigger
    enabled, end = schedule.enabled, now
    found: list[Period] = []
    for entry in entries:
        triggers = before_and_after(entry.changes.get("trigger"))
        switch = before_and_after(entry.changes.get("enabled"))
        if triggers is None and switch is None:
            continue
        found.append(Period(start=entry.at, end=end, trigger=trigger if enabled else None))
        end = entry.at
        if triggers is not None:
            trigger = None if triggers[0] is None else trigger_from_dict(triggers[0])
        if switch is not None:
            enabled = bool(switch[0])
    start = max(since, schedule.created_at)
    if len(entries) < MAX_AUDIT_ENTRIES and start < end:
        found.append(Period(start=start, end=end, trigger=trigger if enabled else None))
    return tuple(reversed(found))


def has_original(versions: Sequence[Version]) -> bool:
    """Whether the oldest version changed a definition whose creation is not in the audit log."""
    if not versions:
        return False
    return all(before is not None for before, _after in versions[-1].changes.values())


def with_version(schedule: Schedule, versions: Sequence[Version], number: int) -> Schedule:
    """The schedule with the definition of an earlier version; `versions` are newest first,
    `ORIGINAL` is the definition before all of them.

    Raises NotFound for an unknown number, InvalidInput if the version had a secret that is gone.
    """
    known = {each.number for each in versions} | ({ORIGINAL} if has_original(versions) else set())
    if number not in known:
        raise NotFound(_("version {number} not found", number=number))
    current = schedule_to_plain(schedule)
    earlier = dict(current)
    for version in versions:
        if version.number == number:
            break
        for name, (before, _after) in version.changes.items():
            earlier[name] = before
    masked_target = earlier.get("target")
    for name in DEFINITION_FIELDS:
        if earlier.get(name) != current.get(name):
            earlier[name] = _with_secrets(earlier.get(name), current.get(name), name)
    old = schedule_from_plain({name: value for name, value in earlier.items() if value is not None})
    if isinstance(old.target, HttpTarget) and isinstance(schedule.target, HttpTarget):
        masked = [*masked_names(masked_target)]
        check_secrets_stay(masked, schedule.target.url, old.target.url)
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


def check_secrets_stay(names: Sequence[str], before: str, after: str) -> None:
    """An editor of a schedule cannot read its secrets, and must not send them elsewhere: raises
    InvalidInput if the URL gets another origin and the stored secrets of these names stay."""
    if names and after != before and _origin(after) != _origin(before):
        raise InvalidInput(
            _(
                "stored secrets are not sent to another scheme, host or port; enter them again or "
                "remove them: {names}",
                names=", ".join(names),
            ),
            field="target.url",
            code="masked",
        )


def _origin(url: str) -> str:
    try:
        return parse_http_url(url).origin
    except InvalidInput:
        return url


def before_and_after(value: object) -> tuple[object, object] | None:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    return None


def _with_secrets(earlier: object, current: object, path: str) -> object:
    """Replaces masked values by the current value at the same path."""
    if isinstance(earlier, Mapping):
        fields = current if isinstance(current, Mapping) else {}
        return {
            str(name): _with_secrets(value, fields.get(name), f"{path}.{name}")
            for name, value in earlier.items()
        }
    if isinstance(earlier, list | tuple):
        items = list(current) if isinstance(current, list | tuple) else []
        return [
            _with_secrets(value, items[at] if at < len(items) else None, f"{path}[{at}]")
            for at, value in enumerate(earlier)
        ]
    if not isinstance(earlier, str) or HIDDEN not in earlier:
        return earlier
    if earlier == HIDDEN and current is not None:
        return current
    kept = unmask_text(earlier, current) if isinstance(current, str) else earlier
    if not any(masked_names(kept, path)):
        return kept
    raise InvalidInput(
        _(
            "the secret at {place} of that version is no longer stored; edit the schedule",
            place=path,
        ),
        field=path,
        code="secret_gone",
    )
