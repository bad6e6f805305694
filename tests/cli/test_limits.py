"""`chimes limits` on a local store."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def a_store(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local store, which may be created by the first command."""
    monkeypatch.setenv("CHIMES_STORE", "sqlite:///a.db")


def test_limits_are_set_listed_and_removed(cli: Cli) -> None:
    made = cli("limits", "set", "api", "--rate", "10/s", "--burst", "20", "--breaker", "5/1m")
    assert (made.code, made.out) == (0, "api\n"), made.err
    shared = cli("limits", "set", "reports", "--concurrency", "3", "--shared", "--json")
    stored = json.loads(shared.out)
    assert (stored["shared"], stored["concurrency"], stored["rate"]) == (True, 3, None)
    add = ("add", "0 9 * * *", "--http", "http://127.0.0.1:9/x", "--yes")
    added = cli(*add, "--name", "limited", "--limit", "api", "--limit", "reports", "--json")
    assert json.loads(added.out)["policy"]["limits"] == ["api", "reports"], added.err
    listed = {row[0]: row[1:] for row in cli("limits", "list").rows}
    assert listed["api"][1:] == ["", "10/s", "20/20", "0", "closed", "limited"]
    assert listed["reports"] == ["all", "0/3", "", "", "0", "", "limited"]
    found = {each["name"]: each for each in json.loads(cli("limits", "list", "--json").out)}
    assert found["api"]["breaker"] == {"failures": 5, "pause": "PT1M"}
    assert cli("limits", "list", "-q").out.split() == ["api", "reports"]
    # Setting replaces all values.
    assert cli("limits", "set", "api", "--concurrency", "2").code == 0
    (api,) = [
        each for each in json.loads(cli("limits", "list", "--json").out) if each["name"] == "api"
    ]
    assert (api["concurrency"], api["rate"], api["breaker"]) == (2, None, None)
    used = cli("limits", "rm", "api")
    assert used.code == 5
    assert "limited" in used.err
    assert cli("rm", "limited", "--yes").code == 0
    assert cli("limits", "rm", "api").out == "api\n"
    assert cli("limits", "rm", "api").code == 3
    assert cli("limits", "rm", "reports").code == 3
    assert cli("limits", "rm", "reports", "--shared").code == 0
    assert cli("limits", "list", "-q").out == ""


def test_wrong_limits_are_refused(cli: Cli) -> None:
    for arguments, code, words in (
        ((), 6, "needs a concurrency, a rate or a breaker"),
        (("--rate", "10"), 6, "is not a rate"),
        (("--burst", "3"), 6, "burst needs a rate"),
        (("--concurrency", "0"), 6, "greater than or equal to 1"),
        (("--concurrency", "many"), 2, "--concurrency"),
        (("--breaker", "often"), 2, "5/1m"),
    ):
        refused = cli("limits", "set", "api", *arguments)
        assert (refused.code, words in refused.err) == (code, True), (arguments, refused)
    assert cli("limits", "list", "-q").out == ""
    add = ("add", "0 9 * * *", "--http", "http://127.0.0.1:9/x", "--yes", "--limit", "nothing")
    unknown = cli(*add)
    assert (unknown.code, "there is no limit 'nothing'" in unknown.err) == (6, True)
