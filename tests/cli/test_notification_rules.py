"""`chimes routing`, `chimes silence` and `chimes message-templates` on the local store."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli

STORE = {"CHIMES_STORE": "sqlite:///a.db"}
ADD = ("add", "0 9 * * *", "--http", "http://127.0.0.1:9/x", "--name", "r", "--label", "team=web")
RULES = """
rules:
  - name: Web
    labels: {team: web}
    on: [failure]
    recipients:
      - {channel: slack, to: "https://hooks.slack.com/services/T0/B0/abcdEFGH"}
"""


def test_routing_is_set_shown_and_tested(cli: Cli, tmp_path: Path) -> None:
    assert cli(*ADD, **STORE).code == 0
    (tmp_path / "routing.yaml").write_text(RULES)
    done = cli("routing", "set", "-f", "routing.yaml", **STORE)
    assert (done.code, "1 rules, version 1" in done.err) == (0, True), done
    shown = cli("routing", "show", **STORE).out
    assert "https://hooks.slack.com/services/***" in shown
    # What is shown can be set again; the address keeps its token.
    (tmp_path / "routing.yaml").write_text(shown)
    assert cli("routing", "set", "-f", "routing.yaml", **STORE).code == 0
    assert json.loads(cli("routing", "show", "--json", **STORE).out)["version"] == 2
    stale = cli("routing", "set", "-f", "routing.yaml", **STORE)
    assert (stale.code, "version 2, not 1" in stale.err) == (5, True)
    found = cli("routing", "test", "r", **STORE)
    assert [row[0] for row in found.rows] == ["slack"]
    none = cli("routing", "test", "r", "--status", "succeeded", **STORE)
    assert (none.out, "No recipient" in none.err) == ("", True)
    (tmp_path / "bad.yaml").write_text("just words")
    assert cli("routing", "set", "-f", "bad.yaml", **STORE).code == 2


def test_silences_are_added_listed_and_ended(cli: Cli) -> None:
    assert cli(*ADD, **STORE).code == 0
    assert "Nothing is silenced." in cli("silence", "ls", **STORE).err
    added = cli("silence", "add", "r", "--until", "in 2h", "--json", **STORE)
    (by_name,) = json.loads(added.out)
    assert by_name["schedule"]
    assert cli("silence", "add", "--label", "team=web", "--until", "in 2h", **STORE).code == 0
    assert cli("silence", "add", "--all", "--until", "in 2h", **STORE).code == 0
    listed = cli("silence", "ls", **STORE)
    assert {row[1] for row in listed.rows} == {by_name["schedule"], "team=web", "*"}
    assert cli("silence", "rm", by_name["id"], **STORE).code == 0
    assert cli("silence", "rm", by_name["id"], **STORE).code == 3
    assert len(cli("silence", "ls", "-q", **STORE).out.split()) == 2
    assert cli("silence", "add", "--until", "in 2h", **STORE).code == 2
    assert cli("silence", "add", "--all", "--until", "2h ago", **STORE).code == 6


def test_message_templates_are_set_shown_and_previewed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text('templates: [{on: failure, text: "{{error}}!"}]')
    done = cli("message-templates", "set", "-f", "t.yaml", **STORE)
    assert (done.code, "1 templates" in done.err) == (0, True), done
    assert "'{{error}}!'" in cli("message-templates", "show", **STORE).out
    preview = ("message-templates", "preview", "--text")
    shown = cli(*preview, "{{schedule_name}} is {{status}}: {{error}}", **STORE)
    assert "Morning report is failed: HTTP 503" in shown.out
    wrong = cli(*preview, "{{eror}}", **STORE)
    assert (wrong.code, "did you mean {{error}}?" in wrong.err) == (6, True), wrong
