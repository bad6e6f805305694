"""`next` and `explain`, offline."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import Cli

NEW_YORK = ("--tz", "America/New_York")


def test_next_shows_fires_and_effects_of_clock_changes(cli: Cli) -> None:
    found = cli("next", "30 2 * * *", *NEW_YORK, "-n", "2", "--from", "2027-03-13T12:00:00Z")
    assert found.code == 0
    assert found.rows == [
        [
            "2027-03-14T07:00:00Z",
            "2027-03-14T03:00:00-04:00",
            "its time is skipped when the clocks go forward; it runs at the change",
        ],
        ["2027-03-15T06:30:00Z", "2027-03-15T02:30:00-04:00", ""],
    ]


def test_next_of_an_interval_is_on_the_grid_of_all_interfaces(cli: Cli) -> None:
    fires = json.loads(cli("next", "every 10m", "-n", "3", "--json").out)["fires"]
    assert all(re.fullmatch(r".*T\d\d:\d0:00Z", each["at"]) for each in fires), fires


def test_next_shows_other_zones(cli: Cli) -> None:
    found = cli(
        *("next", "0 20 * * *", "--tz", "Asia/Bangkok", "--also", "Europe/Berlin", "-n", "2"),
        *("--from", "2027-03-27T00:00:00Z"),
    )
    assert [row[2] for row in found.rows] == [
        "2027-03-27T14:00:00+01:00",
        "2027-03-28T15:00:00+02:00",
    ]


def test_next_as_json_is_the_preview_of_the_api(cli: Cli) -> None:
    found = cli("next", "*/7 * * * *", "-n", "1", "--from", "2030-01-01T00:00:00Z", "--json")
    assert json.loads(found.out) == {
        "fires": [{"at": "2030-01-01T00:07:00Z", "local": "2030-01-01T00:07:00+00:00"}],
        "words": "Every day at every 7th minute from 0 to 56 of every hour, UTC",
        "warnings": [
            "The step of 7 minutes starts anew with each hour; the gap there is 4 minutes"
        ],
        "timezone": "UTC",
    }
    chosen = cli("next", "*/7 * * * *", "--json=timezone")
    assert json.loads(chosen.out) == {"timezone": "UTC"}


def test_warnings_go_to_stderr(cli: Cli) -> None:
    found = cli("next", "0 0 13 * 5", "-n", "1")
    assert len(found.rows) == 1
    assert "date or its weekday" in found.err


@pytest.mark.parametrize(
    ("expression", "written"),
    [("every", "every 5m"), ("evry 5m", "every 5m")],
)
def test_interval_that_is_no_sentence_has_a_suggestion(
    cli: Cli, expression: str, written: str
) -> None:
    found = cli("next", expression)
    assert (found.code, found.out) == (6, "")
    assert f'write an interval as "{written}"' in found.err
    assert "fields" not in found.err


@pytest.mark.parametrize(
    ("sentence", "expression"),
    [
        ("every 5 minutes", "every 5m"),
        ("every hour", "every 1h"),
        ("every weekday 9:00 Bangkok time", "CRON_TZ=Asia/Bangkok 0 9 * * 1-5"),
        ("ทุกวัน 09:00", "0 9 * * *"),
    ],
)
def test_sentences_are_read_as_by_add(cli: Cli, sentence: str, expression: str) -> None:
    start = ("--from", "2030-03-06T00:00:00Z")
    found = cli("next", sentence, *start)
    assert found.code == 0, found.err
    assert found.rows == cli("next", expression, *start).rows
    assert cli("explain", sentence).out


def test_rest_of_a_sentence_is_named_and_questions_are_asked(cli: Cli) -> None:
    found = cli("next", "every weekday 9:00 send the news")
    assert "Not read: “send the news”." in found.err
    question = cli("explain", "every weekday at 3")
    assert question.code == 6
    assert "03:00 or 15:00" in question.err


@pytest.mark.parametrize("expression", ["every 90m", "@every 90m", "EVERY PT1H30M"])
def test_forms_of_an_interval(cli: Cli, expression: str) -> None:
    found = cli("next", expression, "-n", "2", "--json")
    assert json.loads(found.out)["words"] == "Every 1 hour and 30 minutes"
    assert len(json.loads(found.out)["fires"]) == 2


def test_time_is_read_in_the_given_zone(cli: Cli) -> None:
    found = cli("next", "2030-02-10T09:00:00", "--tz", "Asia/Bangkok")
    assert found.rows == [["2030-02-10T02:00:00Z", "2030-02-10T09:00:00+07:00", ""]]


def test_default_zone_comes_from_the_configuration(cli: Cli) -> None:
    found = cli("explain", "0 9 * * *", CHIMES_DEFAULT_TIMEZONE="Asia/Bangkok")
    assert found.out.startswith("Every day at 09:00, Asia/Bangkok time\n")


def test_explain_prints_a_description_and_three_fires(cli: Cli) -> None:
    found = cli("explain", "0 0/5 14 ? * MON-FRI *", "--tz", "Europe/Berlin")
    lines = found.out.splitlines()
    assert lines[0] == ("Every 5 minutes from 14:00 to 14:55, every weekday, Europe/Berlin time")
    assert len(lines) == 4


def test_explain_prints_json(cli: Cli) -> None:
    found = json.loads(cli("explain", "@daily", "--json").out)
    assert found["trigger"] == {"kind": "cron", "expression": "@daily", "timezone": "UTC"}
    assert found["words"] == "Every day at 00:00, UTC"
    assert len(found["fires"]) == 3


# Exit code 6: invalid expression; 2: usage.
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["next", "61 * * * *"], 6, "minute field"),
        (["next", "every soon"], 6, "is not a duration"),
        (["next", "next tuesday"], 6, "At what time?"),
        (["next", "0 0 31 2 *"], 6, "never fires"),
        (["next", "2001-01-01T00:00:00Z"], 6, "never fires"),
        (["next", "* * * * *", "--tz", "Asia/Bankok"], 6, "Asia/Bangkok"),
        (["next", "* * * * *", "--tz", "+07:00"], 6, "IANA name"),
        (["next", "* * * * *", "--from", "someday"], 6, "--from"),
        (["explain", "* * * * *", "--lang", "tlh"], 6, "there are en"),
        (["next"], 2, "EXPRESSION"),
        (["next", "* * * * *", "-n", "0"], 2, "-n"),
        (["next", "* * * * *", "--json=nothing"], 2, "available: fires"),
    ],
)
def test_invalid_expressions_are_rejected(
    cli: Cli, arguments: list[str], code: int, says: str
) -> None:
    found = cli(*arguments)
    assert found.code == code
    assert found.out == ""
    assert says in found.err


def test_errors_are_problem_details_with_json(cli: Cli) -> None:
    problem = json.loads(cli("next", "61 * * * *", "--json").err)
    assert problem["exit_code"] == 6
    assert "minute field" in problem["title"]


def test_next_json_contains_the_other_zone(cli: Cli) -> None:
    answer = json.loads(
        cli("next", "0 20 * * *", "--tz", "Asia/Bangkok", "--also", "UTC", "-n", "1", "--json").out
    )
    (fire,) = answer["fires"]
    assert fire["also"]["UTC"].endswith("T13:00:00+00:00")


@pytest.mark.parametrize(
    ("options", "variables", "words"),
    [
        (["--lang", "th"], {}, "ทุกวันทำการ เวลา 09:00 น. ตามเวลา UTC"),
        (["--lang", "zh-CN"], {}, "工作日 09:00，UTC 时间"),
        (["--lang", "en"], {"CHIMES_LANG": "th"}, "Every weekday at 09:00, UTC"),
        ([], {"CHIMES_LANG": "zh", "LC_ALL": "th_TH.UTF-8"}, "工作日 09:00，UTC 时间"),
        ([], {"LC_ALL": "th_TH.UTF-8"}, "ทุกวันทำการ เวลา 09:00 น. ตามเวลา UTC"),
        ([], {"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "工作日 09:00，UTC 时间"),
        ([], {"LC_ALL": "", "LANG": "de_DE.UTF-8"}, "Every weekday at 09:00, UTC"),
    ],
)
def test_description_is_in_the_chosen_language(
    cli: Cli, options: list[str], variables: dict[str, str], words: str
) -> None:
    found = cli("explain", "0 9 * * 1-5", *options, **variables)
    assert found.out.splitlines()[0] == words
    preview = json.loads(cli("next", "0 9 * * 1-5", "--json", *options, **variables).out)
    assert preview["words"] == words


def test_output_contains_no_english(cli: Cli) -> None:
    thai = cli("explain", "30 2 8 3 *", "--tz", "America/New_York", "--lang", "th")
    assert re.search("[A-Za-z]", thai.out.replace("America/New_York", "")) is None
    warned = cli("explain", "*/7 * * * *", "--lang", "zh")
    assert warned.err == "注意：7分钟的间隔每小时重新计算，交界处的间隔为4分钟。\n"
    assert cli("next", "* * * * *", CHIMES_LANG="tlh").code == 6
