"""Stores keep messages about runs, schedules and deliveries with their code and parameters."""

from __future__ import annotations

from chimes.i18n import Message, _
from chimes.model.run import AttemptEnd, Outcome, completion_of
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import MINUTE, a_delivery, a_delivery_completion, an_attempt
from tests.store_contract.scenes import all_deliveries, running_slot
from tests.store_contract.test_deliveries import claimed


def check_translatable(text: str, expected: Message) -> None:
    assert text == expected
    assert isinstance(text, Message)
    for language in ("th", "zh"):
        assert text.in_language(language) == expected.in_language(language) != expected


async def fail(store: Store, clock: SettableClock, error: str) -> tuple[str, ...]:
    """Fails a run; returns its error from every place that stores it."""
    schedule, run = await running_slot(store)
    attempt = an_attempt(run, clock.now(), AttemptEnd.TIMEOUT, error)
    completion = completion_of(run, Outcome(end=AttemptEnd.TIMEOUT, error=error), attempt, ())
    (accepted,) = (await store.finish([completion])).accepted
    stored = await store.get_run(run.id)
    after = await store.get_schedule(schedule.id)
    assert stored is not None
    assert after is not None
    return accepted.error, stored.error, stored.attempts[-1].error, after.last_error


async def test_stored_run_error_can_be_translated(store: Store, clock: SettableClock) -> None:
    message = _("timed out after {seconds:g}s", seconds=30.0)
    for text in await fail(store, clock, message):
        check_translatable(text, message)


async def test_plain_task_error_is_stored_unchanged(store: Store, clock: SettableClock) -> None:
    for text in await fail(store, clock, '{"code":"timed out","text":"by the task"}'):
        assert text == '{"code":"timed out","text":"by the task"}'
        assert not isinstance(text, Message)


async def test_stored_delivery_error_can_be_translated(store: Store) -> None:
    await store.load([a_delivery()])
    (delivery,) = await claimed(store)
    message = _("timed out after {seconds:g}s", seconds=5.0)
    await store.finish_deliveries([a_delivery_completion(delivery, retry_in=MINUTE, error=message)])
    (stored,) = (await all_deliveries(store)).values()
    check_translatable(stored.error, message)


async def test_export_keeps_message_codes(store: Store, clock: SettableClock) -> None:
    message = _("timed out after {seconds:g}s", seconds=30.0)
    await fail(store, clock, message)
    items = [item async for item in store.dump()]
    errors = [getattr(item, "error", "") or getattr(item, "last_error", "") for item in items]
    found = [error for error in errors if error]
    assert len(found) == 2
    for text in found:
        check_translatable(text, message)
