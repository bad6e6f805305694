"""`add` with natural language and prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chimes.model.validation import PRIORITY_LIMIT
from tests.cli.conftest import Cli, Server


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    return {"CHIMES_STORE": f"sqlite:///{tmp_path / 'chimes.db'}", "CHIMES_URL": ""}


def test_phrase_creates_a_prompt(cli: Cli, store: dict[str, str]) -> None:
    made = cli(*("add", "ทุกวัน 09:00 สรุปข่าว AI", "--tz", "Asia/Bangkok", "--yes", "--json"), **store)
    assert made.code == 0, made.err
    shown = json.loads(made.out)
    assert shown["name"] == "สรุปข่าว AI"
    assert shown["target"]["prompt"] == "สรุปข่าว AI"
    assert shown["trigger"]["expression"] == "0 9 * * *"
    assert shown["timezone"] == "Asia/Bangkok"
    assert [each["channel"] for each in shown["delivery"]] == ["inbox"]
    # In the language of the phrase, with the next five fires and the prompt.
    first, *fires, prompt = [line for line in made.err.splitlines() if "No server" not in line][:7]
    assert first == "ทุกวัน เวลา 09:00 น. ตามเวลา Asia/Bangkok"
    assert [each.split()[2] for each in fires] == ["09:00:00+07:00"] * 5
    assert prompt == "  → สรุปข่าว AI"
    # Without a server it is unknown whether there is a pipeline.
    assert "CHIMES_AGENT_PIPELINE" in made.err
    details = cli("show", shown["id"], **store)
    assert "agent สรุปข่าว AI" in details.out
    assert "inbox" in details.out


def test_explicit_language_takes_precedence(cli: Cli, store: dict[str, str]) -> None:
    found = cli("add", "ทุกวัน 09:00 สรุปข่าว", "--lang", "en", "--dry-run", **store)
    assert found.err.startswith("Every day at 09:00")
    found = cli("add", "every day at 9am sum up", "--dry-run", CHIMES_LANG="zh", **store)
    assert found.err.startswith("每天")


@pytest.mark.parametrize(
    ("text", "missing", "question"),
    [
        ("ทุกวัน สรุปข่าว", ["time"], "กี่โมง"),
        ("every day summarise the news", ["time"], "time"),
    ],
)
def test_unclear_phrase_is_exit_6(
    cli: Cli, store: dict[str, str], text: str, missing: list[str], question: str
) -> None:
    found = cli("add", text, "--yes", **store)
    assert (found.code, found.out) == (6, "")
    assert question in found.err
    assert "Hint: " in found.err
    answer = cli("add", text, "--yes", "--json", **store)
    assert answer.code == 6
    assert json.loads(answer.err)["clarification"]["missing"] == missing


def test_notify_options_become_recipients(cli: Cli, store: dict[str, str]) -> None:
    made = cli(
        *("add", "0 9 * * 1-5", "--agent", "--prompt", "Sum up\nthe news", "--model", "big"),
        *("--notify", "inbox", "--notify", "telegram:-42:on=failure+recovery"),
        *("--notify", "webhook:https://example.com/h?a=on=1:on=success"),
        *("--notify", "email:ada@example.com", "--yes", "--json"),
        **store,
    )
    assert made.code == 0, made.err
    shown = json.loads(made.out)
    assert shown["name"] == "Sum up"
    assert (shown["target"]["prompt"], shown["target"]["model"]) == ("Sum up\nthe news", "big")
    recipients = [(each["channel"], each["to"], each["on"]) for each in shown["delivery"]]
    assert recipients == [
        ("inbox", "", ["always"]),
        ("telegram", "-42", ["failure", "recovery"]),
        ("webhook", "https://example.com/h?a=on=1", ["success"]),
        ("email", "ada@example.com", ["always"]),
    ]


def test_prompt_is_read_from_a_file(cli: Cli, store: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Long\nprompt\n", encoding="utf-8")
    options = ("--prompt", f"@{tmp_path / 'prompt.txt'}", "--dry-run", "--json")
    found = cli("add", "@daily", *options, **store)
    assert json.loads(found.out)["target"] == {"kind": "agent", "prompt": "Long\nprompt\n"}


def test_phrase_names_the_schedule_of_another_target(cli: Cli, store: dict[str, str]) -> None:
    words = "every weekday at 9am call the warehouse"
    found = cli("add", words, "--http", "http://h.example/", "--dry-run", "--json", **store)
    body = json.loads(found.out)
    assert (body["name"], body["target"]["kind"]) == ("call the warehouse", "http")


@pytest.mark.parametrize("expression", ["0 0 L * *", "0 9 15W * *", "0 9 * * 5#2", "0 9 * * MON"])
def test_cron_with_letters_is_not_a_phrase(cli: Cli, expression: str) -> None:
    found = cli("add", expression, "--http", "http://h.example/", "--dry-run", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["trigger"]["expression"] == expression


@pytest.mark.parametrize(
    "options",
    [
        ["@daily"],
        ["@daily", "--agent"],
        ["@daily", "--agent", "--prompt", " "],
        ["@daily", "--agent", "--prompt", "x", "--http", "http://h/"],
        ["@daily", "--prompt", "x", "--task", "y"],
        ["@daily", "--model", "x", "--http", "http://h/"],
        ["@daily", "--prompt", "x", "--notify", "pigeon:x"],
        ["@daily", "--prompt", "x", "--notify", "inbox:urgent=failure"],
        ["@daily", "--prompt", "x", "--notify", "inbox:on=late:on=failure"],
        ["every weekday at 9am"],
    ],
)
def test_conflicting_options_are_rejected(cli: Cli, options: list[str]) -> None:
    assert cli("add", *options, "--yes", "--dry-run").code == 2


def test_run_on_a_server_without_a_pipeline_names_the_missing_setting(
    cli: Cli, server: Server
) -> None:
    made = cli("add", "@daily", "--prompt", "x", "--yes", "-q", CHIMES_URL=server.url)
    assert made.code == 0, made.err
    ran = cli("run", made.out.strip(), "--wait", CHIMES_URL=server.url)
    assert ran.code == 8
    assert "CHIMES_AGENT_PIPELINE" in ran.err + ran.out


def test_priority_is_limited(cli: Cli) -> None:
    target = ("--http", "http://h.example/", "--dry-run", "--json")
    for given, code in ((PRIORITY_LIMIT, 0), (-PRIORITY_LIMIT, 0), (PRIORITY_LIMIT + 1, 2)):
        assert cli("add", "@daily", "--priority", str(given), *target).code == code
    assert "not a whole number" in cli("add", "@daily", "--priority", "high", *target).err
