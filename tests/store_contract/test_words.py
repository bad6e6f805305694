"""Sentences of ours are kept as plain English: whoever reads them has a language of their own."""

from __future__ import annotations

from chimes.i18n import _
from chimes.model.run import AttemptEnd, Outcome, completion_of
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import MINUTE, a_delivery, a_sending, an_attempt
from tests.store_contract.scenes import all_deliveries, running_slot
from tests.store_contract.test_deliveries import claimed


async def test_what_an_attempt_failed_of_is_kept_as_plain_text(
    store: Store, clock: SettableClock
) -> None:
    schedule, run = await running_slot(store)
    wording = _("timed out after {seconds:g}s", seconds=30.0)
    attempt = an_attempt(run, clock.now(), AttemptEnd.TIMEOUT, wording)
    completion = completion_of(run, Outcome(end=AttemptEnd.TIMEOUT, error=wording), attempt, ())
    (accepted,) = (await store.finish([completion])).accepted
    kept = await store.get_run(run.id)
    shown = await store.get_schedule(schedule.id)
    assert kept is not None
    assert shown is not None
    texts = [accepted.error, kept.error, kept.attempts[-1].error, shown.last_error]
    assert [(type(text), text) for text in texts] == [(str, "timed out after 30s")] * 4


async def test_why_a_message_was_not_sent_is_kept_as_plain_text(store: Store) -> None:
    await store.load([a_delivery()])
    (delivery,) = await claimed(store)
    wording = _("no answer in time")
    await store.finish_deliveries([a_sending(delivery, retry_in=MINUTE, error=wording)])
    (kept,) = (await all_deliveries(store)).values()
    assert (type(kept.error), kept.error) == (str, "no answer in time")
