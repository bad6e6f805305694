"""The any trigger: the union of several triggers, without the fires of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Literal, Self, cast

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import Absence, TriggerBase, trigger_from_dict
from chimes.triggers.calendars import Calendar, NamedCalendar
from chimes.triggers.searches import BoundedSearch, Note, Search, UnionSearch
from chimes.triggers.values import to_microseconds
from chimes.triggers.zones import UTC_NAME, parse_zone

if TYPE_CHECKING:
    from chimes.triggers import TimeTrigger

MAX_MEMBERS = 32
MAX_DEPTH = 4


@dataclass(frozen=True, slots=True, init=False)
class AnyOf(TriggerBase):
    """Fires when one of `of` fires, once if several do, unless one of `except_` fires at the same
    instant.

    Bounds, calendars, jitter and spread belong to the union: its calendars apply to each trigger of
    `of`, in that one's zone. The triggers may have bounds and calendars of their own.
    """

    kind: ClassVar[Literal["any"]] = "any"
    json_keys: ClassVar[tuple[str, ...]] = ("of", "except")
    structured: ClassVar[tuple[str, ...]] = ("of",)

    of: tuple[TimeTrigger, ...]
    except_: tuple[TimeTrigger, ...]
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    jitter: timedelta | None
    spread: timedelta | None
    _search: Search = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        of: Iterable[object],
        *,
        except_: Iterable[object] = (),
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
        jitter: str | timedelta | None = None,
        spread: str | timedelta | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "of", _members(of, "of", least=1))
        put(self, "except_", _members(except_, "except", least=0))
        if self._depth() > MAX_DEPTH:
            raise InvalidTrigger(
                _("triggers may be nested {most} deep", most=MAX_DEPTH),
                field="of",
                code="out_of_range",
            )
        self._set_bounds(start_at, end_at, max_runs, exclude, None, jitter, spread)
        zone = parse_zone(UTC_NAME)
        put(self, "_search", self._compile(self._union, zone))

    def _depth(self) -> int:
        nested = (each for each in (*self.of, *self.except_) if isinstance(each, AnyOf))
        return 1 + max((each._depth() for each in nested), default=0)

    def _union(self) -> Search:
        members = self.of
        if self.exclude:
            members = tuple(
                replace(each, exclude=(*self.exclude, *each.exclude)) for each in members
            )
        return UnionSearch([*map(_bounded, members)], [*map(_bounded, self.except_)])

    @property
    def zone(self) -> str:
        """The zone of its first trigger that has one."""
        zones = [each.zone for each in self.of]
        return next((each for each in zones if each != UTC_NAME), UTC_NAME)

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        return self._changed(lambda each: each.with_default_zone(name))

    def anchored(self, moment: datetime) -> Self:
        return self._changed(lambda each: each.anchored(moment))

    def with_default_anchor(self) -> Self:
        return self._changed(lambda each: each.with_default_anchor())

    def seeded(self, seed: str) -> Self:
        return self._changed(lambda each: each.seeded(seed))

    @property
    def is_example(self) -> bool:
        return any(each.is_example for each in (*self.of, *self.except_))

    def calendar_names(self) -> frozenset[str]:
        own = TriggerBase.calendar_names(self)
        return own.union(*(each.calendar_names() for each in (*self.of, *self.except_)))

    def countries(self) -> frozenset[str]:
        return frozenset().union(*(each.countries() for each in (*self.of, *self.except_)))

    def calendars(self) -> dict[str, NamedCalendar]:
        found = TriggerBase.calendars(self)
        for each in (*self.of, *self.except_):
            found |= each.calendars()
        return found

    def with_calendars(self, known: Mapping[str, NamedCalendar]) -> Self:
        found = TriggerBase.with_calendars(self, known) if self.exclude else self
        return found._changed(lambda each: each.with_calendars(known))

    def absences(self, first: datetime, last: datetime) -> Iterable[Absence]:
        for each in self.of:
            yield from each.absences(first, last)

    def warnings(self) -> tuple[Note, ...]:
        return tuple(dict.fromkeys(note for each in self.of for note in each.warnings()))

    def local(self, at: datetime) -> datetime:
        """In the zone of the trigger that fires then."""
        fire = to_microseconds(at)
        for each in self.of:
            if each.zone != UTC_NAME and each._search.after(fire - 1) == fire:
                return each.local(at)
        return TriggerBase.local(self, at)

    def _changed(self, change: Callable[[TimeTrigger], TimeTrigger]) -> Self:
        of, others = tuple(map(change, self.of)), tuple(map(change, self.except_))
        if of == self.of and others == self.except_:
            return self
        return replace(self, of=of, except_=others)

    def _without_context(self, plain: dict[str, object]) -> dict[str, object]:
        plain["of"] = [each.shown() for each in self.of]
        if self.except_:
            plain["except"] = [each.shown() for each in self.except_]
        return TriggerBase._without_context(self, plain)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "of": [each.to_dict() for each in self.of]}
        if self.except_:
            found["except"] = [each.to_dict() for each in self.except_]
        return found | self._bounds_dict()


def _bounded(trigger: TimeTrigger) -> Search:
    if trigger.start_at is None and trigger.end_at is None:
        return trigger._search
    first = None if trigger.start_at is None else to_microseconds(trigger.start_at)
    last = None if trigger.end_at is None else to_microseconds(trigger.end_at)
    return BoundedSearch(trigger._search, first, last)


def _members(given: object, field: str, *, least: int) -> tuple[TimeTrigger, ...]:
    if isinstance(given, (TriggerBase, Mapping, str)) or not isinstance(given, Iterable):
        raise InvalidTrigger(
            _("{field} must be a list of triggers, not {type}", field=field, type=_type(given)),
            field=field,
            code="wrong_type",
        )
    items = list(given)
    if not least <= len(items) <= MAX_MEMBERS:
        raise InvalidTrigger(
            _(
                "{field} must have between {least} and {most} items, not {count}",
                field=field,
                least=least,
                most=MAX_MEMBERS,
                count=len(items),
            ),
            field=field,
            code="out_of_range",
        )
    return tuple(_member(each, f"{field}[{index}]") for index, each in enumerate(items))


def _member(given: object, field: str) -> TimeTrigger:
    try:
        trigger = given if isinstance(given, TriggerBase) else trigger_from_dict(given)
    except InvalidTrigger as error:
        error.field = field if error.field is None else f"{field}.{error.field}"
        raise
    if trigger.on_event:
        raise InvalidTrigger(
            _("a trigger of kind {kind} fires on events and has no times", kind=trigger.kind),
            field=field,
            code="no_times",
        )
    for key in ("max_runs", "jitter", "spread"):
        if getattr(trigger, key) is not None:
            raise InvalidTrigger(
                _("{key} belongs to the whole trigger, not to a part of it", key=key),
                field=f"{field}.{key}",
                code="not_here",
            )
    return cast("TimeTrigger", trigger)


def _type(value: object) -> str:
    return type(value).__name__
