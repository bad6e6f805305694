"""What a node keeps an eye on besides its work: whether keys are on, and what is in trouble."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from chimes.engine.events import DutyFailed, DutyRecovered, Event
from chimes.errors import InvalidInput, StoreError
from chimes.i18n import _, joined
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.model.validation import check_target
from chimes.runtime.composition import Services

logger = logging.getLogger("chimes.runtime")
LOOK_EVERY = 5.0
_PAGE = 500
_SHOWN = 20


async def watch_keys(services: Services) -> None:
    """Ends open mode on this node soon after a key was made anywhere, and says which schedules
    are no longer allowed to call what they call (RELIABILITY 9)."""
    while True:
        try:
            if await services.access.auth_enabled():
                await warn_of_refused(services)
                return
        except StoreError:
            logger.debug("the store cannot say whether there are keys")
        await asyncio.sleep(LOOK_EVERY)


async def warn_of_refused(services: Services) -> None:
    refused: list[Schedule] = []
    query = ScheduleQuery(limit=_PAGE)
    while True:
        page = await services.store.list_schedules(query)
        refused.extend(each for each in page.items if _refused(services, each))
        if page.next is None:
            break
        query = replace(query, after=page.next)
    if refused:
        logger.warning(
            "schedules whose target is refused now that keys are on",
            extra={
                "count": len(refused),
                "schedules": [f"{each.id} {each.name}" for each in refused[:_SHOWN]],
            },
        )


def _refused(services: Services, schedule: Schedule) -> bool:
    try:
        check_target(schedule.target, egress=services.egress)
    except InvalidInput as error:
        return error.code == "egress_denied"
    return False


class FailingDuties:
    """A listener of the engine: which duties cannot do their work at the moment."""

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
        """Empty if all is well."""
        return joined(
            "; ",
            (
                _("{duty} fails: {error}", duty=duty, error=error)
                for duty, error in sorted(self._failing.items())
            ),
        )
