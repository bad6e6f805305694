"""Help of the editor without a server: cron fields, zones, calendars, neighbours, arguments."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import holidays
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidInput
from chimes.model.ids import ScheduleId
from chimes.model.policy import Backoff, Policy
from chimes.triggers import Cron, Every, Trigger, trigger_from_dict
from chimes.web.dashboard.core.preferences import DisplayPreferences, resolve_display
from chimes.web.dashboard.editor.form import (
    definition_of,
    form_field_for,
    new_fields,
    parse_description,
)
from chimes.web.dashboard.editor.preview import (
    CHOICES,
    build_neighbours,
    build_preview,
    cron_parts,
    excluded_times,
    fires_per_hour,
)
from chimes.web.dashboard.editor.target_fields import (
    arguments_body,
    arguments_from_schema,
    split_arguments,
)
from chimes.web.dashboard.editor.trigger_fields import (
    countries,
    country_code,
    exclusion_fields,
    exclusions,
)
from chimes.web.dashboard.editor.zones import (
    KnownZones,
    recent_zones,
    search_zones,
    unique_zone,
    world_clock,
    zone_error,
)
from tests.builders import a_schedule
from tests.examples import examples
from tests.language.corpus import CLEAR, WITH_RECIPIENTS

NOW = datetime(2026, 11, 16, 5, 0, tzinfo=UTC)


def a_display(zone: str = "Asia/Bangkok", language: str = "en") -> DisplayPreferences:
    cookie = f"zone={zone.replace('/', '%2F')}&language={language}"
    return resolve_display(cookie, accept_language="en", default_zone="UTC")


# --- cron ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expression", "dialect", "meanings"),
    [
        (
            "*/15 9-17 * * 1-5",
            "",
            {
                "minute": "0, 15, 30, 45",
                "hour": "9–17",
                "day of the month": "every day of the month",
                "month": "every month",
                "weekday": "Mon–Fri",
            },
        ),
        (
            "0 9 1,L,15W */6 5L",
            "",
            {
                "minute": "0",
                "hour": "9",
                "day of the month": "1 · the last day of the month"
                " · the working day nearest to day 15",
                "month": "Jan, Jul",
                "weekday": "the last Fri of the month",
            },
        ),
        (
            "30 0 12 ? * 2#1 2027",
            "",
            {
                "second": "30",
                "minute": "0",
                "hour": "12",
                "day of the month": "every day of the month",
                "month": "every month",
                "weekday": "Mon, number 1 of the month",
                "year": "2027",
            },
        ),
        ("TZ=Asia/Tokyo 0 22-2 * * *", "", {"hour": "0–2, 22, 23"}),
        ("@hourly", "", {"minute": "0", "hour": "every hour"}),
        ("0 9 LW * *", "", {"day of the month": "the last working day of the month"}),
        ("* * * * * *", "seconds", {"second": "every second"}),
    ],
)
def test_each_cron_field_is_explained(
    expression: str, dialect: str, meanings: dict[str, str]
) -> None:
    found = {each.name: each.meaning for each in cron_parts(expression, dialect, "en")}
    assert meanings.items() <= found.items()
    assert not any(each.invalid for each in cron_parts(expression, dialect, "en"))


def test_the_invalid_cron_field_is_marked() -> None:
    """Also while other fields are missing."""
    found = cron_parts("0 25 * *", "", "en")
    assert [each.invalid for each in found] == [False, True, False, False]
    assert "25 is out of range" in found[1].meaning
    assert (found[1].unit, found[1].text, found[1].allowed) == ("hour", "25", "0–23")
    for nothing in ("", "@every 5m", "TZ=UTC", "a b c d e f g h"):
        assert cron_parts(nothing, "", "en") == ()


@pytest.mark.parametrize("language", ["en", "th", "zh"])
def test_cron_field_names_are_translated_and_choices_are_valid(language: str) -> None:
    days = {"en": "Mon–Fri", "th": "จ.–ศ.", "zh": "周一–周五"}
    assert cron_parts("0 9 * * 1-5", "", language)[4].meaning == days[language]
    for place, unit in enumerate(("minute", "hour", "day", "month", "weekday")):
        for choice in CHOICES[unit]:
            parts = ["0", "0", "*", "*", "*"]
            parts[place] = choice
            assert not any(each.invalid for each in cron_parts(" ".join(parts), "", language))


@examples(60)
@given(st.text(alphabet="0159*/-,LW#? MONSUNQ@", max_size=24), st.sampled_from(["", "quartz"]))
def test_any_cron_text_is_explained_or_marked(text: str, dialect: str) -> None:
    for each in cron_parts(text, dialect, "en"):
        assert each.meaning
    assert len(cron_parts(text, dialect, "en")) <= 7


@pytest.mark.parametrize(
    ("trigger", "often"),
    [
        (Cron("* * * * *"), True),
        (Every("1m"), True),
        (Every("5s"), True),
        (Cron("*/5 * * * *"), False),
        (Cron("0 9 * * *"), False),
    ],
)
def test_a_frequent_trigger_warns_once(trigger: Trigger, often: bool) -> None:
    warnings = build_preview(trigger.anchored(NOW), a_display(), NOW).warnings
    assert sum("times a day" in each for each in warnings) == often


def test_uneven_steps_and_two_day_fields_warn() -> None:
    uneven = build_preview(Cron("*/7 * 1 * 1"), a_display(), NOW).warnings
    assert any("the gap there is 4 minutes" in each for each in uneven)
    assert any("not only if both do" in each for each in uneven)


# --- zones ---------------------------------------------------------------------------------------
def test_est_is_ambiguous() -> None:
    assert unique_zone("EST", NOW) is None
    assert unique_zone("EST", NOW, sure="EST") == "EST", "an explicit choice is kept"
    found = search_zones("EST", "en", NOW)
    assert [(each.name, each.has_dst) for each in found] == [
        ("America/New_York", True),
        ("EST", False),
    ]
    assert zone_error("EST", found) == (
        "'EST' is ambiguous: America/New_York (with daylight saving time) or UTC-5 all year?"
    )


def test_the_world_clock_has_each_relevant_zone_once() -> None:
    known = KnownZones(
        mine="Asia/Bangkok",
        default="UTC",
        recent=recent_zones(["Asia/Tokyo", "UTC", "Asia/Tokyo", "no/zone"]),
    )
    found = world_clock("America/New_York", "en", NOW, known)
    assert [(each.name, each.weekday, each.clock) for each in found] == [
        ("America/New_York", "Mon", "00:00"),
        ("Asia/Bangkok", "Mon", "12:00"),
        ("Asia/Tokyo", "Mon", "14:00"),
        ("UTC", "Mon", "05:00"),
    ]
    assert [each.name for each in world_clock("what?", "en", NOW, KnownZones())] == ["UTC"]


# --- calendars -----------------------------------------------------------------------------------
def test_every_listed_country_has_holidays() -> None:
    known = holidays.list_supported_countries()
    codes = [code for code, _ in countries("en")]
    assert len(codes) > 200
    assert set(codes) <= set(known)
    assert dict(countries("th"))["TH"] == "ไทย"
    for name in ("Thailand", "ไทย", "泰国", "th", " TH "):
        assert country_code(name) == "TH"
    assert country_code("us-ca") == "US-CA"
    assert country_code("Atlantis") == "Atlantis"


@pytest.mark.parametrize(
    "calendar",
    [
        {"holidays": "US-CA", "on_excluded": "next"},
        {"dates": ["2026-12-25", "2027-01-01"]},
        {"weekly": [{"days": ["MON", "FRI"], "from": "22:00", "to": "06:00"}]},
        {"weekly": [{"days": ["SUN"], "from": "00:00", "to": "24:00"}]},
        {
            "weekly": [
                {"days": ["SAT"], "from": "00:00", "to": "24:00"},
                {"days": ["MON"], "from": "12:00", "to": "13:00"},
            ]
        },
    ],
)
def test_calendars_round_trip_through_the_form(calendar: dict[str, object]) -> None:
    fields = exclusion_fields(0, calendar) | exclusion_fields(3, calendar)
    assert exclusions(fields) == [calendar, calendar]
    assert form_field_for("trigger.exclude[1].weekly[0]", fields).startswith("ex3_")


def test_a_weekly_window_ends_at_midnight() -> None:
    fields = {"ex0_kind": "weekly", "ex0_days": "SAT,SUN", "ex0_from": "", "ex0_to": "00:00"}
    assert exclusions(fields) == [
        {"weekly": [{"days": ["SAT", "SUN"], "from": "00:00", "to": "24:00"}]}
    ]
    assert exclusions({"ex0_kind": "weekly", "ex0_days": "", "ex0_value": ""}) == []
    with pytest.raises(InvalidInput) as error:
        exclusions({"ex2_kind": "weekly", "ex2_value": "MON"})
    assert error.value.field == "ex2_value"


def test_excluded_times_are_shown_before_saving() -> None:
    weekdays = Cron(
        "0 9 * * 1-5",
        timezone="Asia/Bangkok",
        exclude=[{"dates": ["2026-11-18", "2026-11-21", "2026-11-24"]}],
    )
    assert excluded_times(weekdays, a_display(), NOW) == (
        "Wed 18 Nov 09:00 +07",
        "Tue 24 Nov 09:00 +07",
    ), "a Saturday would not have been a day anyway"
    assert excluded_times(Cron("0 9 * * *"), a_display(), NOW) == ()
    night = Cron(
        "0 */6 * * *",
        timezone="Asia/Bangkok",
        exclude=[{"weekly": [{"days": ["MON", "TUE"], "from": "22:00", "to": "06:00"}]}],
    )
    assert excluded_times(night, a_display(), NOW)[0] == "Tue 17 Nov 00:00 +07"


# --- neighbours and retries ----------------------------------------------------------------------
def test_fires_per_hour_match_the_scheduler() -> None:
    assert sum(fires_per_hour(Cron("0 9 * * *", timezone="Asia/Bangkok"), NOW)) == 1
    assert fires_per_hour(Every("1m").anchored(NOW), NOW) == [59] + [60] * 23
    closed = Cron(
        "0 * * * *",
        timezone="Asia/Bangkok",
        exclude=[{"weekly": [{"days": ["MON"], "from": "00:00", "to": "24:00"}]}],
    )
    # Monday noon in the zone: nothing until midnight, then every hour.
    assert fires_per_hour(closed, NOW) == [0] * 12 + [1] * 12
    often = replace(closed, expression="*/10 * * * *")
    assert fires_per_hour(often, NOW) == [0] * 12 + [6] * 12


def test_other_schedules_at_the_same_time_are_counted() -> None:
    trigger = Cron("0 9 * * *", timezone="Asia/Bangkok")
    others = [
        a_schedule(id=f"s{n}", trigger=trigger, next_run_at=NOW + timedelta(hours=21))
        for n in range(4)
    ]
    others.append(a_schedule(id="x", trigger=Cron("30 9 * * *", timezone="Asia/Bangkok")))
    found = build_neighbours(trigger, others, a_display(), NOW, exclude_id=ScheduleId("s0"))
    assert found is not None
    assert "This schedule" in found.table
    assert build_neighbours(Cron("0 9 1 1 *"), others, a_display(), NOW) is None


def test_the_retry_chart_has_real_times() -> None:
    policy = Policy(max_retries=3, retry_backoff=timedelta(seconds=30), backoff=Backoff.EXPONENTIAL)
    shown = build_preview(Cron("0 9 * * *", timezone="Asia/Bangkok"), a_display(), NOW, policy)
    assert shown.attempts is not None
    assert shown.attempts.svg.count("<circle") == 4
    first, *_, last = (line for line in str(shown.attempts.table).split("<tr>") if "<td>" in line)
    assert "Tue 17 Nov 09:00:00 +07" in first
    assert f"{shown.retries[-1].astimezone(UTC) + timedelta(hours=7):%H:%M:%S}" in last
    assert build_preview(Cron("0 9 * * *"), a_display(), NOW).attempts is None


# --- arguments of tasks --------------------------------------------------------------------------
SCHEMA = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "format": "date"},
        "kind": {"type": "string", "enum": ["short", "long"], "default": "short"},
        "count": {"type": "integer", "default": 7},
        "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "loud": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "colour": {
            "$defs": {"Colour": {"type": "string", "enum": ["red"]}},
            "anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}],
        },
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "open": {},
    },
    "required": ["day"],
}
ARGUMENTS = arguments_from_schema(SCHEMA)


def test_each_argument_gets_a_field_of_its_type() -> None:
    assert {each.name: (each.field, each.input) for each in ARGUMENTS} == {
        "day": ("arg_s_day", "date"),
        "kind": ("arg_s_kind", "text"),
        "count": ("arg_i_count", "text"),
        "ratio": ("arg_n_ratio", "text"),
        "loud": ("arg_b_loud", "text"),
        "tags": ("arg_j_tags", "text"),
        "colour": ("arg_s_colour", "text"),
    }
    by_name = {each.name: each for each in ARGUMENTS}
    assert by_name["day"].required
    assert by_name["kind"].choices == ("short", "long")
    assert by_name["colour"].choices == ("red",)
    assert by_name["count"].default == "7"
    for odd in ({}, {"properties": 3}, {"properties": {"a": 3}}):
        assert arguments_from_schema(odd) == ()


values = st.fixed_dictionaries(
    {},
    optional={
        "day": st.text(max_size=5),
        "kind": st.sampled_from(["short", "other", ""]),
        "count": st.one_of(st.integers(), st.booleans(), st.text(max_size=3), st.none()),
        "ratio": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers()),
        "loud": st.one_of(st.booleans(), st.integers(0, 1)),
        "tags": st.lists(st.text(max_size=3), max_size=2),
        "open": st.integers(),
        "new": st.text(max_size=3),
    },
)


@examples(120)
@given(values)
def test_argument_values_round_trip(args: dict[str, object]) -> None:
    """Values that a field cannot represent stay in the JSON field; booleans are not numbers."""
    fields = split_arguments({"task": "t", "args": json.dumps(args)}, ARGUMENTS)
    again = arguments_body(fields)
    assert json.dumps(again, sort_keys=True) == json.dumps(args, sort_keys=True)
    assert split_arguments(fields, ARGUMENTS) == fields


@pytest.mark.parametrize(
    ("field", "text"),
    [("arg_i_count", "7.5"), ("arg_i_count", "true"), ("arg_n_ratio", "much"), ("arg_j_x", "[")],
)
def test_an_argument_of_the_wrong_type_is_reported_at_its_field(field: str, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        arguments_body({field: text})
    assert error.value.field == field
    assert form_field_for("target.args.count", {"arg_i_count": "7"}) == "arg_i_count"


def test_fields_of_another_task_are_ignored() -> None:
    fields = {"task": "b", "args_for": "a", "args": '{"x": 1}', "arg_i_count": "3"}
    assert arguments_body(fields) == {"x": 1}


# --- descriptions --------------------------------------------------------------------------------
def test_the_editor_reads_the_corpus_as_the_parser_does() -> None:
    """Every phrase of the corpus survives the fields of the form."""
    rows = [*CLEAR[::2], *WITH_RECIPIENTS]
    assert len(rows) >= 300
    wrong = []
    for row in rows:
        found = parse_description(
            row.text, new_fields(row.timezone), now=row.now, zone=row.timezone, lang=row.lang
        )
        body = definition_of(found.fields, row.now, is_edit=False).body
        read = trigger_from_dict(body["trigger"])
        if row.trigger is not None and read.to_dict() != row.trigger.to_dict():
            wrong.append(row.text)
        delivery = body.get("delivery", [])
        assert isinstance(delivery, list)
        recipients = [(each["channel"], each["to"], each["on"][0]) for each in delivery]
        expected = [(each.channel, each.to, each.on) for each in row.recipients]
        assert recipients == expected, row.text
        assert "kind" in found.guessed or not row.task
    assert wrong == []


def test_described_recipients_are_added_to_chosen_ones() -> None:
    words = "ทุกวันทำการ 9 โมง ส่งสรุปยอดขายเข้าเทเลแกรม"

    def read(fields: dict[str, str], text: str = words) -> dict[str, str]:
        found = parse_description(
            text, fields, now=NOW, zone="Asia/Bangkok", lang="th", chats=["4711", "4712"]
        )
        return found.fields | {"guessed": ",".join(found.guessed)}

    first = read(new_fields("Asia/Bangkok"))
    assert (first["notify0_channel"], first["notify0_to"], first["notify0_on"]) == (
        *("telegram", "4711"),
        "always",
    )
    assert "notify0_channel" in first["guessed"]
    # Applying another description replaces guesses; chosen recipients stay.
    again = read(first, "ทุกวัน 9:00 ส่งสรุปไปที่ ada@example.com")
    assert (again["notify0_channel"], again["notify0_to"]) == ("email", "ada@example.com")
    assert "notify1_channel" not in again
    chosen = new_fields("UTC") | {"notify0_channel": "inbox", "notify0_on": "failure"}
    both = read(chosen)
    assert (both["notify0_channel"], both["notify0_on"]) == ("inbox", "failure")
    assert both["notify1_channel"] == "telegram"
    assert "notify0_channel" not in both["guessed"]
