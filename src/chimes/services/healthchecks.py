"""Import of checks from Healthchecks: its API answer or export as JSON becomes monitors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from chimes.errors import InvalidInput, QuotaExceeded
from chimes.i18n import _
from chimes.model.access import Actor
from chimes.model.monitor import DEFAULT_GRACE, MAX_TAGS
from chimes.services.monitors import (
    MAX_MONITORS_PER_OWNER,
    MonitorDraft,
    MonitorService,
    NewMonitor,
)
from chimes.triggers import Cron, Every, Trigger

MAX_CHECKS = MAX_MONITORS_PER_OWNER
_PAGE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportItem:
    name: str
    action: Literal["create", "skip", "error"]
    message: str = ""
    draft: MonitorDraft | None = None
    made: NewMonitor | None = None


def parse_checks(data: object) -> list[ImportItem]:
    """The checks as drafts, in their order. One that cannot be read is an item with an error; data
    of another form is InvalidInput."""
    checks = data.get("checks") if isinstance(data, Mapping) else data
    if not isinstance(checks, Sequence) or isinstance(checks, str):
        raise InvalidInput(
            _(
                "expected the answer of Healthchecks to GET /api/v3/checks/: an object with "
                "`checks`, or a list of checks"
            ),
            field="data",
            code="wrong_type",
        )
    if len(checks) > MAX_CHECKS:
        raise InvalidInput(
            _("at most {most} checks at once", most=MAX_CHECKS), field="data", code="too_many"
        )
    return [_item(place, each) for place, each in enumerate(checks)]


def _item(place: int, check: object) -> ImportItem:
    if not isinstance(check, Mapping):
        return ImportItem(name=f"[{place}]", action="error", message=_("expected an object"))
    named = check.get("name") or check.get("slug") or f"check {place + 1}"
    name = str(named)[:200]
    try:
        draft = MonitorDraft(
            name=name,
            trigger=_trigger(check),
            grace=_seconds(check, "grace", DEFAULT_GRACE),
            tags=tuple(str(check.get("tags") or "").split())[:MAX_TAGS],
            paused=check.get("status") == "paused",
        )
    except InvalidInput as error:
        return ImportItem(name=name, action="error", message=error.message)
    return ImportItem(name=name, action="create", draft=draft)


def _trigger(check: Mapping[str, object]) -> Trigger:
    schedule = check.get("schedule")
    if not schedule:
        return Every(_seconds(check, "timeout", timedelta(days=1)))
    text = str(schedule)
    if len(text.split()) != 5 and not text.startswith("@"):
        raise InvalidInput(
            _("the schedule {text!r} is not a cron expression", text=text[:100]),
            field="schedule",
            code="not_supported",
        )
    zone = str(check.get("tz") or "UTC")
    return Cron(text, timezone=zone)


def _seconds(check: Mapping[str, object], name: str, default: timedelta) -> timedelta:
    value = check.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 10**9:
        raise InvalidInput(
            _("{field} must be a number of seconds", field=name), field=name, code="wrong_type"
        )
    return timedelta(seconds=value)


async def import_checks(
    service: MonitorService, actor: Actor, data: object, *, dry_run: bool
) -> list[ImportItem]:
    """Creates a monitor for each check whose name the owner does not use yet. A check that is
    refused does not stop the others."""
    items = parse_checks(data)
    known = await _names(service, actor)
    found: list[ImportItem] = []
    for item in items:
        if item.draft is None:
            found.append(item)
            continue
        if item.name in known:
            message = _("a monitor of this name exists")
            found.append(ImportItem(name=item.name, action="skip", message=message))
            continue
        known.add(item.name)
        try:
            if dry_run:
                await service.check_draft(actor, item.draft)
                found.append(item)
            else:
                made = await service.create(actor, item.draft)
                found.append(
                    ImportItem(name=item.name, action="create", draft=item.draft, made=made)
                )
        except (InvalidInput, QuotaExceeded) as error:
            found.append(ImportItem(name=item.name, action="error", message=error.message))
    return found


async def _names(service: MonitorService, actor: Actor) -> set[str]:
    names: set[str] = set()
    after: tuple[str, str] | None = None
    while True:
        page = await service.find(actor, owner=actor.owner, after=after, limit=_PAGE)
        names |= {each.name for each in page.monitors}
        if page.next is None:
            return names
        after = page.next
