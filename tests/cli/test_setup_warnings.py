"""Missing settings on the command line: `add`, `deliveries test`, `doctor` and `key create`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chimes.cli.command import FAILED, OK, PROBLEMS
from tests.cli.conftest import Cli, Server, spawn

ADD = ("add", "every day at 09:00", "--http", "http://127.0.0.1:9000/?token=hush")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()


def test_add_warns_and_doctor_reports_a_problem_without_a_server(cli: Cli, tmp_path: Path) -> None:
    store = {"CHIMES_STORE": f"sqlite:///{tmp_path / 'chimes.db'}", "CHIMES_URL": ""}
    plain = cli(*ADD, "--yes", **store)
    assert (plain.code, "Warning" in plain.err, "hush" in plain.out) == (OK, False, False)
    assert cli("doctor", **store).code == OK
    added = cli(*ADD, "--name", "mailing", "--notify", "email:ada@example.com", "--yes", **store)
    assert added.code == OK
    assert "Warning: no node has the channel email: set CHIMES_SMTP_URL" in added.err
    prompt = cli("add", "every day at 09:00", "--agent", "--prompt", "news", "--yes", **store)
    assert "CHIMES_AGENT_PIPELINE" in prompt.err
    found = cli("doctor", "--json", **store)
    assert found.code == PROBLEMS
    texts = [each["detail"] for each in json.loads(found.out) if each["state"] == "problem"]
    assert len(texts) == 2
    assert any(text.startswith("mailing: no node has the channel email") for text in texts)


def test_a_server_fails_the_test_message_and_the_first_key_lists_denied_callbacks(
    started: Server,
) -> None:
    env = {"CHIMES_URL": started.url}

    def chimes(*arguments: str) -> tuple[int, str, str]:
        done = spawn(*arguments, cwd=started.directory, env=env)
        return done.code, done.out, done.err

    code, out, err = chimes("deliveries", "test", "email:ada@example.com")
    assert code == FAILED
    assert "set CHIMES_SMTP_URL and CHIMES_SMTP_FROM" in err
    assert "dead" in out
    assert chimes("deliveries", "test", "inbox:")[0] == OK
    assert chimes("doctor")[0] == OK
    code, _out, err = chimes(*ADD, "--name", "mailing", "--notify", "email:ada@example.com")
    assert (code, "no node has the channel email" in err) == (OK, True)
    assert chimes("doctor")[0] == PROBLEMS
    code, out, err = chimes("key", "create", "--role", "admin", "first")
    assert (code, out.startswith("chm_")) == (OK, True)
    assert "Warning: mailing: 127.0.0.1:9000 is a private address" in err
    assert "egress_allow" in err
