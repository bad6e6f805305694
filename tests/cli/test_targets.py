"""`add --task|--flow`, `runs --parent`, `nodes`, `templates` against a real `serve --app`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from chimes.client import Client
from tests.cli.conftest import Cli, Server
from tests.client.conftest import APP


@pytest.fixture(scope="module")
def app_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("app-server")
    (directory / "client_app.py").write_text(APP)
    started = Server(directory, "--app", "client_app:app")
    yield started
    assert started.stop() == 0


def test_a_task_is_scheduled_and_shown(cli: Cli, app_server: Server) -> None:
    at = {"CHIMES_URL": app_server.url}
    made = cli(
        *("add", "0 2 * * *", "--task", "greet", "--arg", "name=Ada", "--arg", "times=2"),
        *("--args", '{"times": 9, "token": "hush"}', "--yes", "--json"),
        **at,
    )
    assert made.code == 0, made.err
    shown = json.loads(made.out)
    assert shown["name"] == "task greet"
    assert shown["target"] == {
        "kind": "task",
        "name": "greet",
        "args": {"times": 2, "token": "***", "name": "Ada"},
    }
    details = cli("show", shown["id"], **at)
    assert 'task greet {"times": 2' in details.out
    assert "hush" not in details.out
    listed = cli("ls", "task greet", **at)
    assert [row[1] for row in listed.rows] == ["task greet"]


def test_a_command_is_split_like_a_shell_does_it(cli: Cli) -> None:
    shown = cli(
        *("add", "every night at 2", "--command", "backup.sh --all 'two words'", "--cwd", "/srv"),
        *(
            "--env",
            "LEVEL=full",
            "--success-code",
            "0",
            "--success-code",
            "3",
            "--kill-after",
            "5s",
        ),
        *("--require", "zone=eu", "--user", "backup", "--stdin", "yes", "--dry-run", "--json"),
    )
    assert shown.code == 0, shown.err
    made = json.loads(shown.out)
    assert made["name"] == "backup.sh --all 'two words'"
    assert made["trigger"]["expression"] == "0 2 * * *"
    assert made["target"] == {
        "kind": "command",
        "command": ["backup.sh", "--all", "two words"],
        "cwd": "/srv",
        "env": {"LEVEL": "full"},
        "success_codes": [0, 3],
        "kill_after": "PT5S",
        "requires": {"zone": "eu"},
        "user": "backup",
        "stdin": "yes",
    }
    shell = cli("add", "@hourly", "--shell", "date | tee x", "--dry-run", "--json")
    assert json.loads(shell.out)["target"] == {"kind": "command", "shell": "date | tee x"}
    for arguments, words in (
        (("--command", "a", "--shell", "b"), "either --command or --shell"),
        (("--command", "'a"), "not closed"),
        (("--http", "http://a/", "--cwd", "/srv"), "--cwd cannot be used with --http"),
        (("--command", "a", "--env", "A"), "--env must be NAME=VALUE"),
    ):
        refused = cli("add", "@hourly", *arguments, "--dry-run")
        assert refused.code == 2, arguments
        assert words in refused.err, arguments


def test_a_flow_is_scheduled_and_its_steps_listed(cli: Cli, app_server: Server) -> None:
    at = {"CHIMES_URL": app_server.url}
    made = cli(
        *("add", "@yearly", "--flow", "pipeline", "--input", '{"source": "x"}'),
        *("--yes", "-q"),
        **at,
    )
    assert made.code == 0, made.err
    ran = cli("run", made.out.strip(), "--wait", "--json", **at)
    assert ran.code == 0, ran.err
    parent = json.loads(cli("runs", made.out.strip(), "--json", **at).out)[0]
    steps = cli("runs", "--parent", parent["id"], **at)
    assert sorted(row[2] for row in steps.rows) == ["load", "total"]
    assert {row[6] for row in steps.rows} == {"child"}
    with Client(app_server.url) as client:
        handle = client.enqueue("greet", {"name": "Bo"})
        handle.result(30)
    mine = [row for row in cli("runs", **at).rows if row[0] == handle.id]
    assert mine[0][2] in ("greet", 'task greet {"name": "Bo"}')


@pytest.mark.parametrize("name", ["os:system", "../evil.py"])
def test_malformed_task_is_exit_6(cli: Cli, app_server: Server, name: str) -> None:
    found = cli("add", "@hourly", "--task", name, "--yes", CHIMES_URL=app_server.url)
    assert found.code == 6


@pytest.mark.parametrize("name", ["nobody.knows", "grett"])
def test_task_that_no_node_offers_is_a_warning(cli: Cli, app_server: Server, name: str) -> None:
    found = cli("add", "@hourly", "--task", name, "--yes", CHIMES_URL=app_server.url)
    assert found.code == 0, found.err
    assert f"Warning: no running node offers the task '{name}': its runs wait" in found.err
    assert ("did you mean greet?" in found.err) == (name == "grett")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--http", "http://h/", "--task", "greet"],
        ["--task", "greet", "--input", "{}"],
        ["--task", "greet", "--header", "a: b"],
        ["--flow", "pipeline", "--arg", "a=1"],
        ["--task", "greet", "--arg", "novalue"],
        ["--task", "greet", "--args", "[1]"],
        ["--flow", "pipeline", "--input", "{"],
    ],
)
def test_conflicting_options_are_rejected(cli: Cli, options: list[str]) -> None:
    found = cli("add", "@hourly", *options, "--yes", "--dry-run")
    assert found.code == 2, found.err


def test_arguments_are_parsed_as_json(cli: Cli) -> None:
    given = [
        "n=5",
        "ok=true",
        "text=plain words",
        "nothing=null",
        "list=[1]",
        'quoted="5"',
        "eq=a=b",
    ]
    options = [part for each in given for part in ("--arg", each)]
    found = cli("add", "@hourly", "--task", "t", *options, "--dry-run", "--json")
    assert json.loads(found.out)["target"]["args"] == {
        "n": 5,
        "ok": True,
        "text": "plain words",
        "nothing": None,
        "list": [1],
        "quoted": "5",
        "eq": "a=b",
    }


def test_nodes_command_lists_nodes(cli: Cli, app_server: Server) -> None:
    at = {"CHIMES_URL": app_server.url}
    [row] = cli("nodes", **at).rows
    assert row[1] == "alive"
    assert row[2] == "api,scheduler,worker"
    assert row[4].endswith(" s")
    [node] = json.loads(cli("nodes", "--json", **at).out)
    assert {"http", "task:greet", "flow:pipeline"} <= set(node["offers"])
    assert abs(node["clock_offset_seconds"]) < 5
    assert cli("nodes", "-q", **at).out.strip() == node["id"]


def test_templates_need_no_server(cli: Cli) -> None:
    rows = cli("templates").rows
    assert len(rows) == 16
    assert [(row[0], row[1]) for row in rows[:4]] == [
        ("Hourly", "@hourly"),
        ("Daily Midnight", "0 0 * * *"),
        ("Daily 9 AM", "0 9 * * *"),
        ("Weekly Monday 8 AM", "0 8 * * 1"),
    ]
    thai = json.loads(cli("templates", "--tz", "Asia/Bangkok", "--json").out)
    assert thai[2]["next_fires"][0].endswith("T02:00:00Z")
    assert cli("templates", "--tz", "Asia/Bankok").code == 6
