"""Every text that a command shows comes from the message catalogues.

The tests use a pseudo-language (tests/cli/pseudo_locale.py), which makes text that bypasses the
catalogues visible."""

from __future__ import annotations

import gettext
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from chimes import i18n as wording
from chimes.cli.command import COMMANDS
from chimes.cli.command import cli as root
from chimes.cli.output import (
    RUN_COLUMNS,
    RUN_STATUSES,
    Column,
    Json,
    Output,
    countdown,
    current_language,
    explicit_language,
    localize,
    original_environment,
    schedule_columns,
    schedule_details,
    use_language,
)
from chimes.i18n import _
from chimes.model.run import RUN_REASONS, Reason, RunStatus
from tests.cli import pseudo_locale
from tests.cli.conftest import Cli, environment
from tests.cli.test_root import commands
from tests.tables import each_row

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TH = ("--lang", pseudo_locale.LANGUAGE)
NAMES = "chimes"


@pytest.fixture(scope="module")
def brackets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("locale")
    pseudo_locale.write_catalogue(directory)
    return directory


@pytest.fixture
def bracketed(brackets: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(wording, "LOCALE", brackets)
    wording.catalogue.cache_clear()
    yield
    wording.catalogue.cache_clear()


def groups() -> list[str]:
    context = click.Context(root)
    return [name for name in COMMANDS if isinstance(root.get_command(context, name), click.Group)]


@pytest.mark.usefixtures("bracketed")
@each_row("name", ["", *groups(), *(name for name, _unused in commands())])
def test_help_is_translated_completely(cli: Cli, name: str) -> None:
    found = cli(*name.split(), "--help", *TH)
    assert found.code == 0, found.err
    # Examples are part of the help text; names of commands are not translated.
    assert (
        pseudo_locale.untranslated(found.out, f"{name} chimes {' '.join(names_within(name))}") == []
    )
    assert found.out.startswith("⟦Usage:⟧ chimes")
    assert "⟦Show this message and exit.⟧" in found.out


def names_within(name: str) -> list[str]:
    command: click.Command | None = root
    for each in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), each)
    if not isinstance(command, click.Group):
        return []
    return command.list_commands(click.Context(root))


@pytest.mark.usefixtures("bracketed")
@each_row(
    "arguments",
    [
        ["nxt"],
        ["zzzzzzzz"],
        ["show"],
        ["show", "one", "two"],
        ["ls", "--jsn"],
        ["ls", "--sort"],
        ["ls", "--sort", "nmae"],
        ["ls", "--utc=1"],
        ["runs", "--limit", "many"],
        ["runs", "--limit", "0"],
        ["move", "x"],
        ["ls", "--api-key", "x"],
        ["add", "@daily", "--yes"],
        ["add", "@daily", "--http", "http://h/", "--jitter", "5m"],
        ["add", "@daily", "--task", "t", "--method", "GET"],
        ["add", "@daily", "--task", "t", "--args", "{"],
        ["add", "@daily", "--task", "t", "--args", "[]"],
        ["add", "@daily", "--task", "t", "--args", "@nowhere"],
        ["add", "@daily", "--http", "http://h/", "--notify", "pigeon"],
        ["key", "create", "--owner", "alice"],
        ["pause"],
        ["deliveries", "retry", "--url", "http://127.0.0.1:1"],
        ["store", "import", "nowhere.jsonl"],
        ["store", "copy-to", "memory://"],
        ["store", "status"],
        ["store", "backfill-schedules"],
        ["apply"],
        ["worker"],
        ["ls"],
        ["ls", "--api-key-file", "nowhere"],
        ["ls", "--url", "ftp://nowhere"],
        ["next", "61 * * * *"],
        ["next", "0 0 30 2 *"],
        ["next", "* * * * *", "--tz", "Asia/Bangkk"],
        ["serve", "--port", "many"],
    ],
    ids=" ".join,
)
def test_errors_and_hints_are_translated_completely(cli: Cli, arguments: list[str]) -> None:
    found = cli(*arguments, *TH)
    assert found.code not in (0, 1)
    assert pseudo_locale.untranslated(found.err, f"{NAMES} {' '.join(arguments)}") == []
    assert "⟦Error: " in found.err
    assert found.out == ""


@pytest.mark.usefixtures("bracketed")
def test_error_is_translated_completely(cli: Cli) -> None:
    found = cli("nxt", *TH).err.splitlines()
    assert found[-2:] == [
        "⟦Try 'chimes --help'.⟧",
        "⟦Error: ⟦Unknown command 'nxt'. Did you mean next?⟧⟧",
    ]
    assert "⟦Hint: ⟦start one with `chimes serve`, or set CHIMES_URL⟧⟧" in cli("ls", *TH).err


# --lang, then CHIMES_LANG, then the locale; the last --lang counts.
@pytest.mark.usefixtures("bracketed")
def test_precedence_of_the_language(cli: Cli) -> None:
    def is_english(*arguments: str, **variables: str) -> bool:
        return cli(*arguments, **variables).err.startswith("Error: ")

    assert is_english("ls")
    assert not is_english("ls", *TH)
    assert not is_english(*TH, "ls")
    assert not is_english("ls", "--lang=th")
    assert not is_english("key", *TH, "list")
    assert not is_english("ls", CHIMES_LANG="th")
    assert not is_english("ls", LC_ALL="th_TH.UTF-8")
    assert not is_english("ls", CHIMES_LANG="th", LC_ALL="en_US.UTF-8")
    assert is_english("ls", "--lang", "en", CHIMES_LANG="th")
    assert is_english(*TH, "ls", "--lang", "en")
    assert not is_english("--lang", "en", "ls", *TH)
    # After -- it is not an option.
    assert is_english("show", "--", "--lang", "th") or "Usage" in cli("show", "--", *TH).err


def test_unknown_language_is_an_error_except_for_help(cli: Cli) -> None:
    assert cli("ls", "--lang", "tlh").code == 6
    assert "en, th, zh" in cli("ls", CHIMES_LANG="tlh").err
    assert cli("ls", CHIMES_LANG="tlh").code == 6
    assert cli("ls", "--help", CHIMES_LANG="tlh").code == 0
    assert cli("ls", "--lang", "en", CHIMES_LANG="tlh").code == 7


@pytest.mark.usefixtures("bracketed")
def test_language_is_restored_after_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGUAGE", "de:en")
    before = gettext.textdomain()
    with use_language(TH):
        assert current_language() == "th"
        assert os.environ["LANGUAGE"] == "th"
        assert localize(_("Interrupted.")) == "⟦Interrupted.⟧"
        assert explicit_language() is None
        with original_environment():
            assert os.environ["LANGUAGE"] == "de:en"
        assert os.environ["LANGUAGE"] == "th"
    assert current_language() == "en"
    assert os.environ["LANGUAGE"] == "de:en"
    assert gettext.textdomain() == before


@pytest.mark.usefixtures("bracketed")
def test_json_errors_are_translated(cli: Cli, tmp_path: Path) -> None:
    assert json.loads(cli("version", "--json", *TH).out).keys() == {"version", "python"}
    problem = json.loads(cli("ls", "--json", *TH).err)
    assert problem["exit_code"] == 7
    assert problem["title"].startswith("⟦Cannot reach the server at ")
    assert cli("config", "show", "--json", *TH).out == cli("config", "show", "--json").out
    doctor = json.loads(cli("doctor", "--json", *TH).out)
    assert {each["id"] for each in doctor} >= {"python", "packages", "time zones", "configuration"}
    assert {each["state"] for each in doctor} <= {"ok", "warning", "problem"}
    assert all("⟦" in each["detail"] for each in doctor if each["id"] in ("python", "server"))


@pytest.mark.usefixtures("bracketed")
def test_output_in_a_pipe_is_in_english(cli: Cli, tmp_path: Path) -> None:
    store = {"CHIMES_STORE": f"sqlite:///{tmp_path}/chimes.db"}
    made = cli("add", "@daily", "--http", "http://h.example/", "--yes", "--paused", *TH, **store)
    assert made.code == 0, made.err
    assert "⟦No server at " in made.err
    shown = dict(made.rows)
    assert shown["state"] == "paused"
    assert {"name", "zone", "last run", "created"} <= shown.keys()
    assert {row[1] for row in cli("doctor", *TH, **store).rows} >= {"time zones", "store"}


def terminal_table(
    capsys: pytest.CaptureFixture[str],
    rows: list[Json],
    columns: list[Column],
    *,
    one: bool = False,
) -> list[str]:
    output = Output(format="table", zone=lambda moment: moment.astimezone(UTC))
    with use_language(TH):
        output.one(rows[0], columns) if one else output.rows(rows, columns)
    return capsys.readouterr().out.splitlines()


SCHEDULE: Json = {
    "id": "0199-aa",
    "name": "n",
    "enabled": False,
    "next_run_at": "2030-01-01T13:05:00Z",
    "last_status": "failed",
    "target": {"kind": "task", "name": "t"},
}


@pytest.mark.usefixtures("bracketed")
def test_tables_are_translated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    head, row = terminal_table(capsys, [SCHEDULE], schedule_columns(NOON))
    assert pseudo_locale.untranslated(head) == []
    assert {"⟦ID⟧", "⟦NAME⟧", "⟦STATE⟧", "⟦LAST⟧"} <= set(head.split())
    assert "⟦paused⟧" in row
    assert "⟦failed⟧" in row
    assert "⟦in ⟦1 h 5 min⟧⟧" in row
    run: Json = {"id": "r", "status": "skipped", "reason": "overlap", "duration_ms": 12.0}
    head, row = terminal_table(capsys, [run], RUN_COLUMNS)
    assert pseudo_locale.untranslated(head) == []
    assert "⟦skipped⟧" in row
    assert f"⟦{RUN_REASONS['overlap']}⟧" in row
    assert "⟦12 ms⟧" in row
    details = terminal_table(capsys, [SCHEDULE], schedule_details(NOON), one=True)
    assert all(line.startswith("⟦") for line in details)
    assert any(line.split() == ["⟦Last", "status⟧", "⟦failed⟧"] for line in details)


# The answer is y or n in every language.
@pytest.mark.usefixtures("bracketed")
def test_prompts_are_translated(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = io.StringIO("what\nn\n")
    for stream in (answers, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", answers)
    found = cli("add", "@daily", "--http", "http://h.example/", *TH)
    assert found.code == 1
    assert "⟦Create it?⟧ [y/N]: " in found.err
    assert "⟦Error: invalid input⟧" in found.err
    assert found.err.endswith("⟦Nothing was created.⟧\n")


@pytest.mark.usefixtures("bracketed")
def test_doctor_is_translated(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    found = cli("doctor", *TH, CHIMES_STOER="x", CHIMES_STORE="memory://")
    lines = found.out.splitlines()
    assert "! ⟦store⟧: ⟦memory: all data is lost when the process ends⟧" in lines
    assert "    ⟦use sqlite⟧" in lines
    assert "! ⟦environment⟧: ⟦CHIMES_STOER is not a setting⟧" in lines
    assert "    ⟦did you mean CHIMES_STORE?⟧" in lines
    assert all(line.startswith("    ") or line[2] == "⟦" for line in lines)
    assert found.err.strip() in ("⟦No problems found.⟧", "⟦1 problems.⟧")


def test_every_api_value_has_a_label() -> None:
    assert set(RUN_STATUSES) == {status.value for status in RunStatus}
    assert {word for name, word in vars(Reason).items() if name.isupper()} <= set(RUN_REASONS)


@pytest.mark.parametrize(
    ("left", "shown"),
    [
        (timedelta(0), "in 0 s"),
        (timedelta(seconds=59), "in 59 s"),
        (timedelta(minutes=3), "in 3 min"),
        (timedelta(minutes=3, seconds=5), "in 3 min 5 s"),
        (timedelta(hours=1, minutes=5, seconds=9), "in 1 h 5 min"),
        (timedelta(hours=2, seconds=9), "in 2 h"),
        (timedelta(days=2, minutes=9), "in 2 d"),
        (timedelta(days=2, hours=9), "in 2 d 9 h"),
        (-timedelta(minutes=3), "3 min ago"),
    ],
)
def test_countdown_text(left: timedelta, shown: str) -> None:
    assert countdown(NOON + left, NOON) == shown


def test_other_languages_import_no_heavy_modules(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom chimes.cli.command import run\n"
        "heavy = ['babel', 'rich', 'fastapi']\n"
        "run(['ls', '--help', '--lang', 'zh'])\n"
        "run(['explain', '* * * * *', '--lang', 'th'])\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "[]"
