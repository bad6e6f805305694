"""Store commands, `config show` and `doctor` on PostgreSQL and MariaDB.

Tests request `store_url` before `cli`, which removes the variables that locate the test servers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.cli.conftest import Cli
from tests.servers import MARIADB, POSTGRES, shared

SECRET = "sw0rdf1sh-in-the-url"


@pytest.fixture(params=[POSTGRES, MARIADB], ids=lambda kind: kind.name)
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database and a user with a password in the URL."""
    server = shared(request.param)
    url = server.new_database()
    parts = urlsplit(url)
    user = f"u{uuid.uuid4().hex[:12]}"
    database = parts.path.strip("/")
    if request.param is POSTGRES:
        server.admin(f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{SECRET}'")
    else:
        server.admin(f"CREATE USER {user}@'%' IDENTIFIED BY '{SECRET}'")
        server.admin(f"GRANT ALL ON `{database}`.* TO {user}@'%'")
    netloc = f"{user}:{SECRET}@{parts.netloc.rpartition('@')[2]}"
    yield urlunsplit(parts._replace(netloc=netloc))
    server.drop_database(url)


def test_the_password_is_never_shown(store_url: str, cli: Cli, tmp_path: Path) -> None:
    at = {"CHIMES_STORE": store_url}
    port = urlsplit(store_url).port
    unreachable = store_url.replace(SECRET, "wrong-one").replace(f":{port}/", ":1/")
    seen = [
        cli("config", "show", **at),
        cli("config", "show", "--json", **at),
        cli("store", "migrate", **at),
        cli("store", "status", **at),
        cli("store", "status", "--json", **at),
        cli("doctor", **at),
        cli("doctor", "--json", **at),
        cli("add", "@hourly", "--http", "http://127.0.0.1:8080/", "--yes", **at),
        cli("ls", **at),
        cli("store", "export", str(tmp_path / "out.jsonl"), **at),
        cli("store", "copy-to", "json:///copy", "--yes", **at),
        cli("store", "copy-to", store_url, "--yes", **at),
        cli("store", "status", "--store", unreachable),
    ]
    assert [each.code for each in seen] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 7], [
        each.err for each in seen
    ]
    for each in seen:
        assert SECRET not in each.out + each.err
        assert "wrong-one" not in each.out + each.err
    assert SECRET not in (tmp_path / "out.jsonl").read_text()
    assert "***" in seen[0].out


def test_export_import_and_copy_on_a_database_server(
    store_url: str, cli: Cli, tmp_path: Path
) -> None:
    source, out = f"sqlite:///{tmp_path}/a.db", tmp_path / "out.jsonl"
    made = cli(
        *("add", "@hourly", "--http", "http://127.0.0.1:8080/", "--yes", "-q"),
        CHIMES_STORE=source,
    )
    assert made.code == 0, made.err
    moved = cli("store", "copy-to", store_url, "--yes", "--store", source)
    assert moved.code == 0, moved.err
    again = cli("store", "copy-to", store_url, "--yes", "--store", source)
    assert "0 of them new" in again.err
    assert cli("store", "export", str(out), "--store", store_url).code == 0
    assert cli("store", "import", str(out), "--store", f"sqlite:///{tmp_path}/b.db").code == 0
    [shown] = json.loads(cli("ls", "--json", CHIMES_STORE=f"sqlite:///{tmp_path}/b.db").out)
    assert shown["id"] == made.out.strip()
    status = json.loads(cli("store", "status", "--json", "--store", store_url).out)
    assert (status["kind"], status["schedules"]) == (urlsplit(store_url).scheme, 1)


def test_doctor_checks_a_database_server_without_changes(store_url: str, cli: Cli) -> None:
    def checks() -> dict[str, dict[str, str]]:
        found = cli("doctor", "--json", CHIMES_STORE=store_url)
        return {each["id"]: each for each in json.loads(found.out)}

    before = checks()
    assert {"store", "isolation", "schema", "store clock"} <= set(before)
    assert before["schema"]["state"] == "ok"
    assert "empty" in before["schema"]["detail"]
    assert "empty" in checks()["schema"]["detail"]
    assert cli("store", "migrate", CHIMES_STORE=store_url).code == 0
    assert checks()["schema"]["detail"].startswith("schema ")


def test_doctor_reports_problems_of_a_database_server(cli: Cli) -> None:
    for scheme in ("postgresql", "mariadb"):
        found = cli("doctor", "--json", CHIMES_STORE=f"{scheme}://u:hush@127.0.0.1:1/db")
        by_name = {each["id"]: each for each in json.loads(found.out)}
        assert found.code == 9
        assert by_name["store"]["state"] == "problem"
        assert "hush" not in found.out + found.err
