"""`chimes connections list` and `chimes connections test`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from chimes.cli.command import FAILED, NOT_FOUND, OK
from tests.cli.conftest import Cli
from tests.servers.redis_places import empty_redis_url

PASSWORD = "pa55-word"


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A configuration with a Redis server that answers, one that does not, a database and a
    connection whose secret is not stored."""
    redis = empty_redis_url().partition("?")[0]
    connections = {
        "events": {"kind": "redis", "url": redis, "roles": ["member", "admin"]},
        "gone": {"kind": "redis", "url": f"redis://chimes:{PASSWORD}@127.0.0.1:1/0"},
        "hidden": {"kind": "redis", "url": redis.replace("://", "://:{{secret.REDIS}}@")},
        "shop": {"kind": "sql", "url": f"sqlite:///{tmp_path / 'shop.db'}"},
    }
    path = tmp_path / "connections.yaml"
    path.write_text(yaml.safe_dump({"connections": connections}))
    path.chmod(0o600)
    return str(path)


def test_list_shows_names_kinds_and_roles(cli: Cli, file: str) -> None:
    given = {"CHIMES_STORE": "sqlite:///a.db", "CHIMES_CONFIG": file}
    found = cli("connections", "list", **given)
    assert found.code == OK, found.err
    assert [row[:3] for row in found.rows] == [
        ["events", "redis", "member, admin"],
        ["gone", "redis", "admin"],
        ["hidden", "redis", "admin"],
        ["shop", "sql", "admin"],
    ]
    listed = cli("connections", "list", "--json", **given)
    assert [each["name"] for each in json.loads(listed.out)] == ["events", "gone", "hidden", "shop"]
    assert PASSWORD not in found.out + listed.out
    assert cli("connections", "list", CHIMES_STORE="sqlite:///a.db").out == ""


def test_test_says_what_answers_and_why_not(cli: Cli, file: str, tmp_path: Path) -> None:
    store = {"CHIMES_STORE": "sqlite:///a.db"}

    def call(name: str) -> tuple[int, str, str]:
        found = cli("connections", "test", name, "--config", file, **store)
        assert PASSWORD not in found.out + found.err
        return found.code, found.out, found.err

    code, out, err = call("events")
    assert code == OK, err
    assert out.startswith("redis redis://")
    assert "Redis" in out.partition(": ")[2]
    code, out, err = call("gone")
    assert (code, out) == (FAILED, "")
    assert "gone (redis)" in err
    code, _, err = call("hidden")
    assert code == FAILED
    assert "not stored for system:config: REDIS" in err
    code, _, err = call("evnts")
    assert code == NOT_FOUND
    assert "known: events, gone, hidden, shop" in err
    assert "did you mean events?" in err
    # A database that is not there is not created.
    code, _, err = call("shop")
    assert code == FAILED, err
    assert not (tmp_path / "shop.db").exists()
    (tmp_path / "shop.db").touch()
    code, out, _ = call("shop")
    assert (code, out.rpartition(": ")[2]) == (OK, "database answers\n")
    # The environment names the file if no option does.
    assert cli("connections", "test", "events", CHIMES_CONFIG=file, **store).code == OK
