"""Which deliveries a run causes: events, times and digests (ADR 32)."""

from __future__ import annotations

from datetime import time, timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.notification import (
    DIGEST_SLACK,
    DIGEST_TIMEOUT,
    Delivery,
    DeliveryState,
    belongs_to_digest,
    digest_end,
    digest_of,
    make_test_delivery,
    plan_deliveries,
)
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Digest, NotifyOn, Period, QuietHours, Recipient
from chimes.model.routing import Routing, Rule
from chimes.model.run import Origin, Run, RunStatus
from tests.builders import ALICE, BOB, HOUR, MINUTE, NOW, SECOND, a_run, a_schedule

CHAT = Recipient(channel=Channel.TELEGRAM, to="7")
INBOX = Recipient(channel=Channel.INBOX)
LATE = (NotifyOn.LATE,)
#: Contains NOW.
QUIET = QuietHours(start=time(0), end=time(23, 59), zone="UTC")
DAILY = Digest(every=Period.DAY, zone="UTC")


def ended(*recipients: Recipient, late: timedelta = timedelta(), **given: Any) -> Run:
    values = {
        "status": RunStatus.SUCCEEDED,
        "started_at": NOW + late,
        "planned_at": NOW,
        "finished_at": NOW + late,
        "owner": ALICE,
        "origin": Origin.SCHEDULE,
    }
    return a_run(a_schedule(), policy=Policy(delivery=recipients), **(values | given))


def planned_events(run: Run, previous: RunStatus | None = None) -> list[NotifyOn]:
    return [each.notify_on for each in plan_deliveries(run, previous, NOW)]


@pytest.mark.parametrize(
    ("late", "given", "notified"),
    [
        (MINUTE, {}, False),
        (MINUTE + SECOND, {}, True),
        (HOUR, {"origin": Origin.MANUAL}, False),
        (HOUR, {"origin": Origin.BACKFILL}, False),
        (HOUR, {"status": RunStatus.FAILED}, True),
        (HOUR, {"status": RunStatus.SKIPPED}, False),
        (timedelta(), {"status": RunStatus.MISSED, "started_at": None}, True),
        (timedelta(), {"status": RunStatus.CANCELED, "started_at": None}, False),
    ],
)
def test_late_runs_are_notified_on_late(
    late: timedelta, given: dict[str, Any], notified: bool
) -> None:
    assert (
        planned_events(ended(replace(CHAT, on=LATE), late=late, **given))
        == [NotifyOn.LATE] * notified
    )


def test_late_after_of_the_recipient_sets_the_threshold() -> None:
    patient = replace(CHAT, on=LATE, late_after=HOUR)
    assert planned_events(ended(patient, late=HOUR)) == []
    assert planned_events(ended(patient, late=HOUR + SECOND)) == [NotifyOn.LATE]


def test_late_run_is_notified_once_and_its_outcome_takes_precedence() -> None:
    both = replace(CHAT, on=(NotifyOn.FAILURE, NotifyOn.LATE))
    assert planned_events(ended(both, late=HOUR, status=RunStatus.FAILED)) == [NotifyOn.FAILURE]
    assert planned_events(ended(both, late=HOUR)) == [NotifyOn.LATE]
    assert planned_events(ended(CHAT, late=HOUR)) == [NotifyOn.SUCCESS]


def test_an_address_of_the_schedule_and_of_a_rule_is_notified_once_for_the_events_of_both() -> None:
    own = replace(CHAT, on=(NotifyOn.SUCCESS,))
    rule = Rule(on=(NotifyOn.FAILURE,), recipients=(CHAT, INBOX))
    routing = Routing(rules=(rule,))

    def planned(recipient: Recipient, **given: Any) -> list[tuple[Channel, NotifyOn]]:
        found = plan_deliveries(ended(recipient, **given), None, NOW, routing)
        return [(each.recipient.channel, each.notify_on) for each in found]

    chat, inbox = (Channel.TELEGRAM, NotifyOn.FAILURE), (Channel.INBOX, NotifyOn.FAILURE)
    assert planned(own) == [(Channel.TELEGRAM, NotifyOn.SUCCESS)]
    assert planned(own, status=RunStatus.FAILED) == [chat, inbox]
    assert planned(CHAT, status=RunStatus.FAILED) == [chat, inbox]
    # The outcome comes before late.
    late = replace(CHAT, on=LATE)
    assert planned(late, late=HOUR, status=RunStatus.FAILED) == [chat, inbox]
    assert planned(late, late=HOUR) == [(Channel.TELEGRAM, NotifyOn.LATE)]


def test_delivery_in_quiet_hours_waits_for_their_end() -> None:
    (delivery,) = plan_deliveries(ended(replace(CHAT, quiet=QUIET)), None, NOW)
    assert (delivery.created_at, delivery.available_at) == (NOW, QUIET.until(NOW))
    loud = replace(QUIET, except_for=(NotifyOn.SUCCESS,))
    (urgent,) = plan_deliveries(ended(replace(CHAT, quiet=loud)), None, NOW)
    assert urgent.available_at == NOW
    (inbox,) = plan_deliveries(ended(replace(INBOX, quiet=QUIET)), None, NOW)
    assert inbox.available_at == NOW


def digest_pair(*, now: Any = NOW, **given: Any) -> tuple[Delivery, Delivery]:
    member, digest = plan_deliveries(ended(replace(CHAT, digest=DAILY), **given), None, now)
    return member, digest


def test_digest_delivery_is_planned_with_its_member() -> None:
    member, digest = digest_pair()
    end = DAILY.end_after(NOW)
    assert digest_end(digest) == end
    assert digest.available_at == end + DIGEST_SLACK
    assert member.available_at == end + DIGEST_SLACK + DIGEST_TIMEOUT
    assert (digest.run_id, digest.notify_on) == (None, NotifyOn.DIGEST)
    assert belongs_to_digest(member, digest)
    assert not belongs_to_digest(digest, digest)


def test_deliveries_of_a_period_share_a_digest() -> None:
    _, first = digest_pair()
    later, same = digest_pair(now=NOW + HOUR, id=RunId("another"))
    assert same.id == first.id
    assert belongs_to_digest(later, first)
    tomorrow, other = digest_pair(now=NOW + timedelta(days=1), id=RunId("third"))
    assert other.id != first.id
    assert not belongs_to_digest(tomorrow, first)
    assert not belongs_to_digest(later, other), "both may be due at the same time"
    assert belongs_to_digest(replace(later, receipt=other.id), other), "moved from the first digest"
    assert not belongs_to_digest(replace(later, receipt=other.id), first)


def test_digest_groups_by_owner_recipient_and_period() -> None:
    member, digest = digest_pair()
    hourly = replace(member.recipient, digest=Digest(every=Period.HOUR, zone="UTC"))
    for other in (
        replace(member, owner=BOB),
        replace(member, recipient=replace(member.recipient, to="8")),
        replace(member, recipient=hourly),
        replace(member, recipient=CHAT),
        replace(member, state=DeliveryState.DELIVERED),
    ):
        assert not belongs_to_digest(other, digest)
    assert digest_of(replace(member, owner=BOB), NOW).id != digest.id


def test_urgent_events_bypass_the_digest() -> None:
    urgent = replace(CHAT, digest=replace(DAILY, except_for=(NotifyOn.FAILURE,)))
    (alone,) = plan_deliveries(ended(urgent, status=RunStatus.FAILED), None, NOW)
    assert alone.available_at == NOW
    member, digest = plan_deliveries(ended(urgent), None, NOW)
    assert belongs_to_digest(member, digest)
    assert belongs_to_digest(member, digest_pair()[1]), "except_for does not split a digest"


def test_a_digest_waits_for_the_end_of_quiet_hours() -> None:
    quiet = QuietHours(start=time(7), end=time(9), zone="UTC")
    _, digest = plan_deliveries(ended(replace(CHAT, digest=DAILY, quiet=quiet)), None, NOW)
    assert digest_end(digest) == DAILY.end_after(NOW) + HOUR
    assert digest.available_at == digest_end(digest) + DIGEST_SLACK


def test_periods_that_end_in_quiet_hours_are_one_digest() -> None:
    night = QuietHours(start=time(22), end=time(7), zone="UTC")
    hourly = replace(CHAT, digest=Digest(every=Period.HOUR, at=time(0), zone="UTC"), quiet=night)
    evening = NOW.replace(hour=21, minute=30, second=0, microsecond=0)
    morning = evening.replace(hour=7, minute=0) + timedelta(days=1)
    ids: dict[int, str] = {}
    for half_hours in range(24):
        at = evening + half_hours * HOUR / 2
        _, digest = plan_deliveries(ended(hourly), None, at)
        ids[half_hours] = digest.id
        if at < morning:
            assert digest_end(digest) == morning
        else:
            assert digest_end(digest) == hourly.digest_after(at) > at
    assert len({ids[each] for each in range(19)}) == 1
    assert len(set(ids.values())) == 1 + 3
    _, before = plan_deliveries(ended(hourly), None, evening - HOUR)
    assert digest_end(before) == evening - HOUR / 2


def test_delivery_in_quiet_hours_joins_the_waiting_digest() -> None:
    at_eight = replace(CHAT, digest=DAILY, quiet=QuietHours(start=time(7), end=time(9), zone="UTC"))
    before, within = (NOW.replace(hour=7, minute=59), NOW.replace(hour=8, minute=30))
    assert at_eight.digest_after(before) == at_eight.digest_after(within)
    assert at_eight.digest_after(within) == NOW.replace(hour=9, minute=0, second=0, microsecond=0)
    no_more = NOW.replace(hour=9, minute=0, second=0, microsecond=0)
    assert at_eight.digest_after(no_more) == no_more + timedelta(days=1)


def test_recipients_with_different_quiet_hours_have_separate_digests() -> None:
    night = QuietHours(start=time(22), end=time(7), zone="UTC")
    some = [replace(CHAT, digest=DAILY), replace(CHAT, digest=DAILY, quiet=night)]
    ids = {plan_deliveries(ended(each), None, NOW)[1].id for each in some}
    assert len(ids) == 2
    spared = replace(some[1], quiet=replace(night, except_for=(NotifyOn.FAILURE,)))
    assert plan_deliveries(ended(spared), None, NOW)[1].id in ids, (
        "except_for does not split a digest"
    )
    inbox = [replace(INBOX, digest=DAILY), replace(INBOX, digest=DAILY, quiet=night)]
    assert len({plan_deliveries(ended(each), None, NOW)[1].id for each in inbox}) == 1


def test_unknown_zone_of_a_recipient_falls_back_to_utc() -> None:
    lost = replace(
        CHAT, digest=replace(DAILY, zone="Mars/Olympus"), quiet=replace(QUIET, zone="Mars/Base")
    )
    member, digest = plan_deliveries(ended(lost), None, NOW)
    assert belongs_to_digest(member, digest)
    (alone,) = plan_deliveries(ended(replace(lost, digest=None)), None, NOW)
    assert alone.available_at == QUIET.until(NOW), "in UTC"


def test_exception_for_success_includes_recovery() -> None:
    """Like `on: [success]`, which includes recoveries."""
    success = (NotifyOn.SUCCESS,)
    urgent = replace(
        CHAT,
        on=success,
        quiet=replace(QUIET, except_for=success),
        digest=replace(DAILY, except_for=success),
    )
    (delivery,) = plan_deliveries(ended(urgent), RunStatus.FAILED, NOW)
    assert (delivery.notify_on, delivery.available_at) == (NotifyOn.RECOVERY, NOW)
    assert urgent.goes_into_digest(NotifyOn.FAILURE)
    assert urgent.quiet_until(NOW, NotifyOn.FAILURE) is not None


def test_test_notification_ignores_quiet_hours_and_digests() -> None:
    anybody = replace(CHAT, quiet=QUIET, digest=DAILY)
    test = make_test_delivery(anybody, ALICE, "x", NOW)
    assert (test.available_at, test.run_id) == (NOW, None)
    assert anybody.quiet_until(NOW, test.notify_on) is None
    assert not anybody.goes_into_digest(test.notify_on)
