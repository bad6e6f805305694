"""Changesets: what to create, update and delete so that stored schedules become the wanted ones.

A changeset is planned first and shown, as changed fields and as changed fires, and then applied as
a whole. `chimes apply` and `chimes edit` use it over the API. Export writes what it reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

from msgspec import NODEFAULT

from chimes.config import Settings
from chimes.errors import (
    AlreadyExists,
    ChimesError,
    Conflict,
    InvalidInput,
    InvalidItems,
    NotAllowed,
    NotFound,
    QuotaExceeded,
)
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.fields import default_in_json, fields_of
from chimes.model.forecast import PlanEffects, PlanPair, plan_effects
from chimes.model.ids import DEFAULT_NAMESPACE, ScheduleId, canonical_namespace
from chimes.model.listing import ScheduleQuery
from chimes.model.policy import RunDefaults
from chimes.model.proposal import planning_actor
from chimes.model.schedule import (
    MAX_COMPARED_FIRES,
    FireChanges,
    Schedule,
    clear_source_marker,
    compare_fires,
    counts_against,
    definition_digest,
    is_detached,
    mark_source,
    quota_exceeded,
    source_marker,
)
from chimes.model.validation import validate_schedule
from chimes.services.access import CALCULATIONS
from chimes.services.schedules.definitions import definition_to_json
from chimes.services.schedules.rules import (
    apply_run_defaults,
    capability_of,
    default_policy,
    with_default_zones,
)
from chimes.services.schedules.service import (
    SAME_NAME_LIMIT,
    ScheduleChange,
    ScheduleService,
    delete_change,
    pause_change,
    queue_events,
    resume_change,
    unused_declared_id,
)
from chimes.services.schedules.setup import (
    SetupService,
    SetupWarning,
    name_warning,
    source_warnings,
)
from chimes.store.codec.values import owner_to_plain
from chimes.store.port import Store
from chimes.triggers import parse_zone

Json = dict[str, object]
#: The period in which fires are compared.
PERIOD = timedelta(days=7)
#: Fires computed for one changeset; shared by its items.
_MAX_FIRES = 200_000
_MIN_FIRES = 200
_PAGE = 500


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    #: Only in plans of proposals: `apply` of files changes `enabled`.
    PAUSE = "pause"
    RESUME = "resume"
    NONE = "none"


NO_ACTIONS: Mapping[ScheduleId, Action] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedSchedule:
    name: str
    namespace: str
    #: None: the caller.
    owner: Owner | None
    #: Identifies the schedule; None: name, namespace and owner do.
    id: ScheduleId | None
    #: Builds the definition. Secrets given as `***` are those of the stored schedule.
    draft: Callable[[Schedule | None], Schedule]
    #: As in `ScheduleService.create`.
    explicit_fields: frozenset[str]
    #: Whether `enabled` was given; otherwise a stored schedule stays paused or active.
    sets_enabled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangesetItem:
    action: Action
    name: str
    namespace: str
    id: ScheduleId
    #: None: it does not exist.
    before: Schedule | None
    after: Schedule | None
    #: Path of a field -> value before and after, without secrets.
    fields: Mapping[str, tuple[object, object]]
    fires: FireChanges
    warnings: tuple[SetupWarning, ...] = ()
    #: For update and delete.
    change: ScheduleChange | None = None
    #: Digest of the requested definition, before defaults that depend on the current time.
    digest: str = ""

    @property
    def version(self) -> int | None:
        return None if self.before is None else self.before.version


@dataclass(frozen=True, kw_only=True, slots=True)
class Changeset:
    items: tuple[ChangesetItem, ...]

    @property
    def digest(self) -> str:
        """Equal for plans that do the same with the same versions of schedules."""
        lines = [
            [each.action, each.id, each.name, each.version, each.digest, sorted(each.fields)]
            for each in self.items
            if each.action is not Action.NONE
        ]
        return hashlib.blake2b(json.dumps(lines).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedChange:
    """One change of a request for `plan_fires`: exactly one of `edit`, `draft` and `delete`."""

    #: Of the schedule to change or delete.
    id: ScheduleId | None = None
    edit: Callable[[Schedule], Schedule] | None = None
    #: A schedule to create.
    draft: Schedule | None = None
    delete: bool = False
    #: As in `ScheduleService.create`.
    explicit_fields: frozenset[str] = frozenset()
    #: Where the request has it, for errors.
    path: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    #: By name, as the API takes them.
    schedules: Mapping[str, Json]
    #: Names of schedules that code declares; a file cannot define them.
    skipped: tuple[str, ...]


class ChangesetService:
    def __init__(
        self, store: Store, schedules: ScheduleService, setup: SetupService, settings: Settings
    ) -> None:
        self._store = store
        self._schedules = schedules
        self._rules = schedules.rules
        self._setup = setup
        self._settings = settings

    async def plan(
        self,
        actor: Actor,
        wanted: Sequence[WantedSchedule],
        *,
        origin: str,
        namespace: str = DEFAULT_NAMESPACE,
        prune: bool = False,
        actions: Mapping[ScheduleId, Action] = NO_ACTIONS,
    ) -> Changeset:
        """What `apply` would do. InvalidItems has the error of every item that is invalid.

        `origin`: where the schedules come from; they are marked with it. Empty: an edit, which
        marks nothing. `prune`: also delete schedules of this origin that are not wanted, in
        `namespace` and in the namespaces of the wanted ones, if they belong to the caller or to an
        owner of wanted ones. `actions`: further schedules to delete, pause or resume; those that
        do not exist are left out.
        """
        await self._rules.refresh_limits()
        now = await self._store.now()
        errors: dict[str, ChimesError] = {}
        found: list[tuple[WantedSchedule, Schedule | None, Schedule]] = []
        planned: dict[ScheduleId, Schedule] = {}
        for each in wanted:
            try:
                stored = await self._find(actor, each, origin)
                draft = await self._draft(actor, each, stored)
                if draft.id in planned:
                    raise InvalidInput(
                        _("{name!r} is the same schedule", name=planned[draft.id].name),
                        code="duplicate",
                    )
            except (InvalidInput, Conflict, NotFound) as error:
                errors[each.name] = error
            else:
                found.append((each, stored, draft))
                planned[draft.id] = draft
        items: list[ChangesetItem] = []
        for each, stored, draft in _by_dependency(found):
            try:
                items.append(await self._item(actor, each, stored, draft, origin, planned, now))
            except QuotaExceeded:
                raise
            except (InvalidInput, Conflict, NotFound) as error:
                errors[each.name] = error
        if errors:
            raise InvalidItems(errors, field="schedules")
        if prune:
            kept = {item.id for item in items}
            spaces = {canonical_namespace(namespace), *(each.namespace for each in wanted)}
            owners = {actor.owner, *(each.owner for each in planned.values())}
            items += [
                self._deletion(actor, each, now)
                for space in sorted(spaces)
                for each in await self._list(actor, space)
                if each.id not in kept and each.owner in owners and _is_from(each, origin)
            ]
        items += await self._actions(actor, actions, {item.id for item in items}, now)
        await self._check_quotas(items)
        return Changeset(items=await self._with_effects(items, now))

    async def plan_fires(
        self, actor: Actor, requested: Sequence[RequestedChange], span: timedelta
    ) -> PlanEffects:
        """What these changes together would do to the fires of the next days, beside the other
        schedules that the actor may see. Saves nothing. Errors are those of the real changes,
        except that an actor who may only read may plan, too."""
        planner = planning_actor(actor)
        now = await self._store.now()
        items: dict[ScheduleId, ChangesetItem] = {}
        for each in requested:
            try:
                item = await self._requested_item(planner, each, now)
                if item.id in items:
                    raise InvalidInput(_("{id} is changed twice", id=item.id), code="duplicate")
            except InvalidInput as error:
                raise error.within(each.path) from None
            items[item.id] = item
        await self._check_quotas(list(items.values()))
        zone = parse_zone(await self._rules.zone_for(actor.owner))
        others = [
            each for each in await self._schedules.list_visible(actor) if each.id not in items
        ]
        pairs = [PlanPair(before=each.before, after=each.after) for each in items.values()]
        return await CALCULATIONS.run(partial(plan_effects, pairs, others, now, now + span, zone))

    async def _requested_item(
        self, actor: Actor, requested: RequestedChange, now: datetime
    ) -> ChangesetItem:
        if requested.draft is not None:
            created = await self._schedules.prepare_create(
                actor, requested.draft, explicit_fields=requested.explicit_fields
            )
            return _new_item(Action.CREATE, None, created, now, created)
        assert requested.id is not None
        stored = await self._schedules.get(actor, requested.id)
        if requested.delete:
            return self._deletion(actor, stored, now)
        assert requested.edit is not None
        if not actor.may_write(stored.owner):
            raise NotAllowed()
        change = await self._schedules.prepare_change(
            actor, stored, requested.edit, explicit_fields=requested.explicit_fields
        )
        after = change.apply(stored, now)
        return replace(_new_item(Action.UPDATE, stored, after, now, after), change=change)

    async def apply(
        self,
        actor: Actor,
        wanted: Sequence[WantedSchedule],
        *,
        origin: str,
        namespace: str = DEFAULT_NAMESPACE,
        prune: bool = False,
        actions: Mapping[ScheduleId, Action] = NO_ACTIONS,
        expected: str | None = None,
    ) -> Changeset:
        """Makes the changes of `plan`; returns it. `expected`: the digest of the plan that was
        shown; Conflict if the plan has become another one."""
        changeset = await self.plan(
            actor, wanted, origin=origin, namespace=namespace, prune=prune, actions=actions
        )
        if expected is not None and changeset.digest != expected:
            raise Conflict(
                _("the schedules changed since the plan was made; make a new plan"),
                code="plan_changed",
            )
        items = changeset.items
        await self._schedules.write_set(
            actor,
            [each.after for each in items if each.action is Action.CREATE and each.after],
            [(each.before, each.change) for each in items if each.before and each.change],
        )
        for each in items:
            if origin and each.action is Action.NONE and each.before:
                await self._mark(each.before, origin)
        return changeset

    async def export(
        self,
        actor: Actor,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        ids: Collection[ScheduleId] = (),
        full: bool = False,
    ) -> Export:
        """The schedules of a namespace, or those with these ids, as `plan` takes them, with secrets
        masked. Fields that have the default values of this server are left out unless `full`.
        Conflict if two have the same name, because the name identifies them in a file."""
        if ids:
            listed = [await self._schedules.get(actor, each) for each in ids]
        else:
            listed = await self._list(actor, namespace)
        by_name: dict[str, Schedule] = {}
        skipped: list[str] = []
        for each in listed:
            marker = source_marker(each)
            if marker is not None and marker.kind == "code" and not ids:
                skipped.append(each.name)
                continue
            other = by_name.setdefault(each.name, each)
            if other is not each:
                raise Conflict(
                    _(
                        "two schedules are named {name!r}: {first} and {second}; rename one of"
                        " them, or export others by their ids",
                        name=each.name,
                        first=other.id,
                        second=each.id,
                    ),
                    code="duplicate_name",
                )
        return Export(
            schedules={
                name: await self._exported(actor, each, full=full) for name, each in by_name.items()
            },
            skipped=tuple(skipped),
        )

    async def _exported(self, actor: Actor, schedule: Schedule, *, full: bool) -> Json:
        found: Json = {}
        if canonical_namespace(schedule.namespace) != DEFAULT_NAMESPACE:
            found["namespace"] = canonical_namespace(schedule.namespace)
        if schedule.owner != actor.owner:
            found["owner"] = owner_to_plain(schedule.owner)
        found |= definition_to_json(schedule, masked=True)
        if full:
            return found
        target = schedule.target
        run_defaults = RunDefaults(policy=default_policy(self._settings, target))
        if target.kind != "http":
            declared = await self._rules.get_saved_run_defaults(target)
            unset = apply_run_defaults(
                replace(schedule, policy=run_defaults.policy, priority=0), declared, ()
            )
            run_defaults = RunDefaults(policy=unset.policy, priority=unset.priority)
        if schedule.trigger.on_event:
            queued = queue_events(replace(schedule, policy=run_defaults.policy), ())
            run_defaults = replace(run_defaults, policy=queued.policy)
        defaults = definition_to_json(
            replace(
                schedule,
                policy=run_defaults.policy,
                priority=run_defaults.priority,
                labels={},
                enabled=True,
                depends_on=None,
            ),
            masked=True,
        )
        defaults["target"] = {
            field.json: default_in_json(field)
            for field in fields_of(type(target))
            if field.name != "kind" and field.default is not NODEFAULT and "." not in field.json
        }
        del defaults["trigger"]
        return _without_defaults(found, defaults)

    async def _list(self, actor: Actor, namespace: str) -> list[Schedule]:
        query = ScheduleQuery(namespace=namespace, limit=_PAGE)
        found: list[Schedule] = []
        while True:
            page = await self._schedules.find(actor, query)
            found += page.items
            if page.next is None:
                return found
            query = replace(query, after=page.next)

    async def _find(self, actor: Actor, wanted: WantedSchedule, origin: str) -> Schedule | None:
        if wanted.id is not None:
            stored = await self._store.get_schedule(wanted.id)
            if stored is None:
                return None
            if stored.deleted_at is not None or not actor.may_see(stored.owner):
                raise AlreadyExists()
            if canonical_namespace(stored.namespace) != wanted.namespace:
                raise InvalidInput(
                    _("the schedule {id} is in another namespace", id=stored.id), field="namespace"
                )
            if wanted.owner not in (None, stored.owner):
                raise InvalidInput(
                    _("the schedule {id} has another owner", id=stored.id), field="owner"
                )
        else:
            owner = wanted.owner or actor.owner
            if not actor.may_see(owner):
                raise NotAllowed()
            query = ScheduleQuery(
                namespace=wanted.namespace,
                name=wanted.name,
                owner=owner,
                limit=SAME_NAME_LIMIT,
            )
            named = (await self._schedules.find(actor, query)).items
            own = [each for each in named if _is_from(each, origin)]
            candidates = own or named
            if len(candidates) > 1:
                raise InvalidInput(
                    _(
                        "several schedules have this name: {ids}; add the id of one of them",
                        ids=", ".join(each.id for each in candidates),
                    ),
                    field="id",
                    code="ambiguous",
                )
            stored = candidates[0] if candidates else None
        marker = source_marker(stored) if stored is not None else None
        if origin and marker is not None and marker.kind == "code":
            raise InvalidInput(
                _(
                    "this schedule is declared in code at {at}; remove it from the file or from the"
                    " code",
                    at=marker.at or "?",
                ),
                code="declared_in_code",
            )
        return stored

    async def _draft(
        self, actor: Actor, wanted: WantedSchedule, stored: Schedule | None
    ) -> Schedule:
        """The wanted definition under its id, with the run defaults of its target."""
        draft = replace(wanted.draft(stored), name=wanted.name, namespace=wanted.namespace)
        if stored is None:
            new_id = wanted.id or await unused_declared_id(
                self._store, f"{wanted.namespace}/{draft.owner}", wanted.name
            )
            return replace(draft, id=new_id)
        same_capability = capability_of(draft.target) == capability_of(stored.target)
        try:
            defaults = await self._rules.get_run_defaults(draft.target)
        except InvalidInput:
            if not same_capability:
                raise
            # No node offers the task at the moment: what the file does not set stays.
            defaults = RunDefaults(policy=stored.policy, priority=stored.priority)
        if defaults is not None:
            draft = apply_run_defaults(draft, defaults, wanted.explicit_fields)
        if draft.trigger.on_event:
            draft = queue_events(draft, wanted.explicit_fields)
        return replace(draft, id=stored.id, owner=stored.owner)

    async def _item(
        self,
        actor: Actor,
        wanted: WantedSchedule,
        stored: Schedule | None,
        draft: Schedule,
        origin: str,
        planned: Mapping[ScheduleId, Schedule],
        now: datetime,
    ) -> ChangesetItem:
        def marked(schedule: Schedule) -> Schedule:
            return mark_source(schedule, origin, "file") if origin else schedule

        if stored is None:
            created = await self._schedules.prepare_create(
                actor, draft, explicit_fields=wanted.explicit_fields, planned=planned
            )
            others = await self._schedules.find_same_name(created, stored=False)
            return _new_item(Action.CREATE, None, marked(created), now, draft, name_warning(others))
        zone = await self._rules.zone_for(stored.owner, draft.trigger)
        draft = replace(draft, trigger=await self._rules.calendars.resolve(draft.trigger))

        def edit(before: Schedule) -> Schedule:
            after = replace(
                before,
                name=draft.name,
                trigger=self._rules.complete_trigger(
                    draft.trigger, before.trigger, zone, before.id
                ),
                target=draft.target,
                policy=with_default_zones(draft.policy, zone, draft.trigger),
                priority=draft.priority,
                labels=draft.labels,
                enabled=draft.enabled if wanted.sets_enabled else before.enabled,
                depends_on=draft.depends_on,
            )
            return validate_schedule(after, before)

        if not actor.may_write(stored.owner):
            raise NotAllowed()
        if edit(stored) == stored:
            return _new_item(Action.NONE, stored, stored, now, draft)
        change = await self._schedules.prepare_change(
            actor, stored, lambda before: marked(edit(before)), planned=planned
        )
        after = change.apply(stored, now)
        if clear_source_marker(after) == clear_source_marker(stored):
            return _new_item(Action.NONE, stored, stored, now, draft)
        warnings = () if origin else source_warnings(stored)
        if after.name != stored.name:
            warnings += name_warning(await self._schedules.find_same_name(after, stored=False))
        if origin and is_detached(stored):
            message = _(
                "it was edited since the file was applied, by {user}; the file overwrites this",
                user=stored.updated_by,
            )
            warnings += (SetupWarning(code="edited_elsewhere", field="", message=message),)
        item = _new_item(Action.UPDATE, stored, after, now, draft, warnings)
        return replace(item, change=change)

    def _deletion(self, actor: Actor, schedule: Schedule, now: datetime) -> ChangesetItem:
        if not actor.may_write(schedule.owner):
            raise NotAllowed()
        item = _new_item(Action.DELETE, schedule, None, now, schedule)
        return replace(item, change=delete_change(actor))

    async def _actions(
        self,
        actor: Actor,
        actions: Mapping[ScheduleId, Action],
        known: Collection[ScheduleId],
        now: datetime,
    ) -> list[ChangesetItem]:
        """`known`: schedules that the changeset changes otherwise."""
        items: list[ChangesetItem] = []
        for schedule_id, action in actions.items():
            if schedule_id in known:
                raise InvalidInput(
                    _("{id} is changed twice", id=schedule_id), field=action.value, code="duplicate"
                )
            try:
                stored = await self._schedules.get(actor, schedule_id)
            except NotFound:
                continue
            items.append(self._action(actor, stored, action, now))
        return items

    def _action(
        self, actor: Actor, schedule: Schedule, action: Action, now: datetime
    ) -> ChangesetItem:
        if action is Action.DELETE:
            return self._deletion(actor, schedule, now)
        if not actor.may_operate(schedule.owner):
            raise NotAllowed()
        change = pause_change(actor) if action is Action.PAUSE else resume_change(actor)
        after = change.apply(schedule, now)
        if after == schedule:
            return _new_item(Action.NONE, schedule, schedule, now, schedule)
        return replace(_new_item(action, schedule, after, now, schedule), change=change)

    async def _check_quotas(self, items: Sequence[ChangesetItem]) -> None:
        """Raises QuotaExceeded before anything is saved. Deleted schedules are not subtracted: they
        are deleted last."""
        changed = [each for each in items if each.after is not None]
        for owner in {each.after.owner: None for each in changed if each.after}:
            if not self._rules.quotas(owner):
                continue
            for usage in await self._schedules.list_quota_usage(owner):
                more = sum(
                    1
                    for each in changed
                    if each.after is not None
                    and each.after.owner == owner
                    and counts_against(each.after, usage.quota)
                    and not (each.before and counts_against(each.before, usage.quota))
                )
                if more and usage.used + more > usage.quota.limit:
                    raise quota_exceeded(owner, usage.quota)

    async def _with_effects(
        self, items: Sequence[ChangesetItem], now: datetime
    ) -> tuple[ChangesetItem, ...]:
        """The items with their changes of fires and the warnings of their settings."""
        changing = [each for each in items if each.action is not Action.NONE]
        limit = min(MAX_COMPARED_FIRES, max(_MIN_FIRES, _MAX_FIRES // max(1, len(changing))))

        def compare() -> dict[ScheduleId, FireChanges]:
            return {
                each.id: compare_fires(each.before, each.after, now, now + PERIOD, limit=limit)
                for each in changing
            }

        fires = await CALCULATIONS.run(compare) if changing else {}
        kept = [each.after for each in changing if each.after is not None]
        found = await self._setup.warnings_of(kept)
        setup = {each.id: warnings for each, warnings in zip(kept, found, strict=True)}
        return tuple(
            replace(
                each,
                fires=fires.get(each.id, each.fires),
                warnings=each.warnings + setup.get(each.id, ()),
            )
            for each in items
        )

    async def _mark(self, schedule: Schedule, origin: str) -> None:
        """Marks a schedule that equals its file, without a new version or an audit entry."""

        def mark(before: Schedule, now: datetime) -> Schedule:
            same = definition_digest(before) == definition_digest(schedule)
            return mark_source(before, origin, "file") if same else before

        if mark(schedule, schedule.updated_at) != schedule:
            await self._store.change_schedule(schedule.id, mark)


def _is_from(schedule: Schedule, origin: str) -> bool:
    marker = source_marker(schedule)
    return bool(origin) and marker is not None and (marker.kind, marker.at) == ("file", origin)


def _new_item(
    action: Action,
    before: Schedule | None,
    after: Schedule | None,
    now: datetime,
    draft: Schedule,
    warnings: tuple[SetupWarning, ...] = (),
) -> ChangesetItem:
    shown = after or before
    assert shown is not None
    changes = {} if action is Action.NONE else changed_fields(before, after)
    return ChangesetItem(
        action=action,
        name=shown.name,
        namespace=canonical_namespace(shown.namespace),
        id=shown.id,
        before=before,
        after=after,
        fields=changes,
        fires=FireChanges(until=now + PERIOD),
        warnings=warnings,
        digest=definition_digest(draft),
    )


def _by_dependency(
    found: Sequence[tuple[WantedSchedule, Schedule | None, Schedule]],
) -> list[tuple[WantedSchedule, Schedule | None, Schedule]]:
    """Each schedule after the one that it depends on, otherwise in the order given."""
    by_id = {draft.id: (wanted, stored, draft) for wanted, stored, draft in found}
    ordered: dict[ScheduleId, tuple[WantedSchedule, Schedule | None, Schedule]] = {}
    for _wanted, _stored, draft in found:
        chain: list[ScheduleId] = []
        current: Schedule | None = draft
        while current is not None and current.id not in ordered and current.id not in chain:
            chain.append(current.id)
            depends_on = current.depends_on
            following = by_id.get(depends_on.schedule_id) if depends_on else None
            current = following[2] if following else None
        ordered |= {each: by_id[each] for each in reversed(chain)}
    return list(ordered.values())


# --- differences of definitions -------------------------------------------------------------------
def changed_fields(
    before: Schedule | None, after: Schedule | None
) -> dict[str, tuple[object, object]]:
    """`policy.timeout` -> value before and after in the form of the API. Secrets are compared, and
    shown as `***`."""
    return dict(_leaves("", *_unmasked_and_masked(before), *_unmasked_and_masked(after)))


def differences(before: object, after: object) -> dict[str, tuple[object, object]]:
    """Path of a field -> value before and after, of two definitions in the form of the API."""
    return dict(_leaves("", before, before, after, after))


def _unmasked_and_masked(schedule: Schedule | None) -> tuple[object, object]:
    """The definition with its secrets, and with masked ones."""
    if schedule is None:
        return {}, {}
    named: Json = {"name": schedule.name}
    return (
        named | definition_to_json(schedule, masked=False),
        named | definition_to_json(schedule, masked=True),
    )


def _leaves(
    path: str, old: object, shown_old: object, new: object, shown_new: object
) -> Iterator[tuple[str, tuple[object, object]]]:
    if old == new:
        return
    parts = [{} if each is None else each for each in (old, shown_old, new, shown_new)]
    objects = [each for each in parts if isinstance(each, Mapping)]
    if len(objects) < len(parts):
        yield path, (shown_old, shown_new)
        return
    for name in dict.fromkeys([*objects[0], *objects[2]]):
        values = [each.get(name) for each in objects]
        yield from _leaves(f"{path}.{name}" if path else str(name), *values)


def _without_defaults(value: Json, defaults: Mapping[str, object]) -> Json:
    """Without the fields that have their default; objects of the same fields are compared by
    field, and left out if nothing remains."""
    found: Json = {}
    for name, item in value.items():
        default = defaults.get(name, ...)
        if item == default:
            continue
        if name in ("target", "policy") and isinstance(item, dict) and isinstance(default, Mapping):
            item = {key: each for key, each in item.items() if each != default.get(key, ...)}
        found[name] = item
    return found
