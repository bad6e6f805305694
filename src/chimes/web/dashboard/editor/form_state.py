"""State of the editor form: fields, errors, preview and choices.

Parsing, validation and planning use the same functions as the API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from chimes.errors import InvalidInput, NeedsClarification
from chimes.i18n import Message, _, joined
from chimes.model import replace
from chimes.model.forecast import PlanEffects, PlanPair, plan_effects
from chimes.model.ids import ScheduleId
from chimes.model.node import Node
from chimes.model.policy import Policy
from chimes.model.recipient import CHANNEL_SETTINGS, channel_not_configured
from chimes.model.run import Run
from chimes.model.schedule import Schedule, apply_edit
from chimes.model.target import FlowTarget, SyncTarget, Target
from chimes.model.validation import MAX_RECIPIENTS, check_fires
from chimes.redaction import masked_names
from chimes.services.access import CALCULATIONS
from chimes.services.schedules.rules import (
    ACTION,
    AGENT,
    COMMAND,
    calculate,
    default_policy,
    load_calendars,
)
from chimes.triggers import Trigger, parse_zone, trigger_from_dict
from chimes.web.api.schemas import PolicyIn, ScheduleIn, SchedulePatch, TargetPatch
from chimes.web.api.translate import patched_target, policy_from, schedule_out
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.editor.form import (
    definition_of,
    example_for,
    field_error_from,
    fields_of,
    form_field_for,
)
from chimes.web.dashboard.editor.merge import Change, MergeConflict, diff, patch_of
from chimes.web.dashboard.editor.preview import (
    CROWD,
    NEIGHBOURS_SHOWN,
    CronPart,
    Crowd,
    Preview,
    build_crowd,
    build_neighbours,
    build_preview,
    cron_parts,
)
from chimes.web.dashboard.editor.snippets import Command, as_command, as_curl, as_yaml
from chimes.web.dashboard.editor.trigger_fields import MAX_EXCLUSIONS, Fields, JsonObject
from chimes.web.dashboard.editor.zones import (
    KnownZones,
    ZoneChoice,
    recent_zones,
    search_zones,
    unique_zone,
    world_clock,
    zone_error,
)
from chimes.web.problems import FieldError, problem_of


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldMessage:
    """Error message of a field, with a hint and a valid example."""

    detail: str
    hint: str
    example: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """An existing schedule in the editor, and what saving would change."""

    schedule: Schedule
    #: The definition when the form was opened, as an API body.
    base: JsonObject
    changes: tuple[Change, ...] = ()
    #: Whether the next fire time moves; None means no fire.
    moves: bool = False
    next_from: datetime | None = None
    next_to: datetime | None = None
    #: What saving does to the fires of the next days; None if it changes none.
    effects: PlanEffects | None = None
    conflicts: tuple[MergeConflict, ...] = ()
    theirs: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FormState:
    fields: Fields
    errors: Mapping[str, FieldMessage] = field(default_factory=dict)
    #: Errors that belong to no field.
    form_errors: tuple[FieldMessage, ...] = ()
    preview: Preview | None = None
    #: The preview shows the last valid trigger, not the current one.
    stale: bool = False
    #: Median run duration, if it is longer than the interval between fires.
    too_long: timedelta | None = None
    #: Missing configuration without which every run would fail.
    missing: str = ""
    #: The previewed trigger as JSON; the form sends it back.
    last: str = ""
    command: Command | None = None
    curl: str = ""
    yaml: str = ""
    understood: str = ""
    #: Channels that the description names.
    channels: tuple[str, ...] = ()
    question: NeedsClarification | None = None
    zones: tuple[ZoneChoice, ...] = ()
    #: Current time in the relevant zones.
    world: tuple[ZoneChoice, ...] = ()
    cron: tuple[CronPart, ...] = ()
    #: The schedules that are due next.
    others: tuple[Schedule, ...] = ()
    neighbours: Chart | None = None
    crowd: Crowd | None = None
    edit: Edit | None = None
    trial: Run | None = None
    #: Result of a test notification: recipient row, message and toast kind.
    tested: tuple[int, str, str] | None = None

    @property
    def guessed(self) -> frozenset[str]:
        return frozenset(each for each in self.fields.get("guessed", "").split(",") if each)


def known_zones(request: PageRequest, others: Sequence[Schedule] = ()) -> KnownZones:
    return KnownZones(
        mine=request.display.zone,
        default=request.context.settings.default_timezone,
        recent=recent_zones(each.trigger.zone for each in others),
    )


def resolve_zone(
    request: PageRequest, fields: Fields, known: KnownZones
) -> tuple[Fields, tuple[ZoneChoice, ...]]:
    """Replaces a free-text zone by its IANA name, or returns the candidates if it is ambiguous."""
    text = fields.get("zone", "")
    if not text:
        return {**fields, "zone": request.display.zone}, ()
    name = unique_zone(text, request.now, sure=fields.get("zone_sure", ""))
    if name is not None:
        return {**fields, "zone": name}, ()
    return fields, search_zones(text, request.display.language, request.now, known)


def open_schedule(request: PageRequest, schedule: Schedule) -> tuple[Fields, JsonObject]:
    """Returns the form fields of a schedule and their definition.

    Comparing with this definition ignores differences that only come from the form's notation."""
    fields = fields_of(schedule_out(schedule), request.display.zone)
    return fields, definition_of(fields, request.now, is_edit=True).body


def validation_errors(model: type[BaseModel], body: Mapping[str, object]) -> tuple[FieldError, ...]:
    """Returns the errors that the API would report for this body."""
    try:
        model.model_validate(dict(body))
    except ValidationError as error:
        details = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        return problem_of(RequestValidationError(details)).errors
    return ()


def assign_errors(
    errors: Sequence[FieldError], fields: Mapping[str, str], *, only_filled: bool
) -> tuple[dict[str, FieldMessage], tuple[FieldMessage, ...]]:
    """Groups errors by form field. `only_filled` leaves out empty fields: they may not have been
    reached yet."""
    by_field: dict[str, FieldMessage] = {}
    others: list[FieldMessage] = []
    for each in errors:
        name = form_field_for(each.name, fields)
        if only_filled and not fields.get(name):
            continue
        message = FieldMessage(
            detail=each.detail, hint=each.hint, example=example_for(name, fields)
        )
        if name:
            by_field.setdefault(name, message)
        else:
            others.append(message)
    return by_field, tuple(others)


async def resolve_trigger(
    request: PageRequest, body: object, unchanged: Trigger | None = None
) -> Trigger:
    """Returns the trigger as it is stored, with zone and anchor; checks that it will fire."""
    trigger = trigger_from_dict(body)
    if trigger == unchanged:
        return trigger
    zone = await request.context.schedules.rules.zone_for(request.actor.owner, trigger)
    if trigger.on_event:
        return trigger
    trigger = await request.context.schedules.rules.calendars.resolve(trigger)
    trigger = trigger.with_default_zone(zone).with_default_anchor()
    if unchanged is not None and trigger.shown() == unchanged.shown():
        return unchanged
    await calculate([trigger], partial(check_fires, trigger, request.now))
    return trigger


def resolve_target(body: object, before: Target | None) -> Target:
    """Restores masked secrets from `before`; raises InvalidInput if there is nothing to restore."""
    given = TargetPatch.model_validate(body)
    if before is None or before.kind != given.kind:
        # A target of another kind inherits nothing.
        other = FlowTarget(name="") if given.kind == "sync" else _EMPTY_SYNC_TARGET
        return patched_target(given, other)
    return patched_target(given, before)


_EMPTY_SYNC_TARGET = SyncTarget(source="", collection="")


def policy_of(
    request: PageRequest, body: Mapping[str, object], target: Target
) -> tuple[Policy, PolicyIn]:
    given = PolicyIn.model_validate(body.get("policy", {}))
    return policy_from(given, default_policy(request.context.settings, target)), given


async def build_state(
    request: PageRequest,
    fields: Fields,
    *,
    edit: Edit | None = None,
    only_filled: bool = True,
    errors: Sequence[FieldError] = (),
    last: str = "",
) -> FormState:
    """Builds the form state. `errors` are known errors; `last` is the previously previewed trigger,
    shown while the current one is invalid."""
    crowded = (await request.context.schedules.find(request.actor, CROWD)).items
    others = crowded[:NEIGHBOURS_SHOWN]
    known = known_zones(request, others)
    fields, zones = resolve_zone(request, fields, known)
    if any(fields.get(f"ex{place}_kind") == "holidays" for place in range(MAX_EXCLUSIONS)):
        await load_calendars("holidays")
    definition = definition_of(fields, request.now, is_edit=edit is not None)
    body, found = definition.body, [*errors, *definition.errors]
    if zones:
        detail = zone_error(fields["zone"], zones)
        found.append(FieldError(name="timezone", detail=detail, code="unknown_zone"))
    if not errors:
        found += validation_errors(
            SchedulePatch if edit else ScheduleIn,
            _with_placeholders(body, zone_reported=bool(zones)),
        )
    trigger, stale = None, False
    if "trigger" in body and not zones:
        try:
            before = None if edit is None else edit.schedule.trigger
            trigger = await resolve_trigger(request, body["trigger"], before)
        except InvalidInput as error:
            found.append(field_error_from(error.within("trigger")))
    previewed = trigger
    if trigger is None and last:
        previewed, stale = _parse_last_trigger(last), True
    preview, too_long, neighbours, crowd = None, None, None, None
    if previewed is not None:
        described = None if stale else _without_default_anchor(body["trigger"], previewed)
        like = edit.schedule.id if edit else fields.get("source", "")
        too_long = await _exceeded_duration(request, like, previewed)
        policy, own_id = _policy(request, body, edit), edit.schedule.id if edit else None
        preview, neighbours, crowd = await calculate(
            [previewed, *(each.trigger for each in crowded)],
            lambda: (
                build_preview(previewed, request.display, request.now, policy, described),
                build_neighbours(previewed, others, request.display, request.now, own_id),
                build_crowd(previewed, crowded, request.display, request.now, own_id),
            ),
        )
    if edit is not None:
        edit = await with_changes(request, edit, body, trigger)
        edit = await _with_effects(request, edit, body, trigger, others)
    if not only_filled and fields.get("kind") == "http" and not fields.get("url"):
        found.append(FieldError(name="target.url", detail=_("Enter a URL."), code="missing"))
    if not fields.get("name") and any(each.name != "name" for each in found):
        # An empty name follows from the target, which is not complete yet.
        found = [each for each in found if each.name != "name"]
    by_field, form_errors = assign_errors(
        _without_duplicates(found), fields, only_filled=only_filled
    )
    return FormState(
        fields=fields,
        errors=by_field,
        form_errors=form_errors,
        preview=preview,
        stale=stale,
        too_long=too_long,
        missing=await missing_setup(request, fields),
        last="" if previewed is None else json.dumps(previewed.to_dict()),
        command=as_command(body) if "trigger" in body and "target" in body else None,
        curl=as_curl(body, str(request.http.base_url).rstrip("/")),
        yaml=as_yaml(body),
        zones=zones,
        world=world_clock(fields["zone"], request.display.language, request.now, known),
        cron=cron_parts(
            fields.get("expression", ""), fields.get("dialect", ""), request.display.language
        ),
        others=tuple(others),
        neighbours=neighbours,
        crowd=crowd,
        edit=edit,
    )


def _with_placeholders(body: Mapping[str, object], *, zone_reported: bool) -> JsonObject:
    """Fills in parts that could not be parsed, so that their errors are not reported twice."""
    trigger = body.get("trigger")
    if zone_reported and isinstance(trigger, Mapping):
        body = {**body, "trigger": {key: trigger[key] for key in trigger if key != "timezone"}}
    return {
        "name": "…",
        "trigger": {"kind": "cron", "expression": "@daily"},
        "target": {"kind": "http", "url": "http://localhost/"},
        **body,
    }


def _without_duplicates(found: Sequence[FieldError]) -> list[FieldError]:
    return list({(each.name, str(each.detail)): each for each in found}.values())


def _parse_last_trigger(text: str) -> Trigger | None:
    try:
        return trigger_from_dict(json.loads(text))
    except (ValueError, InvalidInput, RecursionError):
        return None


def _without_default_anchor(body: object, resolved: Trigger) -> Trigger:
    """Returns the trigger as entered: a description must not mention a default anchor."""
    return trigger_from_dict(body).with_default_zone(resolved.zone)


def _policy(request: PageRequest, body: Mapping[str, object], edit: Edit | None) -> Policy | None:
    """Returns the policy of the form; None while it is incomplete."""
    try:
        if edit is not None:
            return policy_from(PolicyIn.model_validate(body["policy"]), edit.schedule.policy)
        target = body["target"]
        assert isinstance(target, dict)
        bare = {name: value for name, value in target.items() if name != "signing_secrets"}
        return policy_of(request, body, resolve_target(bare, None))[0]
    except (InvalidInput, ValidationError, KeyError):
        return None


async def _exceeded_duration(request: PageRequest, like: str, trigger: Trigger) -> timedelta | None:
    """Returns the median duration of the schedule (or of the one it copies) if it is longer than
    the interval between fires."""
    fires = [fire.at for fire in trigger.fires(request.now, 2)]
    if not like or len(fires) < 2:
        return None
    schedule_id = ScheduleId(like)
    found = await request.context.insights.get_expected_durations(request.actor, [schedule_id])
    length = found.get(schedule_id)
    return length if length is not None and length > fires[1] - fires[0] else None


async def with_changes(
    request: PageRequest, edit: Edit, body: JsonObject, trigger: Trigger | None
) -> Edit:
    """Adds what saving would change, and how the next fire time would move."""
    found = diff(edit.base, body)
    schedule = edit.schedule
    after = schedule
    if trigger is not None and any(each.path in ("trigger", "enabled") for each in found):
        wanted = replace(schedule, trigger=trigger, enabled=bool(body.get("enabled")))
        after = apply_edit(schedule, wanted, request.now, request.actor.name)
    return replace(
        edit,
        changes=found,
        moves=after.next_run_at != schedule.next_run_at,
        next_from=schedule.next_run_at,
        next_to=after.next_run_at,
    )


#: Period of the plan that the editor shows.
PLAN_SPAN = timedelta(days=7)


async def _with_effects(
    request: PageRequest,
    edit: Edit,
    body: JsonObject,
    trigger: Trigger | None,
    others: Sequence[Schedule],
) -> Edit:
    """Adds the plan in fires, as `POST /api/v1/plan` computes it, beside the schedules that are due
    next."""
    before = edit.schedule
    if trigger is None or not any(each.path in ("trigger", "enabled") for each in edit.changes):
        return edit
    wanted = replace(before, trigger=trigger, enabled=bool(body.get("enabled")))
    after = apply_edit(before, wanted, request.now, request.actor.name)
    near = [each for each in others if each.id != before.id]
    zone = parse_zone(request.display.zone)
    effects = await CALCULATIONS.run(
        lambda: plan_effects(
            [PlanPair(before=before, after=after)],
            near,
            request.now,
            request.now + PLAN_SPAN,
            zone,
        )
    )
    return replace(edit, effects=effects)


def patch_for(edit: Edit, body: JsonObject) -> JsonObject:
    return patch_of(diff(edit.base, body), body)


def contains_masked_secret(body: Mapping[str, object]) -> bool:
    """Whether a secret is masked, so that the body cannot restore it."""
    return any(masked_names(body))


# --- what active nodes can execute ----------------------------------------------------------------
_MISSING: Mapping[str, Message] = {
    AGENT: _("No agent is configured. Set CHIMES_AGENT_PIPELINE, or use an HTTP request instead."),
    ACTION: _("No action service is configured. Set CHIMES_ACTION_URL."),
    COMMAND: _("Commands are not allowed. Start a worker with CHIMES_ALLOW_COMMANDS=true."),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncPair:
    """A collection of a data source."""

    name: str
    #: `python`, `command` or `http_json`; empty if only other nodes have the source.
    driver: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    tasks: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    pairs: tuple[SyncPair, ...] = ()
    agent: bool = False
    action: bool = False
    command: bool = False
    #: JSON Schema of the arguments, by task.
    arguments: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


async def available_options(request: PageRequest) -> Options:
    nodes = await _active_nodes(request)
    known = {name for node in nodes for name in (*node.capabilities, *node.defaults)}
    pairs = {target.key for target, _policy in request.context.sources.now.pairs()}
    pairs |= {name for name in known if name.startswith("sync:") and "#" in name}
    sources = request.context.sources.now.by_id
    named = sorted(key.removeprefix("sync:").replace("#", "/", 1) for key in pairs)
    return Options(
        tasks=_named(known, "task:"),
        flows=_named(known, "flow:"),
        pairs=tuple(
            SyncPair(name=name, driver=sources[source].driver if source in sources else "")
            for name in named
            for source in (name.partition("/")[0],)
        ),
        agent=_is_configured(nodes, AGENT),
        action=_is_configured(nodes, ACTION),
        command=COMMAND in known or request.context.settings.allow_commands,
        arguments=_arguments(nodes),
    )


async def missing_setup(request: PageRequest, fields: Fields) -> str:
    """Returns what is not configured for the target and the recipients; empty if nothing is
    missing."""
    kind = fields.get("kind", "")
    chosen = {fields.get(f"notify{row}_channel") for row in range(MAX_RECIPIENTS)}
    channels = [each for each in CHANNEL_SETTINGS if each.value in chosen]
    if kind not in _MISSING and not channels:
        return ""
    available = await request.context.setup.available()
    found = [_MISSING[kind]] if kind in _MISSING and kind not in available else []
    found += [
        _("Notifications fail: {reason}.", reason=channel_not_configured(each))
        for each in channels
        if each.capability not in available
    ]
    return joined(" ", found) if found else ""


async def _active_nodes(request: PageRequest) -> list[Node]:
    return list(await request.context.nodes.list_active(request.now))


def _is_configured(nodes: list[Node], kind: str) -> bool:
    """Every node claims such runs to report what is missing; only nodes that can execute them
    publish defaults."""
    return any(kind in node.defaults for node in nodes)


def _named(known: set[str], prefix: str) -> tuple[str, ...]:
    """Returns the names with the prefix. Steps of flows are tasks that cannot be run alone."""
    flows = {name.removeprefix("flow:") for name in known if name.startswith("flow:")}
    found = {name.removeprefix(prefix) for name in known if name.startswith(prefix)}
    return tuple(sorted(n for n in found if n.partition("/")[0] not in flows or "/" not in n))


def _arguments(nodes: list[Node]) -> Mapping[str, Mapping[str, object]]:
    """Returns argument schemas by task; the node that started last wins."""
    return {
        name.removeprefix("task:"): defaults.arguments
        for node in sorted(nodes, key=lambda node: node.started_at)
        for name, defaults in node.defaults.items()
        if name.startswith("task:") and defaults.arguments
    }
