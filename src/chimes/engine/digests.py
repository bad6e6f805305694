"""What digests take along, and what they leave behind (ADR 32)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta

from chimes.delivery.base import Refused, Result, Retry
from chimes.delivery.digest_message import Gathered
from chimes.delivery.verdicts import taken_along
from chimes.model.delivery import (
    LEFT_BEHIND,
    Delivery,
    DeliveryState,
    DeliveryVerdict,
    belongs_to,
    digest_for,
    digest_of,
)
from chimes.model.ids import RunId
from chimes.model.listing import DeliveryQuery, RunQuery
from chimes.model.run import Run
from chimes.store.port import Store
from chimes.wording import say

#: Told of, and settled in one transaction with their digest; the others are only settled.
MOST_GATHERED = 10_000
#: What no digest took along in so many of its periods, and two days, is given up.
MOST_PERIODS = 3
_SPARE = timedelta(days=2)
_PAGE = 500


async def gathered(store: Store, digest: Delivery) -> Gathered:
    """Nothing is changed: they are settled when the digest has been sent. How long that may take
    is for the caller to say."""
    found: list[Delivery] = []
    async with aclosing(_members(store, digest)) as pages:
        async for members in pages:
            found += members
            if len(found) > MOST_GATHERED:
                break
    return Gathered(members=tuple(found[:MOST_GATHERED]), more=len(found) > MOST_GATHERED)


async def settle_others(store: Store, digest: Delivery, told: Gathered) -> None:
    """Those of a digest that was sent for which it had no room: it has said that there are more.
    What is not reached goes with the next one."""
    known = {each.id for each in told.members}
    async for members in _members(store, digest):
        others = [each for each in members if each.id not in known]
        verdicts = taken_along(others, digest)
        if verdicts:
            accepted = {each.id for each in await store.finish_deliveries(verdicts)}
            await settle_missed(
                store, [each for each in verdicts if each.delivery_id not in accepted]
            )


async def settle_missed(store: Store, missed: Sequence[DeliveryVerdict]) -> None:
    """Those of a digest that was sent which somebody has taken in hand meanwhile, only to find out
    that they wait for it: nobody else tells them, so the fence is no matter."""
    for start in range(0, len(missed), _PAGE):
        some = {each.delivery_id: each for each in missed[start : start + _PAGE]}
        query = DeliveryQuery(ids=tuple(some), states=(DeliveryState.PENDING,), limit=None)
        found = (await store.list_deliveries(query)).items
        if found:
            await store.finish_deliveries(
                [replace(some[each.id], fence=each.fence) for each in found]
            )


async def _members(store: Store, digest: Delivery) -> AsyncGenerator[list[Delivery], None]:
    """All that it is to take along, by pages."""
    query = DeliveryQuery(
        owner=digest.owner,
        channel=digest.recipient.channel,
        states=(DeliveryState.PENDING,),
        limit=_PAGE,
    )
    while True:
        page = await store.list_deliveries(query)
        yield [each for each in page.items if belongs_to(each, digest)]
        if page.next is None:
            return
        query = replace(query, after=page.next)


async def runs_of(store: Store, ids: set[RunId]) -> dict[RunId, Run]:
    if not ids:
        return {}
    page = await store.list_runs(RunQuery(ids=tuple(sorted(ids)), limit=None))
    return {run.id: run for run in page.items}


async def left_behind(store: Store, member: Delivery, now: datetime) -> Result:
    """About one that was to be part of a digest and is still there: it waits for that digest if it
    is still to come; if not, for the next one, which is seen to be there."""
    known = (await store.list_deliveries(DeliveryQuery(ids=(digest_for(member),)))).items
    if known and known[0].state is DeliveryState.PENDING:
        return _waits(LEFT_BEHIND)
    digest = member.recipient.digest
    assert digest is not None
    if now - member.created_at > MOST_PERIODS * digest.length + _SPARE:
        return Refused(error=say("no digest could be delivered that has it"), code="digest")
    following = await store.add_delivery(digest_of(member, now))
    wait = max(following.available_at - now, timedelta()) + LEFT_BEHIND
    return replace(_waits(wait), digest=following.id)


def _waits(wait: timedelta) -> Retry:
    error = say("waits for the next digest")
    return Retry(error=error, code="digest", after=wait, holds_back=True)
