"""Who is told of a schedule's runs, what became of the last messages, and a test of each."""

from __future__ import annotations

from starlette.responses import Response

from chimes.delivery.words import CHANNELS
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_schedule import LOG_PAGE, show
from chimes.doors.dashboard.routes_schedule_actions import page_of, schedule_in
from chimes.doors.dashboard.views_deliveries import destinations_of, to_shown
from chimes.doors.dashboard.visit import Visit
from chimes.errors import NotFound
from chimes.model.ids import DeliveryId
from chimes.model.listing import DeliveryQuery
from chimes.model.recipient import Recipient
from chimes.model.schedule import Schedule
from chimes.wording import say

pages = Pages()


def _tab_of(schedule: Schedule) -> str:
    return f"{page_of(schedule.id)}/deliveries"


@pages.get("/schedules/{id}/deliveries")
async def deliveries(visit: Visit) -> Response:
    schedule = await schedule_in(visit)
    query = DeliveryQuery(schedule_id=schedule.id, limit=LOG_PAGE)
    found = await visit.door.messages.deliveries(visit.actor, query)
    return show(
        visit,
        schedule,
        "deliveries",
        destinations=destinations_of(schedule.policy.delivery, found.items),
        deliveries=[(each, to_shown(each.recipient)) for each in found.items],
        more=found.next is not None,
        channels=CHANNELS,
    )


@pages.post("/schedules/{id}/deliveries/{place}/test")
async def send_test(visit: Visit) -> Response:
    """A real message to one of those who are told, marked as a test."""
    schedule = await schedule_in(visit)
    recipient = _recipient_in(visit, schedule)
    outcome = await visit.door.messages.send_test(visit.actor, recipient, schedule=schedule)
    return visit.done(outcome.words, to=visit.back(_tab_of(schedule)), kind=outcome.kind)


def _recipient_in(visit: Visit, schedule: Schedule) -> Recipient:
    """By its place in the list."""
    place, told = visit.path["place"], schedule.policy.delivery
    if not (place.isascii() and place.isdigit() and len(place) < 6 and int(place) < len(told)):
        raise NotFound(say("there is no such recipient any more"))
    return told[int(place)]


@pages.post("/schedules/{id}/deliveries/{delivery}/retry")
async def retry_delivery(visit: Visit) -> Response:
    schedule = await schedule_in(visit)
    await visit.door.messages.retry(visit.actor, DeliveryId(visit.path["delivery"]))
    text = say("It is tried again from now on.")
    return visit.done(text, to=visit.back(_tab_of(schedule)))
