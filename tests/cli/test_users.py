"""`user`: users of the dashboard."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli

PASSWORD = "correct horse battery\n"


@pytest.fixture
def set_stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_users_are_created_changed_and_removed(cli: Cli, set_stdin: Callable[[str], None]) -> None:
    set_stdin(PASSWORD)
    made = cli("user", "create", "anna", "--role", "admin", "--password-stdin")
    assert (made.code, made.out.strip()) == (0, "anna")
    set_stdin(PASSWORD)
    again = cli("user", "create", "anna", "--password-stdin")
    assert again.code == 5
    assert cli("user", "change", "anna", "--role", "viewer").code == 0
    [row] = json.loads(cli("user", "list", "--json").out)
    assert (row["name"], row["role"]) == ("anna", "viewer")
    assert "password" not in row
    assert cli("user", "change", "anna").code == 2
    assert cli("user", "change", "nobody", "--role", "viewer").code == 3
    assert cli("user", "remove", "anna", "--yes").code == 0
    assert json.loads(cli("user", "list", "--json").out) == []


def test_password_comes_from_stdin_and_has_a_minimum_length(
    cli: Cli, set_stdin: Callable[[str], None]
) -> None:
    set_stdin("")
    assert cli("user", "create", "anna").code == 2
    set_stdin("short\n")
    short = cli("user", "create", "anna", "--password-stdin")
    assert short.code == 6
    assert "10" in short.err
