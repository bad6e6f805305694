"""Health of a node: whether API keys are required, and which duties fail."""

from __future__ import annotations

import asyncio
import logging

from chimes.engine.events import DutyFailed, DutyRecovered, Event
from chimes.errors import InvalidInput, StoreError
from chimes.i18n import _, joined
from chimes.model import replace
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.model.validation import check_target
from chimes.runtime.composition import Services

logger = logging.getLogger("chimes.runtime")
CHECK_INTERVAL = 5.0
_PAGE = 500
_MAX_LOGGED = 20


async def watch_keys(services: Services) -> None:
    """Ends open mode soon after a key was created on any node, and logs the schedules whose targets
    are then no longer allowed."""
    while True:
        try:
            if await services.access.auth_enabled():
                await warn_of_refused_targets(services)
                return
        except StoreError:
            logger.debug("cannot read from the store whether there are keys")
        await asyncio.sleep(CHECK_INTERVAL)


async def warn_of_refused_targets(services: Services) -> None:
    refused: list[Schedule] = []
    query = ScheduleQuery(limit=_PAGE)
    while True:
        page = await services.store.list_schedules(query)
        refused.extend(each for each in page.items if _is_refused(services, each))
        if page.next is None:
            break
        query = replace(query, after=page.next)
    if refused:
        logger.warning(
            "schedules with a target that is refused now that keys are required",
            extra={
                "count": len(refused),
                "schedules": [f"{each.id} {each.name}" for each in refused[:_MAX_LOGGED]],
            },
        )


def _is_refused(services: Services, schedule: Schedule) -> bool:
    try:
        check_target(schedule.target, egress=services.egress)
    except InvalidInput as error:
        return error.code == "egress_denied"
    return False


class FailingDuties:
    """An event listener that tracks which duties fail at the moment."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}

    event_types = (DutyFailed, DutyRecovered)

    def __call__(self, event: Event) -> None:
        if isinstance(event, DutyFailed):
            self._failing[event.duty] = type(event.error).__name__
        elif isinstance(event, DutyRecovered):
            self._failing.pop(event.duty, None)

    @property
    def reason(self) -> str:
        """Empty if no duty fails."""
        return joined(
            "; ",
            (
                _("{duty} fails: {error}", duty=duty, error=error)
                for duty, error in sorted(self._failing.items())
            ),
        )
