"""Import of crontabs: schedules, HTTP calls and errors."""

from __future__ import annotations

import pytest

from chimes.errors import InvalidInput
from chimes.services.schedules.crontab import (
    MAX_LINES,
    crontab_lines,
    is_crontab,
    parse_http_command,
)

CRONTAB = r"""
SHELL=/bin/sh
# Daily report
0 9 * * 1-5 curl -fsS -X PUT -H 'X-A: b' https://example.com/report > /dev/null 2>&1
CRON_TZ=Asia/Tokyo

@daily wget -qO- "https://example.com/ping?d=\%F"
*/5 * * * * /usr/local/bin/backup.sh --all
61 * * * * curl https://example.com
@reboot curl https://example.com
0 0 * * *
0 0 * * * date +%F | curl https://example.com
"""


def test_lines_become_schedules_or_errors() -> None:
    lines = {line.number: line for line in crontab_lines(CRONTAB, zone="Asia/Bangkok")}
    assert lines[4].definition == {
        "name": "Daily report",
        "trigger": {
            "kind": "cron",
            "expression": "0 9 * * 1-5",
            "timezone": "Asia/Bangkok",
        },
        "target": {
            "kind": "http",
            "url": "https://example.com/report",
            "method": "PUT",
            "headers": {"X-A": "b"},
        },
    }
    daily = lines[7].definition
    assert daily is not None
    assert daily["name"] == "GET https://example.com/ping?d=%F"
    assert daily["trigger"] == {
        "kind": "cron",
        "expression": "@daily",
        "timezone": "Asia/Tokyo",
    }
    assert lines[2].note is not None, "SHELL is a setting of the shell"
    assert "a shell command" in lines[8].error
    assert "0–59" in lines[9].error
    assert "@reboot" in lines[10].error
    assert "five fields" in lines[11].error
    assert "%" in lines[12].error


def test_other_commands_go_to_a_task() -> None:
    text = "0 3 * * * root /usr/local/bin/backup.sh --all"
    (line,) = crontab_lines(text, zone="UTC", task="shell", users=True)
    assert line.definition is not None
    assert line.definition["target"] == {
        "kind": "task",
        "name": "shell",
        "args": {"command": "/usr/local/bin/backup.sh --all"},
    }


def test_unknown_zones_and_oversized_crontabs_are_rejected() -> None:
    with pytest.raises(InvalidInput):
        crontab_lines("0 9 * * * curl https://example.com", zone="Nowhere/At_All")
    with pytest.raises(InvalidInput):
        crontab_lines("\n" * (MAX_LINES + 1), zone="UTC")
    (line,) = crontab_lines("TZ=Nowhere", zone="UTC")
    assert line.error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CRONTAB, True),
        ("@hourly curl https://example.com", True),
        ("schedules:\n- name: x\n", False),
        ("- name: 0 9 * * *\n", False),
        ("name: x\ntrigger: {kind: cron}\n", False),
        ("# nothing\n", False),
    ],
)
def test_is_crontab(text: str, expected: bool) -> None:
    assert is_crontab(text) is expected


@pytest.mark.parametrize(
    ("command", "target", "policy"),
    [
        (
            "curl example.com",
            {"kind": "http", "url": "http://example.com", "method": "GET"},
            {},
        ),
        (
            "/usr/bin/curl --json '{\"a\": 1}' -m 30 --retry 2 -o /dev/null https://example.com",
            {
                "kind": "http",
                "url": "https://example.com",
                "method": "POST",
                "headers": {"Content-Type": "application/json", "Accept": "application/json"},
                "body": '{"a": 1}',
            },
            {"timeout": "30s", "max_retries": 2},
        ),
        (
            "curl -kI -u anna:secret https://example.com",
            {
                "kind": "http",
                "url": "https://example.com",
                "method": "HEAD",
                "headers": {"Authorization": "Basic YW5uYTpzZWNyZXQ="},
                "verify_tls": False,
            },
            {},
        ),
        (
            "wget -q -t 3 --post-data=a=1 https://example.com 2>/dev/null",
            {
                "kind": "http",
                "url": "https://example.com",
                "method": "POST",
                "headers": {"Content-Type": "application/x-www-form-urlencoded"},
                "body": "a=1",
            },
            {"max_retries": 2},
        ),
    ],
)
def test_curl_and_wget_commands_become_http_targets(
    command: str, target: dict[str, object], policy: dict[str, object]
) -> None:
    found = parse_http_command(command)
    assert found is not None
    assert (found.target, found.policy) == (target, policy)


@pytest.mark.parametrize(
    "command",
    [
        "curl https://example.com | sh",
        "curl https://example.com && true",
        "curl https://example.com; true",
        "curl --proxy x https://example.com",
        "curl -Z https://example.com",
        "curl -d @file https://example.com",
        "curl -X",
        "curl -s",
        "curl -H broken https://example.com",
        "curl https://example.com https://example.org",
        "curl 'https://example.com",
        "wget -t many https://example.com",
    ],
)
def test_unsupported_options_are_rejected(command: str) -> None:
    with pytest.raises(InvalidInput):
        parse_http_command(command)


def test_other_programs_are_not_http_calls() -> None:
    assert parse_http_command("/usr/local/bin/backup.sh") is None
    assert parse_http_command("") is None
