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
from tests.tables import each_row

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
            "dst": "vixie",
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
        "dst": "vixie",
    }
    assert 2 not in lines, "SHELL is not worth a line"
    assert lines[8].definition is not None
    assert lines[8].definition["target"] == {
        "kind": "command",
        "shell": "/usr/local/bin/backup.sh --all",
    }
    assert "0–59" in lines[9].error
    assert "@reboot" in lines[10].error
    assert "five fields" in lines[11].error
    piped = lines[12].definition
    assert piped is not None
    assert piped["target"] == {
        "kind": "command",
        "shell": "date +",
        "stdin": "F | curl https://example.com\n",
    }


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
    (line,) = crontab_lines("CRON_TZ=Nowhere", zone="UTC")
    assert line.error


SETTINGS = r"""
PATH = /opt/bin:/usr/bin
HOME="/srv/shop"
MAILTO=ops@example.com, root
0 1 * * * root report.sh > out.txt
MAILTO=""
SHELL=/bin/bash
TZ=Asia/Tokyo
0 2 * * * shop mail -s "100\% done" ada%Hello%%Bye \% end
0 3 * * *	www-data	server.sh &
"""


def test_settings_apply_to_the_lines_below_as_cron_does_it() -> None:
    lines = {line.number: line for line in crontab_lines(SETTINGS, zone="UTC", users=True)}
    first, second, third = (lines[number].definition for number in (5, 9, 10))
    assert first is not None
    assert first["target"] == {
        "kind": "command",
        "shell": "report.sh > out.txt",
        "env": {"PATH": "/opt/bin:/usr/bin", "HOME": "/srv/shop"},
        "cwd": "/srv/shop",
        "user": "root",
    }
    assert first["delivery"] == [{"channel": "email", "to": "ops@example.com", "on": ["failure"]}]
    assert "root" in str(lines[4].notes[0])
    assert second is not None
    assert second["target"] == {
        "kind": "command",
        "command": ["/bin/bash", "-c", 'mail -s "100% done" ada'],
        "env": {
            "PATH": "/opt/bin:/usr/bin",
            "HOME": "/srv/shop",
            "TZ": "Asia/Tokyo",
            "SHELL": "/bin/bash",
        },
        "cwd": "/srv/shop",
        "stdin": "Hello\n\nBye % end\n",
        "user": "shop",
    }
    assert "delivery" not in second
    assert lines[8].notes, "TZ is not the zone of the times"
    assert third is not None
    assert third["target"]["user"] == "www-data"  # type: ignore[index]
    assert "background" in str(lines[10].notes[0])


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
            "/usr/bin/curl --json '{\"a\": 1}' -m 30 --retry 2 --retry-delay 9 https://example.com",
            {
                "kind": "http",
                "url": "https://example.com",
                "method": "POST",
                "headers": {"Content-Type": "application/json", "Accept": "application/json"},
                "body": '{"a": 1}',
            },
            {"timeout": "30s", "max_retries": 2, "retry_backoff": "9s"},
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
            "wget -q -t 3 --post-data=a=1 -O - https://example.com 2>/dev/null",
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


COMMANDS = [
    # Files.
    "wget https://example.com/data.csv",
    "wget -q https://example.com/data.csv",
    "wget --post-data=a=1 https://example.com",
    "wget -O /srv/data.csv https://example.com",
    "wget -qO/srv/data.csv https://example.com",
    "wget --output-document=/srv/data.csv https://example.com",
    "wget -O /srv/data.csv -O - https://example.com",
    "wget --spider -O /srv/data.csv https://example.com",
    "curl -o /srv/data.csv https://example.com",
    "curl -so/srv/data.csv https://example.com",
    "curl --output /srv/data.csv https://example.com",
    "curl --output=/srv/data.csv https://example.com",
    "curl -O https://example.com/data.csv",
    "curl -sSfO https://example.com/data.csv",
    "curl --remote-name https://example.com/data.csv",
    # Redirections.
    "curl https://example.com > /backup/x",
    "curl https://example.com >/backup/x 2>&1",
    "curl https://example.com>/tmp/b",
    "curl https://example.com >> /backup/x",
    "curl https://example.com>>/backup/x",
    "curl https://example.com 2> /tmp/errors",
    "curl https://example.com 2>/tmp/errors >/dev/null",
    "curl https://example.com 2>>/tmp/errors",
    "curl https://example.com &> /tmp/all",
    "curl https://example.com &>/tmp/all",
    "curl 'https://example.com'>/tmp/b",
    "curl https://example.com > /dev/null.txt",
    "curl https://example.com >/dev/null>/tmp/b",
    "curl https://example.com >&/tmp/all",
    "curl https://example.com < /etc/hosts",
    "> /tmp/b curl https://example.com",
    # Variables and substitutions.
    "curl $BASE/tick",
    "curl ${BASE}/tick",
    r'curl "https://example.com?d=$(date +\%F)"',
    "curl https://example.com?d=`date`",
    'curl -H "Authorization: Bearer $TOKEN" https://example.com',
    "curl -d 'day={{slot}}' https://example.com",
    # Operators.
    "curl https://example.com | sh",
    "curl https://example.com|sh",
    "curl https://example.com && true",
    "curl https://example.com&&true",
    "curl https://example.com || true",
    "curl https://example.com; true",
    "curl https://example.com;true",
    "curl https://example.com &",
    "curl https://example.com >/dev/null 2>&1 &",
    "curl https://example.com?a=1&b=2",
    "cd /srv && curl https://example.com",
    "(curl https://example.com)",
    "TOKEN=x curl https://example.com",
    # Several calls.
    "curl https://example.com https://example.org",
    "curl https://example.com/{a,b}",
    "curl 'https://example.com/[1-9]'",
    # Options without a counterpart, or not complete.
    "curl --proxy x https://example.com",
    "curl -Z https://example.com",
    "curl -d @file https://example.com",
    "curl -X",
    "curl -s",
    "curl -H broken https://example.com",
    "curl 'https://example.com",
    "wget -t many -O - https://example.com",
]


@each_row("command", COMMANDS)
def test_lines_that_do_more_than_a_call_stay_commands(command: str) -> None:
    (line,) = crontab_lines(f"0 1 * * * {command}", zone="UTC")
    assert line.definition is not None
    shell = command.replace(r"\%", "%")
    assert line.definition["target"] == {"kind": "command", "shell": shell}


@each_row(
    ("command", "method"),
    [
        ("curl https://example.com/?a=1", "GET"),
        ("curl 'https://example.com/?a=1' > /dev/null", "GET"),
        ('curl "https://example.com/?a=1">/dev/null', "GET"),
        ("curl https://example.com/?a=1 >/dev/null 2>&1", "GET"),
        ("curl https://example.com/?a=1 1>/dev/null 2> /dev/null", "GET"),
        ("curl https://example.com/?a=1 >> /dev/null", "GET"),
        ("curl https://example.com/?a=1 &> /dev/null", "GET"),
        ("curl https://example.com/?a=1 &>/dev/null", "GET"),
        ("curl https://example.com/?a=1 2>&1 >/dev/null", "GET"),
        ("curl -fsS -o /dev/null https://example.com/?a=1", "GET"),
        ("curl -so- --max-time 5 https://example.com/?a=1", "GET"),
        ("curl --output /dev/null https://example.com/?a=1", "GET"),
        ("curl -H 'X: a > b; c | d & e' https://example.com/?a=1", "GET"),
        ("curl -X DELETE https://example.com/?a=1", "DELETE"),
        ("wget -qO- https://example.com/?a=1", "GET"),
        ("wget -O - https://example.com/?a=1", "GET"),
        ("wget -q -O /dev/null https://example.com/?a=1", "GET"),
        ("wget --output-document=/dev/null https://example.com/?a=1", "GET"),
        ("wget -q --spider https://example.com/?a=1", "HEAD"),
    ],
)
def test_lines_that_only_call_become_http_calls(command: str, method: str) -> None:
    (line,) = crontab_lines(f"0 1 * * * {command}", zone="UTC")
    assert line.definition is not None
    target = dict(line.definition["target"])  # type: ignore[call-overload]
    headers = target.pop("headers", {})
    assert target == {"kind": "http", "url": "https://example.com/?a=1", "method": method}
    assert headers == ({"X": "a > b; c | d & e"} if "X:" in command else {})


def test_other_programs_are_not_http_calls() -> None:
    assert parse_http_command("/usr/local/bin/backup.sh") is None
    assert parse_http_command("") is None
