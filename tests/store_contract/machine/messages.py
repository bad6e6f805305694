"""Rules: deliveries and inbox."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import rule

from chimes.model import replace
from chimes.model.ids import InboxId
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.notification import Delivery, DeliveryState, InboxItem
from chimes.model.recipient import Channel
from tests.builders import SECOND, a_completion, a_delivery_completion, an_entry, an_item
from tests.store_contract.machine.strategies import INTERVALS, amount, index
from tests.store_contract.machine.tasks import TaskRules

CLAIM_LEASE, OVERDUE = 20 * SECOND, 60 * SECOND
CHANNELS = (frozenset(Channel), frozenset({Channel.INBOX}), frozenset({Channel.TELEGRAM}))


class MessageRules(TaskRules):
    def __init__(self) -> None:
        super().__init__()
        #: Deliveries as claimed; some claims are stale.
        self.sending: list[Delivery] = []

    @rule(
        number=index,
        channels=st.sampled_from(CHANNELS),
        limit=amount,
        ends=st.sampled_from(["sent", "later", "never", "lost"]),
    )
    def deliver(self, number: int, channels: frozenset[Channel], limit: int, ends: str) -> None:
        """Claims and completes deliveries. A lost sender reports later, maybe after a takeover."""
        if self._both("next_delivery") is None:
            self._end_runs(number)
        for _ in range(2):
            self._deliver(number, channels, limit, ends)
            if ends == "lost":
                self.clock.advance(CLAIM_LEASE)

    def _deliver(self, number: int, channels: frozenset[Channel], limit: int, ends: str) -> None:
        claimed = self._both(
            "claim_deliveries", channels, limit=limit, lease=CLAIM_LEASE, overdue=OVERDUE
        )
        self.reached["delivery claimed"] += len(claimed)
        self.reached["delivery taken over"] += sum(each.fence > 1 for each in claimed)
        late = [replace(each, fence=each.fence - 1) for each in claimed if each.fence > 1]
        late += [self._pick(self.sending, number)] if self.sending else []
        for delivery in late:
            self._complete(delivery, number, "never")
        if ends == "lost":
            self.sending.extend(claimed)
            return
        for delivery in claimed:
            self._complete(delivery, number, ends)

    def _complete(self, delivery: Delivery, number: int, ends: str) -> None:
        now = self._now()
        item = an_item(
            id=InboxId(f"of-{delivery.id}"),
            title="",
            run_id=delivery.run_id,
            created_at=now,
        )
        match ends:
            case "sent":
                completion = a_delivery_completion(delivery, receipt="r", inbox=item)
            case "later":
                completion = a_delivery_completion(
                    delivery, retry_in=number % 2 * SECOND, error="busy"
                )
            case _:
                completion = a_delivery_completion(
                    delivery, sent=False, error="blocked", code="blocked"
                )
        # The second call repeats the first after a lost response.
        for _ in range(2):
            accepted = self._both("finish_deliveries", [completion])
            self.reached["delivery " + (accepted[0].state if accepted else "fenced")] += 1

    @rule(number=index, limit=amount, age=st.sampled_from([0, 30]))
    def query_messages(self, number: int, limit: int, age: int) -> None:
        self._both("next_delivery")
        self._both("take_tokens", f"{number % 2}", rate=0.5, burst=5, count=limit)
        state = (DeliveryState.DEAD,) if number % 2 else ()
        self._pages(partial(self._both, "list_deliveries"), DeliveryQuery(states=state, limit=2))
        inbox = self._both("list_inbox", InboxQuery(limit=limit)).items
        self._both("count_unread", InboxQuery())
        if inbox:
            self._both("change_inbox", self._pick(inbox, number).id, _toggle)
        if self.sending and number % 3 == 0:
            delivery = self._pick(self.sending, number)
            self._both("retry_delivery", delivery.id, an_entry(at=self._now(), verb="retry"))
        if number % 2:
            self._prune_messages(age, limit)

    @rule(number=index, limit=amount)
    def prune_delivered_messages(self, number: int, limit: int) -> None:
        """Ends runs, delivers their messages and prunes them: random steps rarely get there."""
        self._end_runs(number)
        self._deliver(number, CHANNELS[0], 50, "sent")
        self.clock.advance(SECOND)
        self._prune_messages(0, limit)

    def _end_runs(self, number: int) -> None:
        self.work(number, max(INTERVALS), 3)
        if self.held:
            self._finish(*(a_completion(run, self._now()) for run in self.held))
            self.held.clear()

    def _prune_messages(self, age: int, limit: int) -> None:
        before = self._now() - timedelta(seconds=age)
        self.reached["message pruned"] += self._both("prune_messages", before=before, limit=limit)


def _toggle(item: InboxItem, now: datetime) -> InboxItem:
    return replace(item, read_at=now, starred=not item.starred)
