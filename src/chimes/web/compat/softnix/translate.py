"""Converts Softnix schedules to ours and back. The messages are those of Softnix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

from chimes.config import Settings
from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, _, in_language
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget
from chimes.model.validation import ID_LIMIT, check_text
from chimes.services.schedules.prompts import NAMESPACE, name_of, prompt_draft
from chimes.services.schedules.rules import agent_policy
from chimes.triggers import Cron, Every, Once, Trigger, format_duration_go
from chimes.triggers.zones import parse_zone

if TYPE_CHECKING:
    from chimes.language import Parsed


ONE_TIME = "one_time"
CRON = "cron"
WEB_UI = "web_ui"
TELEGRAM = "telegram"
DEFAULT_RUNS = 50
MAX_RUNS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptDefaults:
    """Values of fields that a request omits."""

    #: If neither the request nor the owner has one.
    timezone: str
    #: Without recipients.
    policy: Policy


def prompt_defaults(settings: Settings) -> PromptDefaults:
    policy = agent_policy(settings)
    return PromptDefaults(
        timezone=settings.softnix_default_timezone,
        policy=replace(policy, misfire_grace=settings.misfire_grace, delivery=()),
    )


Item = dict[str, object]
Body = Mapping[str, object]

_OWNER = frozenset({"owner_type", "owner_id"})
_DELIVERY = frozenset({"delivery_channel", "delivery_target"})
_TASK = frozenset({"task", "task_prompt"})
_WHEN = frozenset({"schedule_type", "run_at", "cron_expr", "timezone", "enabled"})
#: Read-only fields.
_READ_ONLY = frozenset(
    {"id", "next_run_at", "last_dispatched_at", "created_at", "updated_at", "deleted_at"}
)
_SETTABLE = _OWNER | _DELIVERY | _TASK | _WHEN
_FROM_TEXT = _OWNER | _DELIVERY | {"text", "timezone", "enabled"}


def owner_from(given: Body, actor: Actor) -> Owner:
    """The owner in the request, else that of the caller."""
    if not any(given.get(name) is not None for name in _OWNER):
        return actor.owner
    kind = _text(given, "owner_type") or OwnerType.SYSTEM.value
    if kind not in OwnerType.__members__.values():
        raise InvalidInput(_("owner_type must be user, chat or system"), field="owner_type")
    return Owner(type=OwnerType(kind), id=_id_text(given, "owner_id") or Owner().id)


def zone_from(given: Body) -> str | None:
    """The zone in the request, or None."""
    name = _text(given, "timezone").strip()
    if not name:
        return None
    try:
        return parse_zone(name).name
    except InvalidInput:
        raise InvalidInput(_("invalid timezone"), field="timezone") from None


def checked_item(data: object) -> Body:
    if isinstance(data, Mapping):
        for name in data:
            if name in _READ_ONLY:
                raise InvalidInput(_("{name} cannot be set", name=name), field=name)
    return _object(data, _SETTABLE)


def checked_text_request(data: object) -> Body:
    """Checks also what parsing does not use."""
    given = _object(data, _FROM_TEXT)
    _channel(given, WEB_UI)
    _id_text(given, "delivery_target")
    _flag(given, "enabled", True)
    return given


def text_from(given: Body) -> str:
    text = _text(given, "text")
    if not text.strip():
        raise InvalidInput(_("text is required"), field="text")
    return text


def draft_from(
    given: Body,
    owner: Owner,
    defaults: PromptDefaults,
    *,
    zone: str,
    schedule_id: ScheduleId,
    now: datetime,
) -> Schedule:
    """A new schedule from the body of POST /schedules."""
    kind = (_text(given, "schedule_type") or ONE_TIME).strip().lower()
    trigger = _trigger(kind, _text(given, "run_at"), _text(given, "cron_expr"), zone)
    task = _task(given, None)
    if not task.strip():
        raise InvalidInput(_("task is required"), field="task")
    return prompt_schedule(task, trigger, given, owner, defaults, schedule_id=schedule_id, now=now)


def prompt_schedule(
    task: str,
    trigger: Trigger,
    given: Body,
    owner: Owner,
    defaults: PromptDefaults,
    *,
    schedule_id: ScheduleId,
    now: datetime,
) -> Schedule:
    channel, target = _channel(given, WEB_UI), _id_text(given, "delivery_target")
    draft = prompt_draft(
        schedule_id=schedule_id,
        prompt=task,
        trigger=trigger,
        owner=owner,
        policy=replace(defaults.policy, delivery=(_recipient(channel, target, owner),)),
        enabled=_flag(given, "enabled", True),
        now=now,
    )
    return _with_target(draft, target)


def edited_by(schedule: Schedule, given: Body) -> Schedule:
    """The schedule after PATCH /schedules/{id}; omitted and null fields stay as they are."""
    current = item_from(schedule)
    for name in ("owner_type", "owner_id", "schedule_type"):
        if given.get(name) not in (None, current[name]):
            raise InvalidInput(_("{name} cannot be changed", name=name), field=name)
    task = _task(given, schedule)
    after = schedule
    if task != current["task"]:
        if not task.strip():
            raise InvalidInput(_("task is required"), field="task")
        after = replace(after, target=_prompt(schedule, task), name=name_of(task))
    trigger = _patched_trigger(given, schedule)
    if _delivery_differs(given, current):
        channel = _channel(given, str(current["delivery_channel"]))
        target = _id_text(given, "delivery_target")
        if given.get("delivery_target") is None and channel == current["delivery_channel"]:
            target = str(current["delivery_target"] or "")
        others = [
            each
            for each in schedule.policy.delivery
            if each.channel not in (Channel.INBOX, Channel.TELEGRAM)
        ]
        delivery = (_recipient(channel, target, schedule.owner), *others)
        after = _with_target(
            replace(after, policy=replace(after.policy, delivery=delivery)), target
        )
    # A `one_time` that is over is shown as disabled; sending that back changes nothing.
    enabled = schedule.enabled
    if given.get("enabled") not in (None, current["enabled"]) or trigger != schedule.trigger:
        enabled = _flag(given, "enabled", schedule.enabled)
    return replace(after, trigger=trigger, enabled=enabled)


def _patched_trigger(given: Body, schedule: Schedule) -> Trigger:
    before = schedule.trigger
    zone = zone_from(given) or before.zone
    run_at, expression = _text(given, "run_at"), _text(given, "cron_expr")
    if isinstance(before, Once):
        if expression:
            raise InvalidInput(_("cron_expr is for cron schedules"), field="cron_expr")
        if run_at and run_at != time_out(before.instant):
            return replace(before, at=_once_trigger(run_at, zone).at, timezone=zone)
        return before if zone == before.zone else replace(before, timezone=zone)
    if run_at:
        raise InvalidInput(_("run_at is for one_time schedules"), field="run_at")
    if expression and expression != expression_out(before):
        return _trigger(CRON, "", expression, zone)
    if zone == before.zone or not isinstance(before, Cron):
        return before
    return _trigger(CRON, "", before.expression, zone)


def _trigger(kind: str, run_at: str, expression: str, zone: str) -> Trigger:
    if kind not in (ONE_TIME, CRON):
        raise InvalidInput(_("schedule_type must be one_time or cron"), field="schedule_type")
    if kind == ONE_TIME:
        if not run_at.strip():
            raise InvalidInput(_("run_at is required for one_time schedule"), field="run_at")
        return _once_trigger(run_at, zone)
    if not expression.strip():
        raise InvalidInput(_("cron_expr is required for cron schedule"), field="cron_expr")
    try:
        return Cron(expression.strip(), timezone=zone)
    except InvalidInput as error:
        raise InvalidInput(error.message, field="trigger.expression", hint=error.hint) from None


def _once_trigger(text: str, zone: str) -> Once:
    """A time with an offset, or a wall time in the zone of the schedule."""
    given = text.strip()
    if len(given) > 10 and given[10] == " ":
        given = f"{given[:10]}T{given[11:]}"
    try:
        return Once(given, timezone=zone)
    except InvalidInput:
        raise InvalidInput(_("invalid run_at datetime"), field="run_at") from None


def _task(given: Body, schedule: Schedule | None) -> str:
    """`task` and `task_prompt` are aliases; if both are sent, the changed one counts."""
    before = "" if schedule is None else _prompt_of(schedule)
    tasks = {_text(given, name) for name in _TASK if given.get(name) is not None} - {before}
    if len(tasks) > 1:
        raise InvalidInput(
            _("task and task_prompt have the same meaning; send one of them"), field="task"
        )
    return tasks.pop() if tasks else before


def _channel(given: Body, default: str) -> str:
    channel = (_text(given, "delivery_channel") or default).strip().lower()
    if channel not in (WEB_UI, TELEGRAM):
        raise InvalidInput(
            _("delivery_channel must be web_ui or telegram"), field="delivery_channel"
        )
    return channel


def _recipient(channel: str, target: str, owner: Owner) -> Recipient:
    if channel == WEB_UI:
        return Recipient(channel=Channel.INBOX)
    if not target and owner.type is OwnerType.CHAT:
        target = owner.id
    if not target:
        raise InvalidInput(_("delivery_target is required for telegram"), field="delivery_target")
    return Recipient(channel=Channel.TELEGRAM, to=target)


def _delivery_differs(given: Body, current: Item) -> bool:
    return any(given.get(name) not in (None, current[name]) for name in _DELIVERY)


def _with_target(schedule: Schedule, target: str) -> Schedule:
    """Keeps the delivery_target of web_ui, which has no use for it, to return it as it was sent."""
    stored = {name: each for name, each in schedule.compat_data.items() if name != NAMESPACE}
    if target and all(each.to != target for each in schedule.policy.delivery):
        stored[NAMESPACE] = {"delivery_target": target}
    return replace(schedule, compat_data=stored)


def _prompt(schedule: Schedule, task: str) -> AgentTarget:
    before = schedule.target
    assert isinstance(before, AgentTarget)
    return replace(before, prompt=task)


def _prompt_of(schedule: Schedule) -> str:
    assert isinstance(schedule.target, AgentTarget)
    return schedule.target.prompt


def item_from(schedule: Schedule) -> Item:
    """`task` and `task_prompt` are aliases. A `one_time` that is over is shown as disabled."""
    trigger = schedule.trigger
    once = isinstance(trigger, Once)
    over = once and schedule.next_slot is None
    prompt = _prompt_of(schedule)
    chats = [each for each in schedule.policy.delivery if each.channel is Channel.TELEGRAM]
    return {
        "id": schedule.id,
        "owner_type": schedule.owner.type.value,
        "owner_id": schedule.owner.id,
        "task_prompt": prompt,
        "task": prompt,
        "schedule_type": ONE_TIME if once else CRON,
        "run_at": time_out(trigger.instant) if isinstance(trigger, Once) else None,
        "cron_expr": expression_out(trigger),
        "timezone": trigger.zone,
        "enabled": schedule.enabled and not over,
        "next_run_at": time_out(schedule.next_run_at),
        "delivery_channel": TELEGRAM if chats else WEB_UI,
        "delivery_target": chats[0].to if chats else _stored_target(schedule),
        "last_dispatched_at": time_out(schedule.last_enqueued_at),
        "created_at": time_out(schedule.created_at),
        "updated_at": time_out(schedule.updated_at),
        "deleted_at": time_out(schedule.deleted_at),
    }


def expression_out(trigger: Trigger) -> str | None:
    match trigger:
        case Once():
            return None
        case Every():
            return f"@every {format_duration_go(trigger.every)}"
        case Cron():
            return trigger.expression
        case _:
            return None


def _stored_target(schedule: Schedule) -> str | None:
    stored = schedule.compat_data.get(NAMESPACE)
    target = stored.get("delivery_target") if isinstance(stored, Mapping) else None
    return target if isinstance(target, str) else None


def time_out(moment: datetime | None) -> str | None:
    """ISO 8601 with the offset +00:00."""
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _object(data: object, known: frozenset[str]) -> Body:
    if not isinstance(data, Mapping):
        raise InvalidInput(_("a JSON object is required"))
    for name in data:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            current = str(name)[:64]
            unknown = (
                _("unknown field: {name}; did you mean {near}?", name=current, near=near[0])
                if near
                else _("unknown field: {name}", name=current)
            )
            raise InvalidInput(unknown, field=current)
    return data


def _text(given: Body, name: str) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(_("{name} must be text", name=name), field=name)
    return value


def _id_text(given: Body, name: str) -> str:
    """An id as text; chat ids may be numbers."""
    value = given.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = check_text(_text(given, name).strip(), name)
    if len(text) > ID_LIMIT:
        raise InvalidInput(
            _("{name} has at most {id_limit} characters", name=name, id_limit=ID_LIMIT),
            field=name,
        )
    return text


def _flag(given: Body, name: str, default: bool) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidInput(_("{name} must be true or false", name=name), field=name)
    return value


#: Softnix has no status for runs that did not start: a missed slot is failed, a skipped one
#: canceled; `run_stop_reason` has the difference.
_STATUS = {
    RunStatus.QUEUED: "queued",
    RunStatus.RUNNING: "running",
    RunStatus.SUCCEEDED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.TIMEOUT: "failed",
    RunStatus.UNKNOWN: "failed",
    RunStatus.MISSED: "failed",
    RunStatus.CANCELED: "canceled",
    RunStatus.SKIPPED: "canceled",
}
_ERRORS = {
    RunStatus.TIMEOUT: _("timeout"),
    RunStatus.UNKNOWN: _("unknown: the node that executed the run is gone"),
    RunStatus.MISSED: _("missed: no node was running at the planned time"),
    RunStatus.SKIPPED: _("skipped"),
}
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """Filters of GET /schedules; None for any."""

    owner_type: str | None = None
    owner_id: str | None = None
    enabled: bool | None = None

    @property
    def owner(self) -> Owner | None:
        """None unless type and id are given."""
        if self.owner_type is None or self.owner_id is None:
            return None
        return Owner(type=OwnerType(self.owner_type), id=self.owner_id)

    def matches(self, item: Item) -> bool:
        return all(
            wanted is None or wanted == item[name]
            for name, wanted in (
                ("owner_type", self.owner_type),
                ("owner_id", self.owner_id),
                ("enabled", self.enabled),
            )
        )


def listing_from(given: Mapping[str, str]) -> Listing:
    owner_type = given.get("owner_type") or None
    if owner_type is not None and owner_type not in OwnerType.__members__.values():
        raise InvalidInput(_("owner_type must be user, chat or system"), field="owner_type")
    enabled = _optional_flag(given, "enabled")
    status = given.get("status", "").strip().lower()
    if status in ("enabled", "active"):
        enabled = True
    elif status in ("disabled", "paused", "inactive"):
        enabled = False
    elif status not in ("", "all"):
        raise InvalidInput(_("status must be enabled, disabled or all"), field="status")
    if enabled is None and _optional_flag(given, "include_disabled") is False:
        enabled = True
    return Listing(owner_type=owner_type, owner_id=given.get("owner_id") or None, enabled=enabled)


def limit_from(given: Mapping[str, str]) -> int:
    text = given.get("limit", str(DEFAULT_RUNS))
    if (
        not (text.isascii() and text.isdecimal())
        or not 1 <= int(text.lstrip("0")[:9] or 0) <= MAX_RUNS
    ):
        raise InvalidInput(
            _("limit must be between 1 and {maximum}", maximum=MAX_RUNS),
            field="limit",
        )
    return int(text)


def _optional_flag(given: Mapping[str, str], name: str) -> bool | None:
    text = given.get(name, "").strip().lower()
    if text not in ("", *_YES, *_NO):
        raise InvalidInput(_("{name} must be true or false", name=name), field=name)
    return text in _YES if text else None


def run_out(run: Run, lang: str = ENGLISH) -> Item:
    """`run_id` is the id of the run; `pipeline_run_id` that of the pipeline."""
    status = _STATUS[run.status]
    error = run.error or _ERRORS.get(run.status)
    pipeline_id = (run.result or {}).get("pipeline_run_id")
    return {
        "id": run.id,
        "schedule_id": run.schedule_id,
        "run_id": run.id,
        "status": status,
        "created_at": time_out(run.created_at),
        "started_at": time_out(run.started_at),
        "finished_at": time_out(run.finished_at),
        "error": error and in_language(error, lang),
        "run_status": status,
        "run_stop_reason": _stop_reason(run),
        "pipeline_run_id": pipeline_id if isinstance(pipeline_id, str) else None,
    }


def parsed_out(parsed: Parsed) -> Item:
    trigger = parsed.trigger
    return {
        "schedule_type": ONE_TIME if isinstance(trigger, Once) else CRON,
        "timezone": parsed.timezone,
        "task": parsed.task,
        "run_at": time_out(trigger.instant) if isinstance(trigger, Once) else None,
        "cron_expr": expression_out(trigger),
        "source_pattern": parsed.pattern,
    }


def _stop_reason(run: Run) -> str | None:
    if not run.status.terminal:
        return None
    if run.status is RunStatus.SUCCEEDED:
        return "completed"
    return run.reason or run.status.value
