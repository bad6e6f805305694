"""The outbox: what is to be delivered because runs end, in the very transaction that ends them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from chimes.model.delivery import Delivery, outbox
from chimes.model.run import Run, RunStatus
from chimes.store.sql.base import load_summaries
from chimes.store.sql.database import Tx
from chimes.store.sql.message_tables import deliveries
from chimes.store.sql.rows.messages import delivery_values


def write_outbox(tx: Tx, new: Sequence[Delivery]) -> None:
    """A delivery that is there already stays as it is."""
    if new:
        rows = sorted(new, key=lambda delivery: delivery.id)
        tx.run(tx.dialect.insert_new(deliveries), [delivery_values(row) for row in rows])
        tx.wakes = True


def post_inserted(tx: Tx, new: Iterable[Run], now: datetime) -> None:
    """For rows that are inserted as they end, or after that; their schedules are held."""
    told = [run for run in new if run.policy.delivery and run.status.terminal]
    if not told:
        return
    # Only a success looks at what was before it.
    good = {run.schedule_id for run in told if run.status is RunStatus.SUCCEEDED}
    summaries = load_summaries(tx, {each for each in good if each is not None})
    found: list[Delivery] = []
    for run in told:
        summary = summaries.get(run.schedule_id) if run.schedule_id else None
        found.extend(outbox(run, summary.last_status if summary else None, now))
    write_outbox(tx, found)
