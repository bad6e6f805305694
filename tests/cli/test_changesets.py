"""`apply`, `export`, `edit`, `set`, `duplicate`, and names that several schedules have."""

from __future__ import annotations

import json
import re
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from tools.schedule_schema import FILE, schema_text

from tests.cli.conftest import Cli, Server, spawn

FIRST = """\
schedules:
  nightly:
    trigger: {kind: cron, expression: "0 2 * * *", timezone: Asia/Bangkok}
    target: {url: "http://127.0.0.1:9/hook"}
    policy: {timeout: 30s}
    labels: [night]
  weekly:
    trigger: {kind: cron, expression: "0 9 * * 1", start_at: 2026-01-01T00:00:00Z}
    target: {kind: message, text: "Stand up\\n\\nTen minutes"}
"""


@pytest.fixture(autouse=True)
def a_store(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local store, which may be created by the first command."""
    monkeypatch.setenv("CHIMES_STORE", "sqlite:///jobs.db")


def names(cli: Cli) -> list[str]:
    return sorted(row[1] for row in cli("ls").rows)


def version(cli: Cli, name: str) -> int:
    found: int = json.loads(cli("show", name, "--json").out)["version"]
    return found


def test_apply_shows_a_plan_and_needs_consent(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(FIRST)
    refused = cli("apply", "-f", "jobs.yaml")
    assert refused.code == 2
    assert "+ nightly" in refused.out
    assert "    policy.timeout: PT30S" in refused.out
    assert re.search(r"fires: adds 7 until 20\d\d-", refused.out)
    assert "2 to create, 0 to update, 0 to delete, 0 unchanged." in refused.err
    assert "Use --yes" in refused.err
    assert names(cli) == []
    assert cli("apply", "-f", "jobs.yaml", "--dry-run").code == 0
    assert cli("apply", "-f", "jobs.yaml", "--dry-run", "--detailed-exitcode").code == 2
    assert names(cli) == []
    done = cli("apply", "-f", "jobs.yaml", "--yes")
    assert (done.code, names(cli)) == (0, ["nightly", "weekly"])
    again = cli("apply", "-f", "jobs.yaml", "--detailed-exitcode", "--dry-run")
    assert (again.code, again.out) == (0, "")
    assert "Nothing to do." in again.err
    assert cli("apply", "-f", "jobs.yaml").code == 0

    file.write_text(FIRST.replace("0 2 * * *", "0 3 * * *"))
    changed = cli("apply", "-f", "jobs.yaml", "--json", "--yes")
    answer = json.loads(changed.out)
    assert answer["applied"]
    # Six between the two times of a day: the fire at the first has passed, that at the second not.
    assert answer["plan"][0]["fires"]["moved"] in (6, 7)
    assert "trigger.expression: 0 2 * * * → 0 3 * * *" in changed.err
    file.write_text(FIRST.partition("  weekly")[0].replace("0 2 * * *", "0 3 * * *"))
    assert cli("apply", "-f", "jobs.yaml").code == 0
    pruned = cli("apply", "-f", "jobs.yaml", "--prune", "--yes")
    assert "- weekly" in pruned.out
    assert re.search(r"fires: drops 1 until 20\d\d-", pruned.out)
    assert names(cli) == ["nightly"]


def test_a_directory_is_one_origin(cli: Cli, tmp_path: Path) -> None:
    directory = tmp_path / "jobs"
    (directory / "team").mkdir(parents=True)
    one, two = directory / "a.yaml", directory / "team" / "b.yml"
    one.write_text(FIRST.partition("  weekly")[0])
    two.write_text("schedules:\n  weekly:" + FIRST.partition("  weekly:")[2])
    (directory / ".hidden.yaml").write_text("not: read")
    assert cli("apply", "-f", "jobs", "--yes").code == 0
    made = json.loads(cli("show", "weekly", "--json").out)
    assert made["declared"] == {"at": "jobs", "kind": "file", "detached": False}
    assert made["target"]["text"] == "Stand up\n\nTen minutes"
    two.write_text(FIRST)
    found = cli("apply", "-f", "jobs", "--yes")
    assert found.code == 2
    assert "'nightly' is in two files" in found.err
    two.write_text("port: 1\nschedules: {}\n")
    found = cli("apply", "-f", "jobs", "--yes")
    assert found.code == 2
    assert "only has the section" in found.err
    two.unlink()
    assert cli("apply", "-f", "jobs", "--prune", "--yes", "--origin", "elsewhere").code == 0
    assert names(cli) == ["nightly", "weekly"]
    assert cli("apply", "-f", "jobs", "--prune", "--yes").code == 0
    assert names(cli) == ["nightly"]


def test_every_error_of_a_file_is_listed_and_nothing_is_applied(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    broken = FIRST.replace("30s", "soon").replace('text: "Stand', 'txt: "Stand')
    file.write_text(broken)
    found = cli("apply", "-f", "jobs.yaml", "--yes")
    assert found.code == 6
    assert names(cli) == []
    assert "schedules.nightly.policy.timeout" in found.err
    assert "/schedules/weekly/target/txt: txt is not a known field" in found.err
    for text, says in [
        ("schedules: [1]", "schedules by name"),
        ("schedules: {1: {}}", "quotes"),
        ("schedules: {a: {}, a: {}}", "duplicate key"),
        ("schedules: {a: &x {}, b: *x}", "alias"),
        ("schedules:\n  a: {trigger: 5, target: {}}", "/schedules/a/target"),
        ("schedule: {}", "did you mean schedules?"),
    ]:
        file.write_text(text)
        found = cli("apply", "-f", "jobs.yaml", "--yes")
        assert found.code in (2, 6), (text, found.err)
        assert says in found.err, (text, found.err)
    assert cli("apply", "-f", "nowhere.yaml").code == 2


def test_a_configuration_has_sources_and_schedules(cli: Cli, tmp_path: Path) -> None:
    sources = (
        "sources: {shop: {driver: command, config: {command: ['true']},"
        " collections: [{name: orders, schedule: '@hourly'}]}}\n"
    )
    (tmp_path / "chimes.yaml").write_text("log_level: debug\n" + sources + FIRST)
    found = cli("apply", "--dry-run")
    assert found.code == 0, found.err
    assert "shop/orders" in found.out
    assert "+ nightly" in found.out
    found = cli("apply", "--yes", "--json")
    assert {each["what"] for each in json.loads(found.out)["sources"]} == {"created"}
    assert names(cli)[:2] == ["nightly", "shop/orders"]
    assert cli("apply", "--prune").code == 0
    (tmp_path / "chimes.yaml").write_text("log_level: debug\n")
    assert cli("apply", "--prune").code == 2


def test_export_and_apply_have_nothing_to_do(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(FIRST)
    cli("apply", "-f", "jobs.yaml", "--yes")
    cli("add", "every 10m", "--http", "http://127.0.0.1:9/", "--header", "X-Api-Key: s3", "-y")
    assert cli("export", "-f", "out.yaml").code == 0
    text = (tmp_path / "out.yaml").read_text()
    assert text == cli("export").out
    assert "text: |-\n        Stand up\n" in text
    assert "s3" not in text
    jsonschema_rs.validate(json.loads(FILE.read_text()), yaml.safe_load(text))
    found = cli("apply", "-f", "out.yaml")
    assert found.code == 0
    assert "1 schedule equals the file but was not made from it" in found.err
    assert "the schedules are marked" in cli("apply", "-f", "out.yaml", "--yes").err
    assert yaml.safe_load(cli("export", "weekly", "--full").out)["schedules"].keys() == {"weekly"}
    assert version(cli, "weekly") == 1


def test_the_schema_is_that_of_the_code(cli: Cli, tmp_path: Path) -> None:
    """If it differs: `python -m tools.schedule_schema`."""
    assert FILE.read_text() == schema_text()
    assert cli("config", "schema").out == schema_text()
    schema = jsonschema_rs.validator_for(json.loads(FILE.read_text()))
    given = yaml.safe_load(FIRST.replace("2026-01-01T00:00:00Z", "'2026-01-01T00:00:00Z'"))
    assert schema.is_valid(given)
    nightly = given["schedules"]["nightly"]
    for broken in (
        nightly | {"policy": {"timeot": "30s"}},
        nightly | {"lables": []},
        nightly | {"name": "other"},
        nightly | {"trigger": {"kind": "cron"}},
        {"trigger": nightly["trigger"]},
    ):
        assert not schema.is_valid({"schedules": {"nightly": broken}}), broken


def an_editor(tmp_path: Path, *commands: str) -> str:
    """An editor that runs sed commands on the file, and keeps a copy of what it got."""
    script = tmp_path / "editor.sh"
    lines = [f"cp \"$1\" '{tmp_path}/opened'", *(f"sed -i '{each}' \"$1\"" for each in commands)]
    script.write_text("\n".join(["#!/bin/sh", "set -e", *lines]))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@pytest.fixture
def made(cli: Cli) -> str:
    found = cli(
        *("add", "0 9 * * *", "--tz", "Asia/Bangkok", "--name", "report", "--retry", "1"),
        *("--http", "http://127.0.0.1:9/", "--header", "X-Api-Key: s3cret", "-y", "-q"),
    )
    assert found.code == 0
    return found.out.strip()


def kept_file(text: str) -> Path:
    return Path(text.partition("Your text is in ")[2].split()[0].rstrip("."))


def test_edit_saves_what_the_editor_wrote(cli: Cli, tmp_path: Path, made: str) -> None:
    editor = an_editor(tmp_path, "s/0 9/0 10/", "s/max_retries: 1/max_retries: 4/")
    refused = cli("edit", "report", EDITOR=editor)
    assert refused.code == 2
    assert version(cli, "report") == 1
    assert "s3cret" not in (tmp_path / "opened").read_text()
    # Six between the two times of a day, as above.
    assert re.search(r"fires: (adds 1, )?(drops 1, )?moves [67] until 20\d\d-", refused.err)
    kept = kept_file(refused.err)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    saved = cli("edit", "report", "--file", str(kept), "--yes", "--json")
    assert saved.code == 0, saved.err
    assert "policy.max_retries: 1 → 4" in saved.err
    kept.unlink()
    after = json.loads(saved.out)
    assert (after["id"], after["version"], after["policy"]["max_retries"]) == (made, 2, 4)
    unchanged = cli("edit", "report", EDITOR=an_editor(tmp_path))
    assert unchanged.code == 0
    assert "Nothing to do." in unchanged.err
    # A field that is removed has its default; a renamed schedule keeps its id.
    editor = an_editor(tmp_path, "/max_retries/d", "s/^name: .*/name: daily/")
    assert cli("edit", made, "--yes", VISUAL=editor, EDITOR="false").code == 0
    after = json.loads(cli("show", "daily", "--json").out)
    assert (after["id"], after["policy"]["max_retries"]) == (made, 3)


def test_edit_needs_a_terminal_or_a_program(cli: Cli, made: str) -> None:
    """Otherwise it would wait for an editor that no person sees."""
    refused = cli("edit", made, VISUAL="", EDITOR="")
    assert refused.code == 2
    assert "no terminal" in refused.err
    assert "--file" in refused.err


def test_edit_keeps_the_text_after_an_error(cli: Cli, tmp_path: Path, made: str) -> None:
    for command, says in [
        ("s/max_retries: 1/max_retries: many/", "policy.max_retries"),
        ("s/^policy:/polcy:/", "polcy"),
        ("s/^name: .*/name: [/", "not valid YAML"),
        ("s/0 9 . . ./99 9 * * */", "minute"),
    ]:
        found = cli("edit", "report", "--yes", EDITOR=an_editor(tmp_path, command))
        assert found.code in (2, 6), (command, found.err)
        assert says in found.err, (command, found.err)
        kept = kept_file(found.err)
        assert kept.read_text() != (tmp_path / "opened").read_text()
        kept.unlink()
    assert version(cli, "report") == 1
    assert cli("edit", "report", EDITOR="no-such-editor").code == 2
    assert "ended with exit code 1" in cli("edit", "report", EDITOR="false").err
    assert cli("edit", "nobody", EDITOR="false").code == 3


def test_edit_shows_a_change_that_came_in_between(cli: Cli, server: Server, tmp_path: Path) -> None:
    """The editor itself changes the schedule over the API, as another user would."""
    url = {"CHIMES_URL": server.url}
    add = ("add", "0 9 * * *", "--name", "contended", "--message", "hi", "-y", "-q")
    made = cli(*add, **url).out.strip()
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import json, sys, urllib.request\n"
        f"call = urllib.request.Request('{server.url}/api/v1/schedules/{made}', method='PATCH',\n"
        "    data=json.dumps({'priority': -7}).encode(),\n"
        "    headers={'Content-Type': 'application/json'})\n"
        "urllib.request.urlopen(call)\n"
        "text = open(sys.argv[1]).read()\n"
        "open(sys.argv[1], 'w').write(text.replace('hi', 'hello'))\n"
    )
    found = cli("edit", made, "--yes", EDITOR=f"{sys.executable} {editor}", **url)
    assert found.code == 5, found.err
    assert "changed the schedule while you edited it" in found.err
    assert "priority: 0 → -7" in found.err
    kept = kept_file(found.err)
    assert "text: hello" in kept.read_text()
    shown = json.loads(cli("show", made, "--json", **url).out)
    assert (shown["priority"], shown["target"]["text"]) == (-7, "hi")
    kept.unlink()
    assert cli("rm", made, "-y", **url).code == 0


def test_set_changes_fields_of_any_part(cli: Cli, made: str) -> None:
    found = cli(
        *("set", "report", "policy.timeout=45s", "labels.team=a", "enabled=true", "--json"),
        *("target.headers.X-Day=5", "trigger=every 2h"),
    )
    assert found.code == 0, found.err
    after = json.loads(found.out)
    assert after["policy"]["timeout"] == "PT45S"
    assert after["labels"] == {"team": "a"}
    assert after["trigger"]["every"] == "PT2H"
    assert after["target"]["headers"] == {"X-Api-Key": "***", "X-Day": "5"}
    assert "policy.timeout: PT10S → PT45S" in found.err
    assert "fires: adds" in found.err
    # A schedule that fires very often shortens the period.
    assert cli("set", "report", "trigger=every 1s", "--json").code == 0
    shorter = cli("set", "report", "policy.max_retries=2", "--dry-run")
    until = re.search(r"    no fire changes until (\S+)\n", shorter.out + shorter.err)
    assert until is not None
    assert datetime.fromisoformat(until[1]) < datetime.now(UTC) + timedelta(days=1)
    assert cli("set", "report", "trigger=every 2h", "--json").code == 0
    assert cli("set", "report", "--unset", "labels.team", "--dry-run").code == 0
    assert version(cli, "report") == 4
    assert "Nothing to do." in cli("set", "report", "policy.timeout=45s").err
    assert json.loads(cli("set", made, "--unset", "labels.team", "--json").out)["labels"] == {}
    for arguments, code, says in [
        (["policy.time=1s"], 6, "timeout"),
        (["policy.timeout=0s"], 6, "timeout"),
        (["priority"], 2, "KEY=VALUE"),
        ([], 2, "KEY=VALUE"),
        (["trigger=whenever"], 6, ""),
    ]:
        found = cli("set", "report", *arguments)
        assert found.code == code, (arguments, found.err)
        assert says in found.err, (arguments, found.err)
    assert version(cli, "report") == 5


def test_duplicates_warn_and_ambiguous_names_say_when_and_what(cli: Cli, made: str) -> None:
    copy = cli("duplicate", "report", "--paused", "--json")
    assert json.loads(copy.out)["name"] == "report (2)"
    assert copy.err.count("Warning") == 0
    same = cli("duplicate", "report", "--name", "report", "-q")
    assert "Warning: the owner has another schedule of this name" in same.err
    second = same.out.strip()
    cli("set", second, "trigger=@hourly", "target.url=http://127.0.0.1:9/other")
    found = cli("show", "report")
    assert found.code == 2
    assert "2 schedules match" in found.err
    lines = found.err.splitlines()
    assert any(made in each and "at 09:00" in each and "9/;" not in each for each in lines)
    assert any(second in each and "Every hour" in each and "9/other" in each for each in lines)
    problem = json.loads(cli("show", "report", "--json").err.splitlines()[-1])
    assert {each["id"] for each in problem["candidates"]} == {made, second}
    found = cli("add", "@daily", "--message", "x", "--name", "report", "-y", "-q")
    assert "Warning: the owner has another schedule" in found.err
    assert cli("export").code == 5


def test_apply_reaches_a_server_with_the_same_rules(server: Server, tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(FIRST)
    env = {"CHIMES_URL": server.url}
    space = ("--namespace", "files-test", "--yes")
    done = spawn("apply", "-f", "jobs.yaml", *space, cwd=tmp_path, env=env)
    assert done.code == 0
    assert "Applied." in done.err
    exported = spawn("export", "--namespace", "files-test", cwd=tmp_path, env=env)
    assert yaml.safe_load(exported.out)["schedules"]["nightly"]["namespace"] == "files-test"
    (tmp_path / "jobs.yaml").write_text("schedules:\n")
    done = spawn("apply", "-f", "jobs.yaml", "--prune", *space, cwd=tmp_path, env=env)
    assert done.code == 0
    assert done.out.count("- ") == 2
