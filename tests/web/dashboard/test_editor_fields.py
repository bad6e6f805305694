"""Editor functions without a server: preview, zones, descriptions, snippets, merge."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chimes.cli.command import run
from chimes.errors import InvalidInput
from chimes.model.ids import ScheduleId
from chimes.model.policy import Backoff, Policy
from chimes.model.schedule import Schedule, plan_after, set_cursor
from chimes.model.target import HttpTarget
from chimes.services.schedules.templates import list_templates
from chimes.triggers import Cron, Every, Once, Trigger, trigger_from_dict
from chimes.web.api.schemas import ScheduleIn
from chimes.web.dashboard.core.preferences import DisplayPreferences, resolve_display
from chimes.web.dashboard.editor.form import (
    definition_of,
    fields_of,
    new_fields,
    parse_description,
    with_template,
)
from chimes.web.dashboard.editor.merge import diff, merge, patch_of, value_text
from chimes.web.dashboard.editor.preview import build_preview, clock_notes, retry_times
from chimes.web.dashboard.editor.snippets import as_command, as_curl, as_yaml
from chimes.web.dashboard.editor.trigger_fields import (
    rule_expression,
    rule_fields,
    trigger_body,
    trigger_fields,
)
from chimes.web.dashboard.editor.zones import KnownZones, search_zones, unique_zone
from tests.examples import examples

NOW = datetime(2026, 11, 16, 5, 0, tzinfo=UTC)
#: Clocks go forward on the next day.
MARCH = datetime(2027, 3, 13, tzinfo=UTC)


def a_display(zone: str = "Asia/Bangkok", language: str = "en") -> DisplayPreferences:
    cookie = f"zone={zone.replace('/', '%2F')}&language={language}"
    return resolve_display(cookie, accept_language="en", default_zone="UTC")


# --- preview and scheduler ---------------------------------------------------------------------
ZONES = ("Asia/Bangkok", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "UTC")
triggers = st.one_of(
    st.builds(
        lambda minute, hour, day, weekday, zone: Cron(
            f"{minute} {hour} {day} * {weekday}", timezone=zone
        ),
        st.sampled_from(["0", "30", "*/20", "15,45"]),
        st.sampled_from(["1", "2", "3", "*/6", "9-17", "*"]),
        st.sampled_from(["*", "1", "L", "*/7"]),
        st.sampled_from(["*", "1-5", "0"]),
        st.sampled_from(ZONES),
    ),
    st.builds(
        lambda seconds, jitter: Every(timedelta(seconds=seconds), jitter=timedelta(seconds=jitter)),
        st.integers(1, 10**6),
        st.integers(0, 1),
    ),
    st.builds(
        lambda hours, zone: Once(
            f"{MARCH + timedelta(minutes=15 * hours):%Y-%m-%dT%H:%M:%S}", timezone=zone
        ),
        st.integers(0, 300),
        st.sampled_from(ZONES),
    ),
)


@examples(60)
@given(triggers, st.integers(0, 400 * 24), st.sampled_from(ZONES))
def test_the_preview_matches_the_scheduler(trigger: Trigger, hours: int, mine: str) -> None:
    """Compares the preview of the form with the fires of the scheduler."""
    now = NOW + timedelta(hours=hours)
    if isinstance(trigger, Once) and trigger.instant <= now:
        now = NOW
    fields = trigger_fields(trigger.to_dict(), mine)
    read = trigger_from_dict(trigger_body(fields, now)).anchored(now)
    shown = build_preview(read, a_display(mine), now)
    schedule = plan_after(
        Schedule(
            id=ScheduleId("s"),
            name="s",
            trigger=trigger.anchored(now),
            target=HttpTarget(url="http://localhost/"),
            created_at=now,
            updated_at=now,
        ),
        now,
    )
    slots = []
    while schedule.next_slot is not None and len(slots) < 5:
        slots.append(schedule.next_slot)
        schedule = set_cursor(schedule, schedule.trigger.next_after(schedule.next_slot))
    assert [fire.at for fire in shown.fires] == slots


# --- clock changes -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expression", "zone", "notes"),
    [
        (
            "30 2 * * *",
            "America/New_York",
            ["Sun 14 Mar 2027: 02:30 does not exist in America/New_York; it fires at 03:00."],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            [
                "Sun 7 Nov 2027: 01:30 occurs twice in America/New_York; "
                "it fires only the first time."
            ],
        ),
        (
            "15 2 * * *",
            "Europe/Berlin",
            [
                "Sun 28 Mar 2027: 02:15 does not exist in Europe/Berlin; it fires at 03:00.",
                "Sun 31 Oct 2027: 02:15 occurs twice in Europe/Berlin; "
                "it fires only the first time.",
            ],
        ),
        (
            "*/30 * * * *",
            "Europe/Berlin",
            ["Sun 31 Oct 2027: 02:00 occurs twice in Europe/Berlin; it fires both times."],
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            ["Sun 3 Oct 2027: 02:15 does not exist in Australia/Lord_Howe; it fires at 02:30."],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            [
                "Sun 4 Apr 2027: 01:45 occurs twice in Australia/Lord_Howe; "
                "it fires only the first time."
            ],
        ),
        ("30 2 * * *", "Asia/Bangkok", []),
        ("0 12 * * *", "America/New_York", []),
    ],
)
def test_clock_changes_are_shown_before_saving(
    expression: str, zone: str, notes: list[str]
) -> None:
    """Gaps and overlaps in four zones."""
    found = list(clock_notes(Cron(expression, timezone=zone), a_display(zone), NOW))
    assert found == notes


def test_a_single_time_that_does_not_exist_is_reported() -> None:
    once = Once("2027-03-14T02:30:00", timezone="America/New_York")
    (note,) = clock_notes(once, a_display("America/New_York"), NOW)
    assert "02:30 does not exist" in note
    assert build_preview(once, a_display(), NOW).fires[0].note


def test_a_clock_change_in_the_viewers_zone_is_shown() -> None:
    found = list(
        clock_notes(Cron("0 20 * * *", timezone="Asia/Bangkok"), a_display("Europe/Berlin"), NOW)
    )
    assert found[0] == (
        "Sun 28 Mar 2027: a clock change moves this from 14:00 to 15:00 in your time zone"
        " (Europe/Berlin)."
    )
    often = Cron("*/5 * * * *", timezone="Asia/Bangkok")
    assert list(clock_notes(often, a_display("Europe/Berlin"), NOW)) == []


@pytest.mark.parametrize("expression", ["30 2 * * *", "30 1 * * *", "30 12 * * *"])
def test_both_clock_changes_of_another_zone_are_shown_on_their_day(expression: str) -> None:
    found = list(
        clock_notes(Cron(expression, timezone="America/New_York"), a_display("Asia/Bangkok"), NOW)
    )
    hour = (int(expression.split()[1]) + 12) % 24
    winter, summer = f"{hour:02}:30", f"{hour - 1 if hour else 23:02}:30"
    moved = [note for note in found if "a clock change moves" in note]
    assert moved == [
        f"Sun 14 Mar 2027: a clock change moves this from {winter} to {summer} in your time zone"
        " (Asia/Bangkok).",
        f"Sun 7 Nov 2027: a clock change moves this from {summer} to {winter} in your time zone"
        " (Asia/Bangkok).",
    ]


def test_labels_are_formatted_as_in_the_form() -> None:
    assert value_text("labels", {"from-q": None, "team": "a"}, "en") == "from-q, team=a"
    assert value_text("labels", {}, "en") == "–"


def test_run_counts_respect_max_runs() -> None:
    def counts(trigger: Trigger) -> tuple[int, int, bool]:
        shown = build_preview(trigger.anchored(NOW), a_display(), NOW)
        return shown.per_day, shown.per_month, shown.more

    assert counts(Every("15m")) == (96, 2880, False)
    assert counts(Every("15m", max_runs=10)) == (10, 10, False)
    holidays = [{"holidays": "TH"}]
    assert counts(Cron("* * * * *", exclude=holidays))[2] is True
    assert counts(Once("2027-01-01T00:00:00Z")) == (0, 0, False)


def test_retry_times() -> None:
    policy = Policy(max_retries=3, retry_backoff=timedelta(seconds=10))
    assert retry_times(policy, NOW) == tuple(NOW + timedelta(seconds=s) for s in (10, 20, 30))
    grows = Policy(max_retries=9, retry_backoff=timedelta(seconds=8), backoff=Backoff.EXPONENTIAL)
    first, second, *more = retry_times(grows, NOW)
    assert timedelta(seconds=16) <= second - first <= timedelta(seconds=18)
    assert len(more) == 3


# --- zones -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("Bangkok", "Asia/Bangkok"),
        ("กรุงเทพ", "Asia/Bangkok"),
        ("曼谷", "Asia/Bangkok"),
        ("BKK", "Asia/Bangkok"),
        ("Thailand", "Asia/Bangkok"),
        ("ไทย", "Asia/Bangkok"),
        ("北京", "Asia/Shanghai"),
        ("EST", "America/New_York"),
        ("Tokyo", "Asia/Tokyo"),
        ("日本", "Asia/Tokyo"),
        ("new york", "America/New_York"),
        ("utc", "UTC"),
        ("Asia/Bangkok", "Asia/Bangkok"),
    ],
)
def test_zones_are_found_by_common_names(text: str, zone: str) -> None:
    assert search_zones(text, "en", NOW)[0].name == zone
    # EST is also an IANA name without daylight saving time: new input is ambiguous.
    assert unique_zone(text, NOW) == (None if text == "EST" else zone)


def test_an_offset_matches_many_zones_with_the_viewers_first() -> None:
    found = search_zones("UTC+7", "th", NOW, KnownZones(mine="Asia/Bangkok"))
    assert (found[0].name, found[0].mine, found[0].offset) == ("Asia/Bangkok", True, "UTC+7")
    assert found[0].place == "กรุงเทพ, ไทย"
    assert len(found) > 3
    assert unique_zone("UTC+7", NOW) is None
    known = KnownZones(mine="Asia/Tokyo", default="UTC", recent=("Europe/Paris",))
    first = search_zones("", "en", NOW, known)
    assert [(each.name, each.mine, each.recent, each.default) for each in first] == [
        ("Asia/Tokyo", True, False, False),
        ("Europe/Paris", False, True, False),
        ("UTC", False, False, True),
    ]
    assert search_zones("nowhere at all", "en", NOW) == ()
    berlin, bangkok = search_zones("berlin", "en", NOW)[0], search_zones("bangkok", "en", NOW)[0]
    assert (berlin.has_dst, bangkok.has_dst) == (True, False)


@pytest.mark.parametrize(
    "expression",
    [
        *("*/5 * * * *", "5 9 * 1 *", "05 09 * * *", "5 24 * * *", "60 9 * * *", "5 9 15 * 1-5"),
        *("5 9 L * 1", "0 5 9 * * *", "@daily", "", "5 9 * * MON", "5 9 * * 7"),
    ],
)
def test_an_expression_without_a_rule_stays_cron(expression: str) -> None:
    assert rule_fields(expression) == {}


# --- descriptions, templates -------------------------------------------------------------------
def test_a_prompt_is_guessed_and_chosen_fields_stay() -> None:
    fields = new_fields("Asia/Bangkok") | {"name": "My own", "overlap": "queue"}
    found = parse_description(
        "ทุกวัน 09:00 สรุปข่าว AI", fields, now=NOW, zone="Asia/Bangkok", lang="th"
    )
    assert (found.fields["kind"], found.fields["prompt"]) == ("agent", "สรุปข่าว AI")
    assert (found.fields["name"], found.fields["overlap"]) == ("My own", "queue")
    assert "name" not in found.guessed


@pytest.mark.parametrize(
    "words",
    [
        "every day at 09:00 send me a message: hello",
        "ทุกวัน 09:00 ส่งข้อความ สวัสดี",
        "每天 09:00 发消息 你好",
    ],
)
def test_a_reminder_becomes_a_message(words: str) -> None:
    found = parse_description(words, new_fields("UTC"), now=NOW, zone="UTC", lang="en")
    assert found.fields["kind"] == "message"
    assert {"kind", "message"} <= set(found.guessed)


def test_without_an_agent_a_prompt_becomes_a_message() -> None:
    words, given = "ทุกวัน 09:00 สรุปข่าว AI", new_fields("UTC")
    found = parse_description(words, given, now=NOW, zone="UTC", lang="th", prompts=False)
    assert (found.fields["kind"], found.fields["message"]) == ("message", "สรุปข่าว AI")
    # The prompt field keeps the text.
    assert found.fields["prompt"] == "สรุปข่าว AI"


def test_every_template_makes_a_valid_schedule() -> None:
    for language in ("en", "th", "zh"):
        for offer in list_templates(language):
            trigger = trigger_from_dict(dict(offer.trigger)).with_default_zone("Asia/Bangkok")
            fields = with_template(new_fields("UTC"), offer, trigger, "Asia/Bangkok")
            if offer.target is None:
                fields["url"] = "https://example.com/"
            found = definition_of(fields, NOW, is_edit=False)
            assert not found.errors
            assert ScheduleIn.model_validate(found.body).trigger.next_after(NOW), offer.id


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        ({"rule": "daily"}, "5 9 * * *"),
        ({"rule": "weekdays"}, "5 9 * * 1-5"),
        ({"rule": "weekly", "rule_days": "1,3"}, "5 9 * * 1,3"),
        ({"rule": "nth", "rule_nth": "2", "rule_weekday": "2"}, "5 9 * * 2#2"),
        ({"rule": "nth", "rule_nth": "last", "rule_weekday": "0"}, "5 9 * * 0L"),
        ({"rule": "monthly", "rule_date": "15"}, "5 9 15 * *"),
        ({"rule": "last"}, "5 9 L * *"),
        ({"rule": "last_working"}, "5 9 LW * *"),
    ],
)
def test_calendar_rules_become_cron(rule: dict[str, str], expression: str) -> None:
    assert rule_fields(expression).items() >= rule.items()
    assert rule_expression({"rule_time": "09:05", **rule}) == expression
    assert Cron(expression).next_after(NOW)


def test_in_two_hours() -> None:
    plain = trigger_body({"when": "once", "in": "2h", "zone": "Asia/Bangkok"}, NOW)
    assert trigger_from_dict(plain).next_after(NOW) == NOW + timedelta(hours=2)
    with pytest.raises(InvalidInput) as error:
        trigger_body({"when": "once", "in": "soon"}, NOW)
    assert error.value.field == "in"


# --- snippets ------------------------------------------------------------------------------------
BODY = {
    "name": "it's a name",
    "trigger": {"kind": "cron", "expression": "0 9 * * 1-5", "timezone": "Asia/Bangkok"},
    "target": {
        "kind": "http",
        "url": "https://example.com/a b",
        "method": "PUT",
        "headers": {"X-A": "b c"},
        "body": "x'y",
        "expected_status": [],
        "signing_secrets": [],
        "verify_tls": True,
    },
    "policy": {"max_retries": 3, "timeout": "PT10S"},
    "labels": {"team": "billing", "nightly": None},
    "enabled": False,
    "depends_on": None,
    "delivery": [{"channel": "inbox", "to": "", "on": ["failure"], "language": ""}],
}


def test_the_command_is_accepted_by_the_cli(capsys: pytest.CaptureFixture[str]) -> None:
    command = as_command(BODY)
    assert command.complete
    words = shlex.split(command.text)
    assert run([*words[1:], "--dry-run", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["target"]["headers"] == {"X-A": "b c"}
    assert ScheduleIn.model_validate(made) == ScheduleIn.model_validate(
        {name: value for name, value in BODY.items() if name != "depends_on"}
        | {"target": {name: BODY["target"][name] for name in made["target"]}}
    )


def test_an_incomplete_command_is_marked() -> None:
    assert not as_command({**BODY, "depends_on": {"schedule_id": "x", "within": "PT1H"}}).complete
    assert not as_command({**BODY, "trigger": {**BODY["trigger"], "max_runs": 3}}).complete
    assert not as_command({**BODY, "policy": {"backoff": "fixed"}}).complete


def test_yaml_and_curl_contain_the_schedule() -> None:
    (found,) = yaml.safe_load(as_yaml(BODY))["schedules"]
    wanted, read = ScheduleIn.model_validate(BODY), ScheduleIn.model_validate(found)
    assert {name: getattr(read, name) for name in ScheduleIn.model_fields} == {
        name: getattr(wanted, name) for name in ScheduleIn.model_fields
    }
    data = shlex.split(as_curl(BODY, "http://localhost:7100").replace("\\\n", " "))[-1]
    assert json.loads(data) == found


# --- merge -------------------------------------------------------------------------------------
def test_only_what_changed_is_sent() -> None:
    after = {**BODY, "name": "x", "target": {**BODY["target"], "method": "GET"}}
    found = diff(BODY, after)
    assert [each.path for each in found] == ["name", "target.method"]
    assert patch_of(found, after) == {"name": "x", "target": {"method": "GET", "kind": "http"}}
    same = {**BODY, "trigger": {**BODY["trigger"], "dialect": "auto"}}
    assert diff(BODY, same) == ()


def test_changes_of_different_fields_are_merged() -> None:
    mine = {**BODY, "name": "mine", "policy": {**BODY["policy"], "timeout": "PT20S"}}
    theirs = {**BODY, "name": "theirs", "policy": {**BODY["policy"], "max_retries": 9}}
    found = merge(BODY, mine, theirs)
    assert found.body["policy"] == {"max_retries": 9, "timeout": "PT20S"}
    assert [(each.path, each.mine, each.theirs) for each in found.conflicts] == [
        ("name", "mine", "theirs")
    ]
    assert merge(BODY, mine, mine).conflicts == ()


def test_fields_of_a_schedule_round_trip() -> None:
    shown = {**BODY, "priority": 0, "policy": {"max_retries": 3, "burst_allowed": False}}
    fields = fields_of(shown, "Asia/Tokyo")
    found = definition_of(fields, NOW, is_edit=True).body
    assert found["trigger"] == BODY["trigger"]
    assert found["labels"] == BODY["labels"]
    assert found["enabled"] is False


def test_kinds_without_fields_of_their_own_are_edited_as_json() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    for trigger in (
        {
            "kind": "rrule",
            "rule": "FREQ=DAILY",
            "dtstart": "2030-01-01T09:00:00",
            "timezone": "UTC",
        },
        {"kind": "business_day", "day": -1, "at": "09:00", "timezone": "Asia/Bangkok"},
        {"kind": "any", "of": [{"kind": "cron", "expression": "H 9 * * *", "timezone": "UTC"}]},
        {
            "kind": "cron",
            "expression": "H H * * *",
            "timezone": "UTC",
            "jitter": "5m",
            "spread": "10m",
            "exclude": [{"calendar": "bank"}, {"ranges": [["2030-12-24", "2030-12-26"]]}],
        },
    ):
        assert trigger_body(trigger_fields(trigger, "UTC"), now) == trigger
    for text in ("", "{", "[]"):
        with pytest.raises(InvalidInput) as caught:
            trigger_body({"when": "json", "trigger_json": text}, now)
        assert caught.value.field == "trigger_json"
