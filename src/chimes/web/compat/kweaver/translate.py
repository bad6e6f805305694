"""Converts KWeaver action schedules to ours and back. The messages are those of KWeaver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from chimes.errors import InvalidInput, InvalidTrigger
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import NodeId, ScheduleId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.policy import Policy
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.model.target import ActionTarget
from chimes.model.validation import check_action_id
from chimes.redaction import mask_arguments, unmask_arguments
from chimes.triggers import Cron, Every, Once, Trigger, format_duration_go
from chimes.triggers.values import to_microseconds
from chimes.triggers.zones import UTC_NAME

NAMESPACE: Final = "kweaver"
#: Kind and requirement of an action.
ACTION: Final = "action"
#: The default branch.
MAIN: Final = "main"
ACTIVE, INACTIVE = "active", "inactive"
STATUSES: Final = (ACTIVE, INACTIVE)
#: Lengths of the KWeaver columns.
NAME_LIMIT, CRON_LIMIT = 100, 100
_PREFIXES = ("CRON_TZ=", "TZ=")
_FIELDS = 5


def cron(expression: str, timezone: str | None) -> Cron:
    """Parses five fields, optionally after a zone; `?` is `*` in every field, as in robfig/cron.
    Raises InvalidInput with the code `invalid_cron`."""
    try:
        return _parse(expression, timezone)
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field="cron_expression", code="invalid_cron", hint=error.hint
        ) from None


def _parse(expression: str, timezone: str | None) -> Cron:
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
    text = " ".join(filter(None, [zone, *map(_question_marks_to_stars, fields)]))
    return Cron(text, timezone=None if zone else timezone)


def _question_marks_to_stars(field: str) -> str:
    items = field.split(",")
    return ",".join(f"*{each[1:]}" if each[:1] == "?" else each for each in items)


Json = dict[str, object]
Body = Mapping[str, object]
Identities = tuple[Mapping[str, object], ...]

_TEXTS = ("name", "action_type_id", "cron_expression", "status")
#: Two names of the same field.
_IDENTITIES = ("unique_identities", "_instance_identities")
_PARAMS = "dynamic_params"


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a request."""

    id: str = ""
    type: str = ""

    def to_dict(self) -> Json:
        return {"id": self.id, "type": self.type}


@dataclass(frozen=True, slots=True)
class BranchScope:
    """A branch of a knowledge network; schedules are visible in their branch only."""

    kn_id: str
    branch: str = MAIN

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The fields of the target of a schedule."""
        return (("kn_id", self.kn_id), ("branch", self.branch))

    def contains(self, target: ActionTarget) -> bool:
        return (target.kn_id, target.branch) == (self.kn_id, self.branch)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request body with checked types. Empty and None mean absent."""

    name: str = ""
    action_type_id: str = ""
    cron_expression: str = ""
    status: str = ""
    identities: Identities | None = None
    params: Mapping[str, object] | None = None


def scope_from(kn_id: str, branch: str | None) -> BranchScope:
    scope = BranchScope(kn_id, branch or MAIN)
    for name, value in scope.fields:
        check_action_id(value, name)
    return scope


def request_from(data: object) -> Request:
    """Ignores unknown fields, so that a schedule can be sent back as it was read."""
    if not isinstance(data, Mapping):
        raise _invalid(_("a JSON object is required"))
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
    """Checks the body of POST in the order of KWeaver, which decides the reported error."""
    if not given.name.strip():
        raise _invalid(_("name is required"), "name")
    _check_name(given.name)
    if not given.action_type_id:
        raise _invalid(_("action_type_id is required"), "action_type_id")
    if not given.cron_expression:
        raise _invalid(_("cron_expression is required"), "cron_expression")
    _check_identities(given.identities)
    if given.status:
        checked_status(given.status)
    return given


def checked_update(given: Request) -> Request:
    """Checks the body of PUT. An empty text is absent; action type and status are ignored."""
    _check_name(given.name)
    if given.identities is not None:
        _check_identities(given.identities)
    changes = given.name.strip() or given.cron_expression or given.identities or given.params
    if not changes and given.params is None:
        raise _invalid(_("at least one field must be provided for update"))
    return given


def checked_status(status: str) -> bool:
    """Whether the status is `active`."""
    if status not in STATUSES:
        raise InvalidInput(
            _("status must be 'active' or 'inactive'"), field="status", code="invalid_status"
        )
    return status == ACTIVE


def draft_from(
    given: Request,
    scope: BranchScope,
    account: Account,
    owner: Owner,
    policy: Policy,
    *,
    zone: str,
    schedule_id: ScheduleId,
    now: datetime,
) -> Schedule:
    """A new schedule from a checked body; inactive by default."""
    draft = Schedule(
        id=schedule_id,
        namespace=NAMESPACE,
        name=given.name,
        owner=owner,
        trigger=cron(given.cron_expression, zone),
        target=ActionTarget(
            action_type_id=given.action_type_id,
            kn_id=scope.kn_id,
            branch=scope.branch,
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
    """The schedule after PUT; omitted fields and the action type stay as they are."""
    after = replace(schedule, name=given.name) if given.name.strip() else schedule
    target = _action(schedule)
    if given.identities is not None:
        target = replace(target, identities=given.identities)
    if given.params is not None:
        target = replace(target, params=unmask_arguments(given.params, target.params))
    after = replace(after, target=target)
    if given.cron_expression and given.cron_expression != expression_out(schedule):
        new_trigger = cron(given.cron_expression, zone)
        after = replace(after, trigger=_with_expression(schedule.trigger, new_trigger))
        after = with_expression(after, given.cron_expression)
    # This change creates the next version.
    return written_by(after, account, version=schedule.version + 1)


def written_by(schedule: Schedule, account: Account, *, version: int | None = None) -> Schedule:
    """Stores the account that wrote this version, if there is one."""
    stored = {
        name: each for name, each in _stored(schedule).items() if name not in ("updater", "version")
    }
    if account.id:
        stored |= {"updater": account.to_dict(), "version": version or schedule.version}
    return _with_stored(schedule, stored)


def _with_expression(before: Trigger, new_trigger: Cron) -> Cron:
    """Keeps bounds and exclusions, which KWeaver cannot express."""
    if not isinstance(before, Cron):
        return new_trigger
    return replace(
        before,
        expression=new_trigger.expression,
        timezone=new_trigger.timezone,
        dialect=new_trigger.dialect,
        anchor=None,
    )


def with_expression(schedule: Schedule, written: str) -> Schedule:
    """Stores the text of the expression, to show it while the trigger does not change."""
    stored = {"cron_expression": written, "trigger": schedule.trigger.to_dict()}
    return _with_stored(schedule, {**_stored(schedule), **stored})


def _with_stored(schedule: Schedule, stored: Body) -> Schedule:
    return replace(schedule, compat_data={**schedule.compat_data, NAMESPACE: dict(stored)})


def _stored(schedule: Schedule) -> Body:
    found = schedule.compat_data.get(NAMESPACE)
    return found if isinstance(found, Mapping) else {}


def _check_name(name: str) -> None:
    if len(name) > NAME_LIMIT:
        raise _invalid(_("name must be less than 100 characters"), "name")


def _check_identities(identities: Identities | None) -> None:
    if not identities:
        raise _invalid(
            _("_instance_identities is required and cannot be empty"), "_instance_identities"
        )


def _text(given: Body, name: str) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _invalid(_("{name} must be text", name=name), name)
    return value


def _identities(given: Body) -> Identities | None:
    values = [each for name in _IDENTITIES if (each := given.get(name)) is not None]
    if not values:
        return None
    found = values[0]
    if values[1:] and values[1] != found:
        raise _invalid(
            _("unique_identities and _instance_identities have the same meaning; send one of them"),
            _IDENTITIES[0],
        )
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise _invalid(_("_instance_identities must be a list of objects"), "_instance_identities")
    return tuple(found)


def _params(given: Body) -> Mapping[str, object] | None:
    found = given.get(_PARAMS)
    if found is None or isinstance(found, Mapping):
        return found
    raise _invalid(_("dynamic_params must be an object"), _PARAMS)


def _invalid(message: str, field: str | None = None) -> InvalidInput:
    return InvalidInput(message, field=field, code="invalid_parameter")


def schedule_out(
    schedule: Schedule,
    running: Sequence[Run] = (),
    heartbeats: Mapping[NodeId, datetime] = MappingProxyType({}),
    *,
    literal: bool = True,
) -> Json:
    """Omits empty values and 0, as KWeaver does. The lock is the claim of the latest active run.
    `heartbeats`: the last ones of nodes. Secrets are masked unless `literal`."""
    target = _action(schedule)
    shown = dict if literal else mask_arguments
    identities = [shown(each) for each in target.identities]
    lock = max(running, key=_claim_time, default=None)
    entry: Json = {
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
        _PARAMS: shown(target.params),
        "last_run_time": milliseconds(schedule.last_run_at),
        "next_run_time": milliseconds(schedule.next_run_at) if schedule.enabled else 0,
        "lock_holder": str(lock.holder or "") if lock else "",
        "lock_time": _renewal_time(lock, heartbeats) if lock else 0,
    }
    found |= dict.fromkeys(_IDENTITIES, identities)
    return entry | {name: each for name, each in found.items() if each}


def _claim_time(run: Run) -> int:
    return milliseconds(run.claimed_at)


def _renewal_time(run: Run, heartbeats: Mapping[NodeId, datetime]) -> int:
    """The claim or, if later, the heartbeat of its node: a heartbeat renews the lease of all runs
    of the node. Readers take a lock for stale whose time is long ago."""
    heartbeat = heartbeats.get(run.holder) if run.holder is not None else None
    return max(_claim_time(run), milliseconds(heartbeat))


def milliseconds(moment: datetime | None) -> int:
    """Unix time in milliseconds; 0 if there is none."""
    return 0 if moment is None else to_microseconds(moment) // 1000


def expression_out(schedule: Schedule) -> str:
    """The stored text while it matches the trigger, else the trigger with its zone."""
    stored, trigger = _stored(schedule), schedule.trigger
    written = stored.get("cron_expression")
    if isinstance(written, str) and stored.get("trigger") == trigger.to_dict():
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
        case _:
            return ""


def _creator(schedule: Schedule) -> Account:
    target = _action(schedule)
    if target.account_id:
        return Account(target.account_id, target.account_type)
    return _account_of(schedule.created_by)


def _updater(schedule: Schedule) -> Account:
    stored = _stored(schedule)
    updater = stored.get("updater")
    if isinstance(updater, Mapping) and stored.get("version") == schedule.version:
        return Account(str(updater.get("id", "")), str(updater.get("type", "")))
    return _account_of(schedule.updated_by)


def _account_of(actor: str) -> Account:
    """The account of an actor such as `user:alice`, `key:abc` or a plain name."""
    kind, colon, name = actor.partition(":")
    return Account(name, kind) if colon else Account(actor)


def _action(schedule: Schedule) -> ActionTarget:
    assert isinstance(schedule.target, ActionTarget)
    return schedule.target


MAX_LISTED = 1000
#: Limit for all entries.
ALL = -1
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_DIRECTIONS = ("desc", "asc")
#: None if stores do not support the order.
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
    """Parameters of the list."""

    name_pattern: str
    action_type_id: str
    #: None for both.
    active: bool | None
    offset: int
    #: None for all.
    limit: int | None
    sort: str
    descending: bool

    def query(self, scope: BranchScope) -> ScheduleQuery:
        """The query for all matches; in the requested order if `in_order`."""
        fields = scope.fields
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
        """Whether stores support the order. KWeaver sorts a missing next run first in an ascending
        list, stores sort it last."""
        if self.sort == "next_run_time":
            return self.descending
        return _SORTS[self.sort] is not None

    @property
    def until(self) -> int | None:
        """Number of schedules to read if they are in order; None for all."""
        return None if self.limit is None else self.offset + self.limit

    def page(self, found: Sequence[Schedule]) -> Sequence[Schedule]:
        """The requested page."""
        if not self.in_order:
            found = sorted(found, key=self._value, reverse=self.descending)
        return found[self.offset : self.until]

    def _value(self, schedule: Schedule) -> tuple[int, str]:
        moment = schedule.last_run_at if self.sort == "last_run_time" else schedule.next_run_at
        return 0 if moment is None else to_microseconds(moment), schedule.id


def listing_from(given: Mapping[str, str]) -> Listing:
    """Parses the query. Raises InvalidInput with a code per parameter."""
    offset = _number(given.get("offset") or "0")
    if offset is None or offset < 0:
        raise _invalid_query(_("offset must be a number, 0 or more"), "offset")
    limit = _number(given.get("limit") or "10")
    if limit is None or (limit != ALL and not 1 <= limit <= MAX_LISTED):
        raise _invalid_query(
            _("limit must be -1 or between 1 and {maximum}", maximum=MAX_LISTED), "limit"
        )
    sort = given.get("sort") or "create_time"
    if sort not in _SORTS:
        raise _invalid_query(_("sort must be one of {known}", known=", ".join(SORTED_BY)), "sort")
    direction = given.get("direction") or "desc"
    if direction not in _DIRECTIONS:
        raise _invalid_query(_("direction must be desc or asc"), "direction")
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


def _invalid_query(message: str, name: str) -> InvalidInput:
    return InvalidInput(message, field=name, code=f"invalid_{name}", source="query")
