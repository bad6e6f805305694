"""`chimes forecast`, `suggest`, `simulate` and `feeds`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

FILE = """
schedules:
  queues:
    trigger: {kind: cron, expression: "0 * * * *", timezone: UTC}
    target: {url: "http://127.0.0.1:9/"}
    policy: {overlap: queue, misfire: all}
  skips:
    trigger: {kind: cron, expression: "*/30 * * * *", timezone: UTC}
    target: {url: "http://127.0.0.1:9/"}
    policy: {misfire: skip}
  hooked:
    trigger: {kind: webhook}
    target: {url: "http://127.0.0.1:9/"}
"""


def test_a_file_is_simulated_without_a_server(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_text(FILE)
    found = cli(
        *("simulate", "--file", str(file), "--days", "1", "--from", "2030-01-01T00:00:00Z"),
        *("--durations", "fixed", "--duration", "45m", "--outage", "2030-01-01T06:50 3h"),
        *("--workers", "5", "--json"),
    )
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    queues = [row for row in answer["runs"] if row["schedule"] == "queues"]
    # Every hour; those of the outage run one after another when the nodes are back, at 09:50.
    assert len(queues) == 24
    started = [row["started_at"][11:16] for row in queues if "07" <= row["slot"][11:13] <= "11"]
    assert started == ["09:50", "10:35", "11:20", "12:05", "12:50"]
    skips = [row for row in answer["runs"] if row["schedule"] == "skips"]
    [missed] = [row for row in skips if row["status"] == "missed"]
    assert (missed["slot"], missed["slots"], missed["reason"]) == (
        "2030-01-01T07:00:00Z",
        6,
        "misfire",
    )
    assert {row["reason"] for row in skips if row["status"] == "skipped"} == {"overlap"}
    assert answer["summary"]["missed"] == 6
    assert answer["summary"]["max_lateness_seconds"] >= 2 * 3600
    assert answer["summary"]["max_concurrent"] == 2
    assert sum(part["started"] for part in answer["timeline"]) == sum(
        row["started_at"] is not None for row in answer["runs"]
    )
    table = cli("simulate", "--file", str(file), "--days", "1", "--outage", "Mon 02:00 3h")
    assert table.code == 0, table.err
    file.write_text("schedules:\n  a: {trigger: {kind: cron}, target: {}}\n")
    assert cli("simulate", "--file", str(file)).code != 0
    assert cli("simulate", "--outage", "3h").code != 0


def test_a_store_is_forecast_simulated_and_published(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHIMES_STORE", "sqlite:///a.db")
    for name in ("one", "two", "three", "four", "five"):
        added = cli("add", "0 2 * * *", "--http", "http://127.0.0.1:9/x", "--name", name, "--yes")
        assert added.code == 0, added.err
    minutes = json.loads(cli("forecast", "--days", "2", "--json").out)["minutes"]
    assert [(row["runs"], row["hot"]) for row in minutes] == [(5, True), (5, True)]
    found = json.loads(cli("suggest", "one", "--json").out)
    assert found["runs"] == 4
    assert found["suggestions"][0]["trigger"]["expression"] == "1 2 * * *"
    assert json.loads(cli("suggest", "0 2 * * *", "--zone", "UTC", "--json").out)["runs"] == 5
    simulated = cli("simulate", "--days", "2", "--json")
    assert simulated.code == 0, simulated.err
    answer = json.loads(simulated.out)
    assert {(row["name"], row["status"]) for row in answer["runs"]} == {
        (name, "succeeded") for name in ("one", "two", "three", "four", "five")
    }
    stored = {each["id"] for each in json.loads(cli("ls", "--json").out)}
    assert {row["schedule"] for row in answer["runs"]} == stored
    made = json.loads(cli("feeds", "create", "--schedule", "one", "--json").out)
    assert made["url"].endswith(".ics")
    assert cli("feeds", "list", "-q").out.split() == [made["id"]]
    assert cli("feeds", "create").code == 2
    assert cli("feeds", "revoke", made["id"]).code == 0
    assert cli("feeds", "revoke", made["id"]).code == 3


def test_a_schedule_ends_after_enough_successes(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "schedules.json"
    ends = {
        "trigger": {"kind": "cron", "expression": "0 * * * *", "timezone": "UTC"},
        "target": {"url": "http://127.0.0.1:9/"},
        "policy": {"end_after_successes": 2},
    }
    file.write_text(json.dumps({"schedules": {"ends": ends}}))
    found = cli("simulate", "--file", str(file), "--from", "2030-01-01T00:30:00Z", "--json")
    assert found.code == 0, found.err
    slots = [row["slot"][11:16] for row in json.loads(found.out)["runs"]]
    assert slots == ["01:00", "02:00"]


def test_hashed_fields_and_shared_calendars_are_simulated_as_planned(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHIMES_STORE", "sqlite:///a.db")
    created = cli("calendar", "create", "closed", "--range", "2030-01-02/2030-12-31")
    assert created.code == 0, created.err
    trigger = {
        "kind": "cron",
        "expression": "H H * * *",
        "timezone": "UTC",
        "exclude": {"calendar": "closed"},
    }
    target = {"url": "http://127.0.0.1:9/"}
    Path("one.yaml").write_text(
        json.dumps({"schedules": {"one": {"trigger": trigger, "target": target}}})
    )
    applied = cli("apply", "-f", "one.yaml", "--yes")
    assert applied.code == 0, applied.err
    planned = json.loads(cli("show", "one", "--json").out)["next_slot"]
    found = cli("simulate", "--from", "2030-01-01T00:00:00Z", "--days", "3", "--json")
    assert found.code == 0, found.err
    [row] = json.loads(found.out)["runs"]
    assert row["slot"] == f"2030-01-01{planned[10:]}"
