"""What the wizard's page shows, put together: fields, what is wrong with them, the preview, and
what there is to choose from. The same functions as the API's read, check and plan."""

from __future__ import annotations

import json
from asyncio import to_thread
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from chimes.errors import InvalidInput, NeedsClarification
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy
from chimes.model.run import Run
from chimes.model.schedule import Schedule, edited
from chimes.model.target import FlowTarget, SyncTarget, Target
from chimes.redaction import HIDDEN
from chimes.services.insights import InsightService
from chimes.services.validation import check_fires, default_policy
from chimes.triggers import Trigger, trigger_from_dict
from chimes.triggers.calendars import calendar_from, holiday_days
from chimes.web.api.schemas import PolicyIn, ScheduleIn, SchedulePatch, TargetPatch
from chimes.web.api.translate import patched_target, policy_from, schedule_out
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.editor.cron_parts import CronPart, cron_parts
from chimes.web.dashboard.editor.form import (
    definition_of,
    example_for,
    fields_of,
    place_of,
    told_at,
)
from chimes.web.dashboard.editor.merge import Change, Clash, changes, patch_of
from chimes.web.dashboard.editor.options import not_set_up
from chimes.web.dashboard.editor.preview import (
    NEIGHBOURS,
    Neighbours,
    Preview,
    neighbours_of,
    preview_of,
)
from chimes.web.dashboard.editor.snippets import Command, as_command, as_curl, as_yaml
from chimes.web.dashboard.editor.trigger_fields import MOST_EXCLUSIONS, Fields, Plain
from chimes.web.dashboard.editor.zones import (
    KnownZones,
    ZoneChoice,
    found_zones,
    meant_zone,
    recent_zones,
    several_zones,
    world_clock,
)
from chimes.web.problems import FieldError, problem_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What is wrong with a field, and what could stand there."""

    detail: str
    hint: str
    example: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """Of a schedule that there is: what would change."""

    schedule: Schedule
    #: What the form said when it was opened, as the API reads it.
    base: Plain
    changes: tuple[Change, ...] = ()
    #: Whether the next fire moves; None of either: there is none.
    moves: bool = False
    next_from: datetime | None = None
    next_to: datetime | None = None
    clashes: tuple[Clash, ...] = ()
    theirs: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    fields: Fields
    said: Mapping[str, Said] = field(default_factory=dict)
    #: What no field can be blamed for.
    wrong: tuple[Said, ...] = ()
    preview: Preview | None = None
    #: The preview is of what was valid before.
    stale: bool = False
    #: What its runs take, where that is longer than from one fire to the next.
    too_long: timedelta | None = None
    #: What its runs would fail for, in words.
    missing: str = ""
    #: The trigger of the preview, for the next time.
    last: str = ""
    command: Command | None = None
    curl: str = ""
    yaml: str = ""
    understood: str = ""
    #: Through which channels the words say to tell somebody.
    channels: tuple[str, ...] = ()
    question: NeedsClarification | None = None
    zones: tuple[ZoneChoice, ...] = ()
    #: What time it is where it matters.
    world: tuple[ZoneChoice, ...] = ()
    cron: tuple[CronPart, ...] = ()
    #: Of the schedules that are due soonest: what it runs among, and may wait for.
    others: tuple[Schedule, ...] = ()
    neighbours: Neighbours | None = None
    edit: Edit | None = None
    trial: Run | None = None
    #: The row of a recipient that a test was sent to, what became of it, and how good that is.
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


def with_zone(
    request: PageRequest, fields: Fields, known: KnownZones
) -> tuple[Fields, tuple[ZoneChoice, ...]]:
    """A zone as people write it becomes its name; where several are meant, those are offered."""
    text = fields.get("zone", "")
    if not text:
        return {**fields, "zone": request.display.zone}, ()
    name = meant_zone(text, request.now, sure=fields.get("zone_sure", ""))
    if name is not None:
        return {**fields, "zone": name}, ()
    return fields, found_zones(text, request.display.language, request.now, known)


def opened(request: PageRequest, schedule: Schedule) -> tuple[Fields, Plain]:
    """The fields of a schedule, and what they say: held against that, nothing counts as changed
    that the form only writes otherwise."""
    fields = fields_of(schedule_out(schedule), request.display.zone)
    return fields, definition_of(fields, request.now, changing=True).body


def checked(model: type[BaseModel], body: Mapping[str, object]) -> tuple[FieldError, ...]:
    """What the API would say to this body."""
    try:
        model.model_validate(dict(body))
    except ValidationError as error:
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        return problem_of(RequestValidationError(found)).errors
    return ()


def placed(
    errors: Sequence[FieldError], fields: Mapping[str, str], *, filled_only: bool
) -> tuple[dict[str, Said], tuple[Said, ...]]:
    """By field of the form. `filled_only`: nobody is blamed for what they have not come to yet."""
    by_place: dict[str, Said] = {}
    others: list[Said] = []
    for each in errors:
        place = place_of(each.name, fields)
        said = Said(detail=each.detail, hint=each.hint, example=example_for(place, fields))
        if filled_only and not fields.get(place):
            continue
        if place:
            by_place.setdefault(place, said)
        else:
            others.append(said)
    return by_place, tuple(others)


async def settled(request: PageRequest, plain: object, unchanged: Trigger | None = None) -> Trigger:
    """As the scheduler would have it: with its zone and anchor, and with fires to come."""
    trigger = trigger_from_dict(plain)
    if trigger == unchanged:
        return trigger
    zone = await request.context.schedules.zone_for(request.actor.owner, trigger)
    trigger = trigger.with_default_zone(zone)
    trigger = trigger.anchored(trigger.start_at or request.now)
    check_fires(trigger, request.now)
    return trigger


def real_target(plain: object, before: Target | None) -> Target:
    """With the secrets that come back hidden; InvalidInput if there are none to keep."""
    given = TargetPatch.model_validate(plain)
    if before is None or before.kind != given.kind:
        # Of another kind nothing is kept.
        nothing = FlowTarget(name="") if given.kind == "sync" else _NO_PAIR
        return patched_target(given, nothing)
    return patched_target(given, before)


_NO_PAIR = SyncTarget(source="", collection="")


def policy_of(
    request: PageRequest, body: Mapping[str, object], target: Target
) -> tuple[Policy, PolicyIn]:
    given = PolicyIn.model_validate(body.get("policy", {}))
    return policy_from(given, default_policy(request.context.settings, target)), given


async def composed(
    request: PageRequest,
    fields: Fields,
    *,
    edit: Edit | None = None,
    filled_only: bool = True,
    errors: Sequence[FieldError] = (),
    last: str = "",
) -> Sheet:
    """The sheet for these fields. `errors`: what was found wrong already; `last`: the trigger that
    was previewed before, for where this one is not valid."""
    others = (await request.context.schedules.find(request.actor, NEIGHBOURS)).items
    known = known_zones(request, others)
    fields, zones = with_zone(request, fields, known)
    if any(fields.get(f"ex{place}_kind") == "holidays" for place in range(MOST_EXCLUSIONS)):
        # The package of holidays takes a second to load, which nobody else is to wait for.
        await to_thread(_know_holidays, request.now.year)
    definition = definition_of(fields, request.now, changing=edit is not None)
    body, found = definition.body, [*errors, *definition.wrong]
    if zones:
        detail = several_zones(fields["zone"], zones)
        found.append(FieldError(name="timezone", detail=detail, code="unknown_zone"))
    if not errors:
        found += checked(SchedulePatch if edit else ScheduleIn, _complete(body, told=bool(zones)))
    trigger, stale = None, False
    if "trigger" in body and not zones:
        try:
            before = None if edit is None else edit.schedule.trigger
            trigger = await settled(request, body["trigger"], before)
        except InvalidInput as error:
            found.append(told_at(error.within("trigger")))
    shown = trigger
    if trigger is None and last:
        shown, stale = _read_last(last), True
    preview, too_long, neighbours = None, None, None
    if shown is not None:
        asked = None if stale else _asked(body["trigger"], shown)
        like = edit.schedule.id if edit else fields.get("source", "")
        too_long = await _usually(request, like, shown)
        preview = preview_of(
            shown, request.display, request.now, _policy(request, body, edit), asked
        )
        but = edit.schedule.id if edit else None
        neighbours = neighbours_of(shown, others, request.display, request.now, but)
    if edit is not None:
        edit = await with_changes(request, edit, body, trigger)
    said, wrong = placed(_once_each(found), fields, filled_only=filled_only)
    return Sheet(
        fields=fields,
        said=said,
        wrong=wrong,
        preview=preview,
        stale=stale,
        too_long=too_long,
        missing=await not_set_up(request, fields.get("kind", "")),
        last="" if shown is None else json.dumps(shown.to_dict()),
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
        edit=edit,
    )


def _know_holidays(year: int) -> None:
    calendar_from({"holidays": "TH"}, "exclude")
    holiday_days("TH", year)


def _complete(body: Mapping[str, object], *, told: bool) -> Plain:
    """A part that could not be read was complained about already; so was, if `told`, the zone."""
    trigger = body.get("trigger")
    if told and isinstance(trigger, Mapping):
        body = {**body, "trigger": {key: trigger[key] for key in trigger if key != "timezone"}}
    return {
        "name": "…",
        "trigger": {"kind": "cron", "expression": "@daily"},
        "target": {"kind": "http", "url": "http://localhost/"},
        **body,
    }


def _once_each(found: Sequence[FieldError]) -> list[FieldError]:
    return list({(each.name, str(each.detail)): each for each in found}.values())


def _read_last(text: str) -> Trigger | None:
    try:
        return trigger_from_dict(json.loads(text))
    except (ValueError, InvalidInput, RecursionError):
        return None


def _asked(plain: object, settled_: Trigger) -> Trigger:
    """Without an anchor that nobody named."""
    return trigger_from_dict(plain).with_default_zone(settled_.zone)


def _policy(request: PageRequest, body: Mapping[str, object], edit: Edit | None) -> Policy | None:
    """How it would be carried out; None as long as that cannot be said."""
    try:
        if edit is not None:
            return policy_from(PolicyIn.model_validate(body["policy"]), edit.schedule.policy)
        target = body["target"]
        assert isinstance(target, dict)
        bare = {name: value for name, value in target.items() if name != "signing_secrets"}
        return policy_of(request, body, real_target(bare, None))[0]
    except (InvalidInput, ValidationError, KeyError):
        return None


async def _usually(request: PageRequest, like: str, trigger: Trigger) -> timedelta | None:
    """How long runs of this schedule take, or of the one that it is a copy of, where that is longer
    than the time from one fire to the next."""
    fires = [fire.at for fire in trigger.fires(request.now, 2)]
    if not like or len(fires) < 2:
        return None
    schedule_id = ScheduleId(like)
    found = await InsightService(request.context.store).expected_durations(
        request.actor, [schedule_id]
    )
    length = found.get(schedule_id)
    return length if length is not None and length > fires[1] - fires[0] else None


async def with_changes(
    request: PageRequest, edit: Edit, body: Plain, trigger: Trigger | None
) -> Edit:
    """What saving would change, and where the next fire would move."""
    found = changes(edit.base, body)
    schedule = edit.schedule
    after = schedule
    if trigger is not None and any(each.path in ("trigger", "enabled") for each in found):
        wanted = replace(schedule, trigger=trigger, enabled=bool(body.get("enabled")))
        after = edited(schedule, wanted, request.now, request.actor.name)
    return replace(
        edit,
        changes=found,
        moves=after.next_run_at != schedule.next_run_at,
        next_from=schedule.next_run_at,
        next_to=after.next_run_at,
    )


def patch_for(edit: Edit, body: Plain) -> Plain:
    return patch_of(changes(edit.base, body), body)


def hides_something(body: Mapping[str, object]) -> bool:
    """Whether a secret in it is hidden, so that it cannot be put back from here."""
    return HIDDEN in json.dumps(body, ensure_ascii=False, default=str)
