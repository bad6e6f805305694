"""What digests and tests say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from chimes.model.notification import Delivery, plan_deliveries, make_test_delivery
from chimes.model.recipient import Channel, Digest, NotifyOn, Period, Recipient
from chimes.model.run import Run, RunStatus
from chimes.notifications.base import Letter
from chimes.notifications.digest import MOST_NAMED, Gathered, digest_message
from chimes.notifications.message import NotificationMessage, bare_message, trial_message
from chimes.notifications.webhook import body_of
from chimes.web.dashboard.inbox.routes import safe_html
from tests.builders import ALICE, NOW
from tests.engine.test_digests import an_end

HOOK = Recipient(
    channel=Channel.WEBHOOK,
    to="http://127.0.0.1:1/",
    digest=Digest(every=Period.DAY, zone="Asia/Bangkok"),
)


def of_runs(*runs: Run, previous: RunStatus | None = None) -> tuple[Delivery, Gathered]:
    rows = [each for run in runs for each in plan_deliveries(run, previous, run.created_at)]
    digest = next(each for each in rows if each.occasion is NotifyOn.DIGEST)
    members = tuple(each for each in rows if each.occasion is not NotifyOn.DIGEST)
    return digest, Gathered(members=members)


def told(
    *runs: Run, language: str = "en", public_url: str = "", more: bool = False
) -> NotificationMessage:
    digest, gathered = of_runs(*runs)
    return digest_message(
        digest,
        replace(gathered, more=more),
        {run.id: run for run in runs},
        language=language,
        zone="Asia/Bangkok",
        public_url=public_url,
    )


def test_it_says_how_many_ended_how_and_names_the_worst_first() -> None:
    good, bad = an_end(1, NOW, told=HOOK), an_end(2, NOW, RunStatus.TIMEOUT, told=HOOK)
    message = told(good, bad, public_url="https://chimes.example")
    head, listed = message.text.split("\n\n")
    assert head.splitlines()[0] == message.title == "Digest: 2 runs"
    assert head.splitlines()[2:] == ["Failed: 1", "Succeeded: 1"]
    first, link, *_ = listed.splitlines()
    assert first.startswith("- job 2: took too long – ")
    assert first.endswith("(Asia/Bangkok)")
    assert link.strip() == "https://chimes.example/ui/runs/run-2"


def test_what_a_schedule_is_called_is_only_text() -> None:
    named = replace(an_end(1, NOW, told=HOOK), schedule_name="[x](javascript:alert(1)) <b> *y* `z`")
    html = safe_html(told(named).markdown)
    assert "[x](javascript:alert(1)) &lt;b&gt; *y* `z`: succeeded" in html
    assert html.count("<a ") == 1
    assert 'href="/ui/runs/run-1"' in html


def test_a_long_one_names_the_first_and_counts_the_others() -> None:
    runs = [
        an_end(number, NOW + timedelta(seconds=number), told=HOOK)
        for number in range(MOST_NAMED + 7)
    ]
    message = told(*runs)
    assert message.title == f"Digest: {MOST_NAMED + 7} runs"
    assert message.text.count("- job") == MOST_NAMED
    assert message.text.endswith("7 more are not named here.")
    assert "job 56:" in message.text
    assert "job 6:" not in message.text
    full = told(*runs, more=True)
    assert full.title == f"Digest: more than {MOST_NAMED + 7} runs"
    assert full.text.endswith("Not all of them are named here.")


def test_late_ones_are_called_late() -> None:
    late_only = replace(HOOK, on=(NotifyOn.LATE,))
    run = an_end(1, NOW, told=late_only)
    run = replace(run, planned_at=NOW - timedelta(hours=1))
    message = told(run)
    assert "Late: 1" in message.text
    assert "job 1: succeeded, late – " in message.text


def test_a_run_that_is_forgotten_is_named_all_the_same() -> None:
    digest, gathered = of_runs(an_end(1, NOW, told=HOOK))
    message = digest_message(digest, gathered, {}, language="en", zone="Mars/Base")
    assert "job 1: has ended – " in message.text
    assert "(UTC)" in message.text


def _letter(message: NotificationMessage) -> Letter:
    digest, _ = of_runs(an_end(1, NOW, told=HOOK))
    return Letter(delivery_id=digest.id, recipient=HOOK, owner=ALICE, message=message, now=NOW)


def test_programs_get_it_as_data() -> None:
    body = json.loads(body_of(_letter(told(an_end(1, NOW, RunStatus.FAILED, told=HOOK)))))
    assert body["type"] == "digest"
    assert body["data"]["run"] is None
    assert body["data"]["digest"]["counts"] == {"failure": 1}
    (run,) = body["data"]["digest"]["runs"]
    assert (run["id"], run["status"], run["occasion"]) == ("run-1", "failed", "failure")


@pytest.mark.parametrize("language", ["en", "th", "zh"])
def test_a_test_says_that_it_is_one(language: str) -> None:
    test = replace(make_test_delivery(HOOK, ALICE, "x", NOW), schedule_name="Nightly")
    message = trial_message(test, language=language, zone="UTC", public_url="https://c.example")
    assert "Nightly" in message.text
    assert "https://c.example/ui/inbox" in message.text
    assert message.language == language
    body = json.loads(body_of(_letter(message)))
    assert (body["type"], body["data"]["run"], body["data"]["digest"]) == ("test", None, None)


def test_what_cannot_be_made_is_named_by_its_kind() -> None:
    digest, _ = of_runs(an_end(1, NOW, told=HOOK))
    assert bare_message(digest, "en").text == "Digest"
    assert bare_message(make_test_delivery(HOOK, ALICE, "x", NOW), "en").text == "Test"
