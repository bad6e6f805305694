"""Messages of digests and of test notifications."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from chimes.model import replace
from chimes.model.notification import Delivery, make_test_delivery, plan_deliveries
from chimes.model.recipient import Channel, Digest, NotifyOn, Period, Recipient
from chimes.model.run import Run, RunStatus
from chimes.notifications.base import DeliveryAttempt
from chimes.notifications.digest import MAX_LISTED_RUNS, DigestMembers, build_digest_message
from chimes.notifications.message import (
    NotificationMessage,
    build_fallback_message,
    build_test_message,
)
from chimes.notifications.webhook import body_of
from chimes.web.dashboard.inbox.routes import safe_html
from tests.builders import ALICE, NOW, with_definition
from tests.engine.test_digests import ended_run

HOOK = Recipient(
    channel=Channel.WEBHOOK,
    to="http://127.0.0.1:1/",
    digest=Digest(every=Period.DAY, zone="Asia/Bangkok"),
)


def deliveries_of_runs(
    *runs: Run, previous: RunStatus | None = None
) -> tuple[Delivery, DigestMembers]:
    rows = [each for run in runs for each in plan_deliveries(run, previous, run.created_at)]
    digest = next(each for each in rows if each.notify_on is NotifyOn.DIGEST)
    members = tuple(each for each in rows if each.notify_on is not NotifyOn.DIGEST)
    return digest, DigestMembers(members=members)


def digest_of(
    *runs: Run, language: str = "en", public_url: str = "", more: bool = False
) -> NotificationMessage:
    digest, content = deliveries_of_runs(*runs)
    return build_digest_message(
        digest,
        replace(content, more=more),
        {run.id: run for run in runs},
        language=language,
        zone="Asia/Bangkok",
        public_url=public_url,
    )


def test_counts_by_outcome_and_lists_failures_first() -> None:
    good, bad = (
        ended_run(1, NOW, recipient=HOOK),
        ended_run(2, NOW, RunStatus.TIMEOUT, recipient=HOOK),
    )
    message = digest_of(good, bad, public_url="https://chimes.example")
    head, listed = message.text.split("\n\n")
    assert head.splitlines()[0] == message.title == "Digest: 2 runs"
    assert head.splitlines()[2:] == ["Failed: 1", "Succeeded: 1"]
    first, link, *_ = listed.splitlines()
    assert first.startswith("- job 2: timed out – ")
    assert first.endswith("(Asia/Bangkok)")
    assert link.strip() == "https://chimes.example/ui/runs/run-2"


def test_markup_in_schedule_names_is_escaped() -> None:
    named = with_definition(
        ended_run(1, NOW, recipient=HOOK), schedule_name="[x](javascript:alert(1)) <b> *y* `z`"
    )
    html = safe_html(digest_of(named).markdown)
    assert "[x](javascript:alert(1)) &lt;b&gt; *y* `z`: succeeded" in html
    assert html.count("<a ") == 1
    assert 'href="/ui/runs/run-1"' in html


def test_a_long_digest_lists_the_first_and_counts_the_others() -> None:
    runs = [
        ended_run(number, NOW + timedelta(seconds=number), recipient=HOOK)
        for number in range(MAX_LISTED_RUNS + 7)
    ]
    message = digest_of(*runs)
    assert message.title == f"Digest: {MAX_LISTED_RUNS + 7} runs"
    assert message.text.count("- job") == MAX_LISTED_RUNS
    assert message.text.endswith("7 more runs are not listed.")
    assert "job 56:" in message.text
    assert "job 6:" not in message.text
    full = digest_of(*runs, more=True)
    assert full.title == f"Digest: more than {MAX_LISTED_RUNS + 7} runs"
    assert full.text.endswith("Not all runs are listed here.")


def test_late_runs_are_counted_and_marked() -> None:
    late_only = replace(HOOK, on=(NotifyOn.LATE,))
    run = ended_run(1, NOW, recipient=late_only)
    run = replace(run, planned_at=NOW - timedelta(hours=1))
    message = digest_of(run)
    assert "Late: 1" in message.text
    assert "job 1: succeeded, late – " in message.text


def test_a_purged_run_is_listed() -> None:
    digest, content = deliveries_of_runs(ended_run(1, NOW, recipient=HOOK))
    message = build_digest_message(digest, content, {}, language="en", zone="Mars/Base")
    assert "job 1: ended – " in message.text
    assert "(UTC)" in message.text


def attempt_with(message: NotificationMessage) -> DeliveryAttempt:
    digest, _ = deliveries_of_runs(ended_run(1, NOW, recipient=HOOK))
    return DeliveryAttempt(
        delivery_id=digest.id, recipient=HOOK, owner=ALICE, message=message, now=NOW
    )


def test_webhook_body_of_a_digest() -> None:
    body = json.loads(
        body_of(attempt_with(digest_of(ended_run(1, NOW, RunStatus.FAILED, recipient=HOOK))))
    )
    assert body["type"] == "digest"
    assert body["data"]["run"] is None
    assert body["data"]["digest"]["counts"] == {"failure": 1}
    (run,) = body["data"]["digest"]["runs"]
    assert (run["id"], run["status"], run["occasion"]) == ("run-1", "failed", "failure")


@pytest.mark.parametrize("language", ["en", "th", "zh"])
def test_message_of_a_test_notification(language: str) -> None:
    test = replace(make_test_delivery(HOOK, ALICE, "x", NOW), schedule_name="Nightly")
    message = build_test_message(
        test, language=language, zone="UTC", public_url="https://c.example"
    )
    assert "Nightly" in message.text
    assert "https://c.example/ui/inbox" in message.text
    assert message.language == language
    body = json.loads(body_of(attempt_with(message)))
    assert (body["type"], body["data"]["run"], body["data"]["digest"]) == ("test", None, None)


def test_fallback_messages_of_digest_and_test() -> None:
    digest, _ = deliveries_of_runs(ended_run(1, NOW, recipient=HOOK))
    assert build_fallback_message(digest, "en").text == "Digest"
    assert build_fallback_message(make_test_delivery(HOOK, ALICE, "x", NOW), "en").text == "Test"
