"""`add --action`: an action type of a knowledge network, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    return {"CHIMES_STORE": f"sqlite:///{tmp_path / 'chimes.db'}", "CHIMES_URL": ""}


def test_add_action_with_identities_and_parameters(cli: Cli, store: dict[str, str]) -> None:
    made = cli(
        *("add", "@hourly", "--action", "restart", "--kn", "kn1", "--branch", "dev"),
        *("--identity", '{"id": "pod-1"}', "--identity", '{"id": 2}'),
        *("--param", "force=true", "--param", "why=because", "--account", "u-1:app"),
        *("--yes", "--json"),
        **store,
    )
    assert made.code == 0, made.err
    shown = json.loads(made.out)
    assert shown["name"] == "action restart"
    assert shown["target"] == {
        "kind": "action",
        "action_type_id": "restart",
        "kn_id": "kn1",
        "branch": "dev",
        "identities": [{"id": "pod-1"}, {"id": 2}],
        "params": {"force": True, "why": "because"},
        "account": {"id": "u-1", "type": "app"},
    }
    assert (shown["policy"]["timeout"], shown["policy"]["max_retries"]) == ("PT10M", 3)
    assert "action kn1/restart" in cli("show", shown["id"], **store).out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--action", "restart"], "--kn"),
        (
            ["--kn", "kn1", "--http", "http://h/"],
            "--kn cannot be used with --http; it belongs to --action.",
        ),
        (["--action", "a", "--kn", "k", "--identity", "[1]"], "--identity must be a JSON object"),
        (["--action", "a", "--kn", "k", "--identity", "{"], "--identity is not valid JSON"),
        (["--action", "a", "--kn", "k", "--param", "x"], "NAME=VALUE"),
    ],
)
def test_invalid_action_options_are_rejected(
    cli: Cli, store: dict[str, str], given: list[str], message: str
) -> None:
    found = cli("add", "@daily", *given, "--yes", **store)
    assert (found.code, found.out) == (2, "")
    assert message in found.err
