"""Settings of actions, and alternative names of poll interval, lock and timeout."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from chimes.cli.operations.config import setting_rows
from chimes.config import load_settings
from chimes.config.loader import LoadedSettings
from chimes.errors import ConfigError

TOKEN = "Bearer canary-0123456789"


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def from_yaml(text: str, **environ: str) -> LoadedSettings:
    Path("chimes.yaml").write_text(text)
    return load_settings(environ=environ)


ENVIRONMENT = [
    ("CHIMES_SCHEDULE_POLL_INTERVAL", "10s", "poll_interval", timedelta(seconds=10)),
    ("CHIMES_SCHEDULE_POLL_INTERVAL", "10", "poll_interval", timedelta(seconds=10)),
    ("CHIMES_SCHEDULE_LOCK_TIMEOUT", "5m", "lease", timedelta(minutes=5)),
    (
        "CHIMES_SCHEDULE_EXECUTION_TIMEOUT",
        "20m",
        "schedule_execution_timeout",
        timedelta(minutes=20),
    ),
    ("CHIMES_ACTION_URL", "http://svc/{kn_id}", "action_url", "http://svc/{kn_id}"),
    ("CHIMES_ACTION_TIMEOUT", "5s", "action_timeout", timedelta(seconds=5)),
    ("CHIMES_ACTION_HEADERS", f"Authorization: {TOKEN}", "action_headers",
     (("Authorization", TOKEN),)),
    ("CHIMES_ACTION_HEADERS", "A: 1; B-c: 2\nD: x:y", "action_headers",
     (("A", "1"), ("B-c", "2"), ("D", "x:y"))),
    ("CHIMES_ACTION_HEADERS", '{"A": "1;2", "B": "3"}', "action_headers",
     (("A", "1;2"), ("B", "3"))),
    ("CHIMES_INTERNAL_TOKEN", "hush", "internal_token", "hush"),
]  # fmt: skip


@pytest.mark.parametrize(("variable", "given", "field", "wanted"), ENVIRONMENT)
def test_environment_variables(variable: str, given: str, field: str, wanted: object) -> None:
    loaded = load_settings(environ={variable: given})
    assert getattr(loaded.settings, field) == wanted
    assert loaded.origins[field] == f"environment {variable}"


@pytest.mark.parametrize(
    ("text", "field", "wanted", "origin"),
    [
        ("schedule_poll_interval: 10s", "poll_interval", 10, "schedule_poll_interval"),
        ("schedulePollInterval: 10", "poll_interval", 10, "schedulePollInterval"),
        ("schedule_lock_timeout: 5m", "lease", 300, "schedule_lock_timeout"),
        ("scheduleLockTimeout: 300", "lease", 300, "scheduleLockTimeout"),
        ("scheduleExecutionTimeout: 60", "schedule_execution_timeout", 60,
         "scheduleExecutionTimeout"),
        ("schedule_execution_timeout: 1m", "schedule_execution_timeout", 60, ""),
        ("lease: 20s\nschedule_lock_timeout: 5m", "lease", 20, ""),
        ("schedule_lock_timeout: 5m\nlease: 20s", "lease", 20, ""),
        ("scheduleLockTimeout: 7\nschedule_lock_timeout: 5m", "lease", 300,
         "schedule_lock_timeout"),
    ],
)  # fmt: skip
def test_alternative_names_in_the_file(text: str, field: str, wanted: int, origin: str) -> None:
    loaded = from_yaml(text)
    assert getattr(loaded.settings, field) == timedelta(seconds=wanted)
    assert loaded.origins[field] == f"file chimes.yaml {origin}".rstrip()
    row = next(each for each in setting_rows(loaded) if each["id"] == field)
    assert row["origin"] == loaded.origins[field]


def test_lease_takes_precedence_over_schedule_lock_timeout() -> None:
    both = {"CHIMES_LEASE": "20s", "CHIMES_SCHEDULE_LOCK_TIMEOUT": "5m"}
    loaded = from_yaml("schedule_lock_timeout: 10m", **both)
    assert loaded.settings.lease == timedelta(seconds=20)
    assert loaded.origins["lease"] == "environment CHIMES_LEASE"
    del both["CHIMES_LEASE"]
    assert load_settings(environ=both).settings.lease == timedelta(minutes=5)


def test_headers_in_the_file() -> None:
    loaded = from_yaml(f"action_headers:\n  Authorization: {TOKEN}\n  X-Number: 5\n")
    assert loaded.settings.action_headers == (("Authorization", TOKEN), ("X-Number", "5"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scheduleLockTimeout: soon", r"lease: expected a duration.*chimes.yaml scheduleLockTim"),
        ("schedule_lock_timeout: 300", "lease: expected a duration"),
        ("schedule_lock_timeout: 2h", "lease: expected a duration of 1h0m0s or less"),
        ("lease: 20s\nschedule_lock_timeout: never", "lease: expected a duration"),
        ("schedule_lock_timout: 5m", "did you mean schedule_lock_timeout"),
        ("action_headers: [a]", "action_headers: expected headers as"),
        ("action_headers: {'a b': x}", "action_headers: expected headers as"),
        ("action_headers: {a: {b: c}}", "action_headers: expected headers as"),
        ("action_headers: {a: ''}", "action_headers: expected headers as"),
        ("action_headers: {a: x, A: y}", "action_headers: expected no duplicate headers"),
        ('action_headers: "{broken"', "action_headers: expected headers as"),
    ],
)
def test_invalid_headers(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_yaml(text)


def test_headers_and_the_token_are_secrets() -> None:
    loaded = load_settings(
        environ={"CHIMES_ACTION_HEADERS": f"A: {TOKEN}", "CHIMES_INTERNAL_TOKEN": "hush-hush"}
    )
    assert set(loaded.secrets) == {TOKEN, "hush-hush"}
    shown = {row["id"]: row["value"] for row in setting_rows(loaded)}
    assert (shown["action_headers"], shown["internal_token"]) == ("***", "***")
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={"CHIMES_ACTION_HEADERS": "A: hush\x07"})
    assert "hush" not in str(caught.value)
