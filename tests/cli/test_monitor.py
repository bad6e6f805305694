"""`chimes monitor` on a local store; the token is in no file in plain text."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli
from tests.cli.test_secret import files


def test_monitors_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    made = cli(
        *("monitor", "create", "backup", "--cron", "0 2 * * *", "--tz", "Europe/Berlin"),
        *("--grace", "30m", "--tag", "db", "--notify", "inbox:on=failure+recovery"),
    )
    assert made.code == 0, made.err
    url = made.out.strip()
    token = url.rpartition("/ping/")[2]
    assert len(token) == 36
    assert token[12:].encode() not in files(tmp_path)
    shown = json.loads(cli("monitor", "show", "backup", "--json").out)
    assert (shown["status"], shown["grace"], shown["ping_url"]) == ("new", "PT30M", url)
    assert shown["trigger"]["timezone"] == "Europe/Berlin"
    assert shown["delivery"][0]["on"] == ["failure", "recovery"]
    for arguments in (("--start", "--rid", "a"), ("--exit-code", "3", "--rid", "a")):
        assert cli("monitor", "ping", "backup", *arguments).out == "OK\n"
    assert [row[2] for row in cli("monitor", "list", "--status", "down").rows] == ["down"]
    assert cli("monitor", "list", "--status", "up", "-q").out == ""
    pings = json.loads(cli("monitor", "pings", "backup", "--json").out)
    assert [(each["kind"], each["exit_code"]) for each in pings] == [("fail", 3), ("start", None)]
    assert cli("monitor", "ping", "backup").code == 0
    assert cli("monitor", "pause", "backup").out.endswith(" paused\n")
    assert cli("monitor", "resume", "backup").out.endswith(" up\n")
    rotated = cli("monitor", "rotate", "backup").out.strip()
    assert rotated != url
    assert cli("monitor", "create", "x").code == 2
    assert cli("monitor", "create", "x", "--every", "5m", "--at", "12:00").code == 2
    assert cli("monitor", "create", "beat", "--every", "10m", "-q").code == 0
    assert cli("monitor", "create", "words", "--when", "every weekday at 9am").code == 0
    missing = cli("monitor", "show", "bakcup")
    assert missing.code == 4 or missing.code == 3
    assert "backup" in missing.err
    assert cli("monitor", "rm", "beat", "--yes").code == 0
    assert cli("monitor", "show", "beat").code != 0


def test_import_of_healthchecks(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "checks.json"
    check = {"name": "hourly", "timeout": 3600, "grace": 600, "tags": "a b"}
    file.write_text(json.dumps({"checks": [check]}))
    assert cli("monitor", "create", "other", "--every", "1h").code == 0
    plan = cli("monitor", "import", "healthchecks", str(file), "--dry-run", "--json")
    assert plan.code == 0, plan.err
    assert json.loads(plan.out)[0]["action"] == "create"
    assert len(cli("monitor", "list", "-q").rows) == 1
    done = cli("monitor", "import", "healthchecks", str(file), "--yes", "--json")
    assert "/ping/" in json.loads(done.out)[0]["ping_url"]
    again = cli("monitor", "import", "healthchecks", str(file), "--yes", "--json")
    assert json.loads(again.out)[0]["action"] == "skip"
    file.write_text("{")
    assert cli("monitor", "import", "healthchecks", str(file)).code == 2
