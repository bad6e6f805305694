"""KWeaver's action schedules to ours and back. Pure; the messages are those that its users know."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from chimes.errors import InvalidInput, InvalidTrigger
from chimes.i18n import _
from chimes.model.access import Owner
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.policy import Policy
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.model.target import ActionTarget
from chimes.model.validation import check_action_id
from chimes.triggers import Cron, Every, Once, Trigger, format_duration_go
from chimes.triggers.moment import to_microseconds
from chimes.triggers.zones import UTC_NAME

# @@ What the KWeaver door takes for granted, and what its cron expressions mean.

NAMESPACE: Final = "kweaver"
#: `needs` and kind of an action.
ACTION: Final = "action"
#: The branch where none is named.
MAIN: Final = "main"
ACTIVE, INACTIVE = "active", "inactive"
STATUSES: Final = (ACTIVE, INACTIVE)
#: As long as the seed's columns.
NAME_LIMIT, CRON_LIMIT = 100, 100
_PREFIXES = ("CRON_TZ=", "TZ=")
_FIELDS = 5


def cron(expression: str, timezone: str | None) -> Cron:
    """Five fields and nothing else, perhaps behind the name of a zone; `?` is `*`, in
    every field, as robfig/cron has it. InvalidInput, with the code `invalid_cron`."""
    try:
        return _parsed(expression, timezone)
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field="cron_expression", code="invalid_cron", hint=error.hint
        ) from None


def _parsed(expression: str, timezone: str | None) -> Cron:
    if len(expression) > CRON_LIMIT:
        raise InvalidTrigger(
            _("a cron expression has at most {limit} characters here", limit=CRON_LIMIT)
        )
    zone, *fields = expression.split() or [""]
    if not zone.startswith(_PREFIXES):
        zone, fields = "", [zone, *fields]
    if len(fields) != _FIELDS or fields[0].startswith("@"):
        raise InvalidTrigger(
            _(
                "a cron expression has 5 fields here, and no descriptor like @hourly: {expression}",
                expression=expression,
            )
        )
    text = " ".join(filter(None, [zone, *map(_starred, fields)]))
    return Cron(text, timezone=None if zone else timezone)


def _starred(field: str) -> str:
    items = field.split(",")
    return ",".join(f"*{each[1:]}" if each[:1] == "?" else each for each in items)


Json = dict[str, object]
Given = Mapping[str, object]
Identities = tuple[Mapping[str, object], ...]

_TEXTS = ("name", "action_type_id", "cron_expression", "status")
#: The seed's name, and the original's.
_IDENTITIES = ("unique_identities", "_instance_identities")
_PARAMS = "dynamic_params"


@dataclass(frozen=True, slots=True)
class Account:
    """Whoever is behind a request, in the words of KWeaver."""

    id: str = ""
    type: str = ""

    def to_dict(self) -> Json:
        return {"id": self.id, "type": self.type}


@dataclass(frozen=True, slots=True)
class Place:
    """A branch of a knowledge network: nothing is seen from another one."""

    kn_id: str
    branch: str = MAIN

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """As the target of a schedule has them."""
        return (("kn_id", self.kn_id), ("branch", self.branch))

    def holds(self, target: ActionTarget) -> bool:
        return (target.kn_id, target.branch) == (self.kn_id, self.branch)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A body, with the right types. Empty and None: not there."""

    name: str = ""
    action_type_id: str = ""
    cron_expression: str = ""
    status: str = ""
    identities: Identities | None = None
    params: Mapping[str, object] | None = None


# --- in -----------------------------------------------------------------------------------------
def place_from(kn_id: str, branch: str | None) -> Place:
    place = Place(kn_id, branch or MAIN)
    for name, value in place.fields:
        check_action_id(value, name)
    return place


def request_from(data: object) -> Request:
    """What it does not know is ignored, as its users expect: what was read can be sent back."""
    if not isinstance(data, Mapping):
        raise _wrong(_("a JSON object is needed"))
    name, action_type_id, expression, status = (_text(data, each) for each in _TEXTS)
    return Request(
        name=name,
        action_type_id=action_type_id,
        cron_expression=expression,
        status=status,
        identities=_identities(data),
        params=_params(data),
    )


def checked_new(given: Request) -> Request:
    """Of POST, in the order in which its users know the refusals."""
    if not given.name.strip():
        raise _wrong(_("name is required"), "name")
    _check_name(given.name)
    if not given.action_type_id:
        raise _wrong(_("action_type_id is required"), "action_type_id")
    if not given.cron_expression:
        raise _wrong(_("cron_expression is required"), "cron_expression")
    _check_identities(given.identities)
    if given.status:
        checked_status(given.status)
    return given


def checked_update(given: Request) -> Request:
    """Of PUT. An empty text is one that is not there; the action type and the status are not
    changed here, whatever is said about them."""
    _check_name(given.name)
    if given.identities is not None:
        _check_identities(given.identities)
    told = given.name.strip() or given.cron_expression or given.identities or given.params
    if not told and given.params is None:
        raise _wrong(_("at least one field must be provided for update"))
    return given


def checked_status(status: str) -> bool:
    """Whether it is to be active."""
    if status not in STATUSES:
        raise InvalidInput(
            _("status must be 'active' or 'inactive'"), field="status", code="invalid_status"
        )
    return status == ACTIVE


def draft_from(
    given: Request,
    place: Place,
    account: Account,
    owner: Owner,
    policy: Policy,
    *,
    zone: str,
    schedule_id: ScheduleId,
    now: datetime,
) -> Schedule:
    """A new schedule from a body that was checked. Inactive unless it says so."""
    draft = Schedule(
        id=schedule_id,
        namespace=NAMESPACE,
        name=given.name,
        owner=owner,
        trigger=cron(given.cron_expression, zone),
        target=ActionTarget(
            action_type_id=given.action_type_id,
            kn_id=place.kn_id,
            branch=place.branch,
            identities=given.identities or (),
            params=given.params or {},
            account_id=account.id,
            account_type=account.type,
        ),
        policy=policy,
        enabled=given.status == ACTIVE,
        created_at=now,
        updated_at=now,
    )
    return written_by(with_expression(draft, given.cron_expression), account)


def edited_by(schedule: Schedule, given: Request, account: Account, *, zone: str) -> Schedule:
    """The schedule after PUT: what is left out stays, and so does the action type."""
    after = replace(schedule, name=given.name) if given.name.strip() else schedule
    target = _action(schedule)
    if given.identities is not None:
        target = replace(target, identities=given.identities)
    if given.params is not None:
        target = replace(target, params=given.params)
    after = replace(after, target=target)
    if given.cron_expression and given.cron_expression != expression_out(schedule):
        wanted = cron(given.cron_expression, zone)
        after = replace(after, trigger=_turned(schedule.trigger, wanted))
        after = with_expression(after, given.cron_expression)
    # It is the next version that was written so.
    return written_by(after, account, version=schedule.version + 1)


def written_by(schedule: Schedule, account: Account, *, version: int | None = None) -> Schedule:
    """With who wrote this version of it, unless nobody is named."""
    kept = {
        name: each for name, each in _kept(schedule).items() if name not in ("updater", "version")
    }
    if account.id:
        kept |= {"updater": account.to_dict(), "version": version or schedule.version}
    return _keeping(schedule, kept)


def _turned(before: Trigger, wanted: Cron) -> Cron:
    """Bounds and days left out, which cannot be said here, stay."""
    if not isinstance(before, Cron):
        return wanted
    return replace(
        before,
        expression=wanted.expression,
        timezone=wanted.timezone,
        dialect=wanted.dialect,
        anchor=None,
    )


def with_expression(schedule: Schedule, written: str) -> Schedule:
    """It is shown as it was written, for as long as it means that."""
    kept = {"cron_expression": written, "trigger": schedule.trigger.to_dict()}
    return _keeping(schedule, {**_kept(schedule), **kept})


def _keeping(schedule: Schedule, kept: Given) -> Schedule:
    return replace(schedule, compat_data={**schedule.compat_data, NAMESPACE: dict(kept)})


def _kept(schedule: Schedule) -> Given:
    found = schedule.compat_data.get(NAMESPACE)
    return found if isinstance(found, Mapping) else {}


def _check_name(name: str) -> None:
    if len(name) > NAME_LIMIT:
        raise _wrong(_("name must be less than 100 characters"), "name")


def _check_identities(identities: Identities | None) -> None:
    if not identities:
        raise _wrong(
            _("_instance_identities is required and cannot be empty"), "_instance_identities"
        )


def _text(given: Given, name: str) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong(_("{name} must be text", name=name), name)
    return value


def _identities(given: Given) -> Identities | None:
    told = [each for name in _IDENTITIES if (each := given.get(name)) is not None]
    if not told:
        return None
    found = told[0]
    if told[1:] and told[1] != found:
        raise _wrong(
            _("unique_identities and _instance_identities are the same thing; send one"),
            _IDENTITIES[0],
        )
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise _wrong(_("_instance_identities must be a list of objects"), "_instance_identities")
    return tuple(found)


def _params(given: Given) -> Mapping[str, object] | None:
    found = given.get(_PARAMS)
    if found is None or isinstance(found, Mapping):
        return found
    raise _wrong(_("dynamic_params must be an object"), _PARAMS)


def _wrong(message: str, field: str | None = None) -> InvalidInput:
    return InvalidInput(message, field=field, code="invalid_parameter")


# --- out ----------------------------------------------------------------------------------------
def schedule_out(schedule: Schedule, running: Sequence[Run] = ()) -> Json:
    """What is empty or 0 is left out, as its users know it; the lock of R0.15 is the claim
    of the node that carries the latest of the `running` runs out."""
    target = _action(schedule)
    identities = [dict(each) for each in target.identities]
    lock = max(running, key=_claimed, default=None)
    shown: Json = {
        "id": schedule.id,
        "name": schedule.name,
        "kn_id": target.kn_id,
        "branch": target.branch,
        "action_type_id": target.action_type_id,
        "cron_expression": expression_out(schedule),
        "status": ACTIVE if schedule.enabled else INACTIVE,
        "creator": _creator(schedule).to_dict(),
        "create_time": milliseconds(schedule.created_at),
        "updater": _updater(schedule).to_dict(),
        "update_time": milliseconds(schedule.updated_at),
    }
    found: Json = {
        _PARAMS: dict(target.params),
        "last_run_time": milliseconds(schedule.last_run_at),
        "next_run_time": milliseconds(schedule.next_run_at) if schedule.enabled else 0,
        "lock_holder": str(lock.holder or "") if lock else "",
        "lock_time": milliseconds(lock.claimed_at) if lock else 0,
    }
    found |= dict.fromkeys(_IDENTITIES, identities)
    return shown | {name: each for name, each in found.items() if each}


def _claimed(run: Run) -> int:
    return milliseconds(run.claimed_at)


def milliseconds(moment: datetime | None) -> int:
    """C18."""
    return 0 if moment is None else to_microseconds(moment) // 1000


def expression_out(schedule: Schedule) -> str:
    """As it was written here; otherwise so that it says all that the trigger does, and its zone."""
    kept, trigger = _kept(schedule), schedule.trigger
    written = kept.get("cron_expression")
    if isinstance(written, str) and kept.get("trigger") == trigger.to_dict():
        return written
    match trigger:
        case Once():
            return ""
        case Every():
            return f"@every {format_duration_go(trigger.every)}"
        case Cron():
            prefixed = trigger.timezone is None or trigger.expression.startswith(("TZ=", "CRON_TZ"))
            if prefixed or trigger.zone == UTC_NAME:
                return trigger.expression
            return f"CRON_TZ={trigger.zone} {trigger.expression}"


def _creator(schedule: Schedule) -> Account:
    target = _action(schedule)
    if target.account_id:
        return Account(target.account_id, target.account_type)
    return _named(schedule.created_by)


def _updater(schedule: Schedule) -> Account:
    kept = _kept(schedule)
    updater = kept.get("updater")
    if isinstance(updater, Mapping) and kept.get("version") == schedule.version:
        return Account(str(updater.get("id", "")), str(updater.get("type", "")))
    return _named(schedule.updated_by)


def _named(actor: str) -> Account:
    """Whoever wrote it without KWeaver's words: `user:alice`, `key:abc`, or just a name."""
    kind, colon, name = actor.partition(":")
    return Account(name, kind) if colon else Account(actor)


def _action(schedule: Schedule) -> ActionTarget:
    assert isinstance(schedule.target, ActionTarget)
    return schedule.target


# @@ Lists of action schedules: what is asked for, in which order, and which part of it. Pure.

MOST_LISTED = 1000
#: The limit that means all of them.
ALL = -1
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_DIRECTIONS = ("desc", "asc")
#: None: no store has this order.
_SORTS: Mapping[str, ScheduleSort | None] = {
    "create_time": ScheduleSort.CREATED_AT,
    "update_time": ScheduleSort.UPDATED_AT,
    "next_run_time": ScheduleSort.NEXT_RUN_AT,
    "last_run_time": None,
    "name": ScheduleSort.NAME,
}


SORTED_BY = tuple(_SORTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What GET asks for."""

    name_pattern: str
    action_type_id: str
    #: None: both.
    active: bool | None
    offset: int
    #: None: all of them.
    limit: int | None
    sort: str
    descending: bool

    def query(self, place: Place) -> ScheduleQuery:
        """Of all that match; in the order that is asked for where `in_order`."""
        fields = place.fields
        if self.action_type_id:
            fields += (("action_type_id", self.action_type_id),)
        return ScheduleQuery(
            kind=ACTION,
            target=fields,
            text=self.name_pattern or None,
            enabled=self.active,
            sort=_SORTS[self.sort] or ScheduleSort.CREATED_AT,
            descending=self.descending,
            limit=None,
        )

    @property
    def in_order(self) -> bool:
        """Whether a store has this order. Where there is no next run it is 0 here, and comes first
        in an ascending list; a store has it last."""
        if self.sort == "next_run_time":
            return self.descending
        return _SORTS[self.sort] is not None

    @property
    def until(self) -> int | None:
        """How many have to be read if they come in order; None: all."""
        return None if self.limit is None else self.offset + self.limit

    def part(self, found: Sequence[Schedule]) -> Sequence[Schedule]:
        """The part that is asked for, of all that match or of enough of them in order."""
        if not self.in_order:
            found = sorted(found, key=self._value, reverse=self.descending)
        return found[self.offset : self.until]

    def _value(self, schedule: Schedule) -> tuple[int, str]:
        moment = schedule.last_run_at if self.sort == "last_run_time" else schedule.next_run_at
        return 0 if moment is None else to_microseconds(moment), schedule.id


def listing_from(given: Mapping[str, str]) -> Listing:
    """InvalidInput, with a code for each of them."""
    offset = _number(given.get("offset") or "0")
    if offset is None or offset < 0:
        raise _wrong_listing(_("offset must be a number, 0 or more"), "offset")
    limit = _number(given.get("limit") or "10")
    if limit is None or (limit != ALL and not 1 <= limit <= MOST_LISTED):
        raise _wrong_listing(
            _("limit must be -1 or lie between 1 and {most}", most=MOST_LISTED), "limit"
        )
    sort = given.get("sort") or "create_time"
    if sort not in _SORTS:
        raise _wrong_listing(_("sort must be one of {known}", known=", ".join(SORTED_BY)), "sort")
    direction = given.get("direction") or "desc"
    if direction not in _DIRECTIONS:
        raise _wrong_listing(_("direction must be desc or asc"), "direction")
    status = given.get("status") or ""
    return Listing(
        name_pattern=given.get("name_pattern", ""),
        action_type_id=given.get("action_type_id", ""),
        active=checked_status(status) if status else None,
        offset=offset,
        limit=None if limit == ALL else limit,
        sort=sort,
        descending=direction == "desc",
    )


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _wrong_listing(message: str, name: str) -> InvalidInput:
    return InvalidInput(message, field=name, code=f"invalid_{name}", source="query")
