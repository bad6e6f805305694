"""What digests take along, and what they leave behind (ADR 32)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from chimes.delivery.base import Refused, Result, Retry
from chimes.delivery.digest_message import Gathered
from chimes.model.delivery import (
    LEFT_BEHIND,
    Delivery,
    DeliveryState,
    belongs_to,
    digest_of,
)
from chimes.model.ids import RunId
from chimes.model.listing import DeliveryQuery, RunQuery
from chimes.model.run import Run
from chimes.store.port import Store
from chimes.wording import say

#: Settled in one transaction with their digest; the others are for the next one.
MOST_GATHERED = 10_000
#: Looked at for that: what else waits for the same owner in the same channel is among them.
MOST_LOOKED_AT = 50_000
#: What no digest took along in so many of its periods, and two days, is given up.
MOST_PERIODS = 3
_SPARE = timedelta(days=2)
_PAGE = 500


async def gathered(store: Store, digest: Delivery) -> Gathered:
    """Nothing is changed: they are settled when the digest has been sent."""
    query = DeliveryQuery(
        owner=digest.owner,
        channel=digest.recipient.channel,
        states=(DeliveryState.PENDING,),
        limit=_PAGE,
    )
    found: list[Delivery] = []
    looked_at = 0
    while True:
        page = await store.list_deliveries(query)
        found += [each for each in page.items if belongs_to(each, digest)]
        looked_at += len(page.items)
        if len(found) > MOST_GATHERED or page.next is None or looked_at >= MOST_LOOKED_AT:
            break
        query = replace(query, after=page.next)
    more = len(found) > MOST_GATHERED or page.next is not None
    return Gathered(members=tuple(found[:MOST_GATHERED]), more=more)


async def runs_of(store: Store, ids: set[RunId]) -> dict[RunId, Run]:
    if not ids:
        return {}
    page = await store.list_runs(RunQuery(ids=tuple(sorted(ids)), limit=None))
    return {run.id: run for run in page.items}


async def left_behind(store: Store, member: Delivery, now: datetime) -> Result:
    """About one that was to be part of a digest and is still there: it waits for that digest if it
    is still to come; if not, for the next one, which is seen to be there."""
    own = digest_of(member, member.created_at)
    known = (await store.list_deliveries(DeliveryQuery(ids=(own.id,)))).items
    if known and known[0].state is DeliveryState.PENDING:
        return _waits(LEFT_BEHIND)
    digest = member.recipient.digest
    assert digest is not None
    if now - member.created_at > MOST_PERIODS * digest.length + _SPARE:
        return Refused(error=say("no digest could be delivered that has it"), code="digest")
    following = await store.add_delivery(digest_of(member, now))
    return _waits(max(following.available_at - now, timedelta()) + LEFT_BEHIND)


def _waits(wait: timedelta) -> Retry:
    error = say("waits for the next digest")
    return Retry(error=error, code="digest", after=wait, holds_back=True)
