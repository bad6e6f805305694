"""The store, keys, and `serve`, with and without a server."""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import stat
import sys
from pathlib import Path

import pytest

from chimes.cli.output import Progress
from chimes.cli.store.commands import MigrationProgress
from tests.cli.conftest import Cli, Server, spawn

FAR = ("0 9 1 1 *", "--http", "http://x.example/")
STORES = ["sqlite:///one.db", "json:///one"]


def add_schedule(cli: Cli, store: str, name: str = "Far away") -> str:
    found = cli("add", *FAR, "--name", name, "-q", CHIMES_STORE=store)
    assert found.code == 0, found.err
    return found.out.strip()


@pytest.mark.parametrize("store", STORES)
def test_without_a_server_the_configured_store_is_used(cli: Cli, store: str) -> None:
    made = add_schedule(cli, store)
    found = cli("ls", CHIMES_STORE=store)
    assert [row[0] for row in found.rows] == [made]
    assert "No server at" in found.err
    assert json.loads(cli("show", "far-away", "--json", CHIMES_STORE=store).out)["id"] == made
    assert cli("pause", made, CHIMES_STORE=store).code == 0
    run = cli("run", made, "-q", CHIMES_STORE=store)
    assert run.code == 0
    assert "starts when a server is running" in run.err
    assert cli("run", made, "--wait", CHIMES_STORE=store).code == 7
    assert [row[1] for row in cli("runs", CHIMES_STORE=store).rows] == ["queued"]
    assert cli("rm", made, "--yes", CHIMES_STORE=store).code == 0
    assert cli("show", made, CHIMES_STORE=store).code == 3


def test_unused_store_setting_is_reported(cli: Cli, server: Server, tmp_path: Path) -> None:
    there = {"CHIMES_PORT": server.url.rpartition(":")[2]}
    expected = (
        f"Using the server at {server.url} instead of the configured store. "
        "Set CHIMES_URL to choose another server, or stop this one.\n"
    )
    found = cli("ls", "-q", CHIMES_STORE="sqlite:///one.db", **there)
    assert (found.code, found.err) == (0, expected)
    assert not (tmp_path / "one.db").exists()
    assert cli("ls", "-q", **there).err == ""
    chosen = cli("ls", "-q", CHIMES_STORE="sqlite:///one.db", CHIMES_URL=server.url)
    assert (chosen.code, chosen.err) == (0, "")
    (tmp_path / "chimes.yaml").write_text("store: json\n")
    assert cli("ls", "-q", **there).err == expected
    (tmp_path / "chimes.yaml").write_text("nonsense: 1\n")
    assert (cli("ls", "-q", **there).code, cli("ls", "-q", **there).err) == (0, "")


def test_port_in_use_is_an_error(cli: Cli, server: Server) -> None:
    port = server.url.rpartition(":")[2]
    found = cli("serve", "--port", port, "--store", "memory")
    assert found.code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in found.err
    assert (
        "choose another port with --port or CHIMES_PORT, or stop the process that uses it"
        in found.err
    )


def test_existing_store_in_the_data_directory_is_used(cli: Cli, tmp_path: Path) -> None:
    assert cli("ls").code == 7
    assert cli("store", "migrate").code == 0
    assert (tmp_path / "data/chimes.db").exists()
    assert cli("ls").code == 0
    assert cli("ls", CHIMES_URL="http://127.0.0.1:1").code == 7
    assert cli("ls", CHIMES_STORE="memory").code == 7


@pytest.mark.parametrize("store", STORES)
def test_status_creates_nothing(cli: Cli, tmp_path: Path, store: str) -> None:
    missing = cli("store", "status", "--store", store)
    assert missing.code == 3
    assert list(tmp_path.iterdir()) == []
    add_schedule(cli, store)
    rows = dict(cli("store", "status", "--store", store).rows)
    assert rows["kind"] == store.partition(":")[0]
    assert rows["schedules"] == "1"
    assert json.loads(cli("store", "status", "--store", store, "--json").out)["enabled"] == 1


@pytest.mark.parametrize(("first", "second"), [STORES, STORES[::-1]])
def test_export_and_import_copy_everything(
    cli: Cli, tmp_path: Path, first: str, second: str
) -> None:
    made = add_schedule(cli, first)
    assert cli("run", made, CHIMES_STORE=first).code == 0
    assert cli("key", "create", "k", CHIMES_STORE=first).code == 0
    other = second.replace("one", "two")
    done = cli("store", "export", "all.jsonl", "--store", first)
    assert done.code == 0
    assert stat.S_IMODE((tmp_path / "all.jsonl").stat().st_mode) == 0o600
    assert not (tmp_path / "all.jsonl.part").exists()
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["chimes_export"] == 1
    kinds = [json.loads(line)["kind"] for line in lines[1:]]
    assert {"schedule", "run", "key", "audit"} <= set(kinds)
    loaded = cli("store", "import", "all.jsonl", "--store", other)
    assert f"Read {len(kinds)} items, {len(kinds)} of them new" in loaded.err
    again = cli("store", "import", "all.jsonl", "--store", other)
    assert f"Read {len(kinds)} items, 0 of them new" in again.err
    copied = cli("store", "export", "--store", other)
    assert copied.out.splitlines()[1:] == lines[1:]


def test_copy_to_another_store(cli: Cli) -> None:
    made = add_schedule(cli, STORES[0])
    done = cli("store", "copy-to", "json:///copy", "--store", STORES[0])
    assert done.code == 0
    assert "items to json:///" in done.err
    assert cli("ls", "-q", CHIMES_STORE="json:///copy").out.strip() == made
    assert cli("store", "copy-to", STORES[0], "--store", STORES[0]).code == 5
    assert cli("store", "copy-to", "memory://", "--store", STORES[0]).code == 2
    assert cli("store", "copy-to", "oracle://x/y", "--store", STORES[0]).code == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 items"),
        ("nonsense\n", "line 1"),
        ('{"kind": "schedule"}\n', "not an export"),
        ('{"chimes_export": 99}\n', "format 99"),
        ('{"chimes_export": 1}\n{"kind": "cat", "value": {}}\n', "line 2: unknown kind 'cat'"),
        ('{"chimes_export": 1}\n{"kind": "schedule", "value": {}}\n', "line 2"),
        ('{"chimes_export": 1}\n[]\n', "line 2"),
    ],
)
def test_invalid_export_imports_nothing(cli: Cli, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    found = cli("store", "import", "in.jsonl", "--store", STORES[0])
    assert says in found.err
    assert found.code == (6 if text else 0)
    assert (tmp_path / "one.db").exists() is (not text)


def test_unreadable_and_unwritable_files_are_errors(cli: Cli) -> None:
    add_schedule(cli, STORES[0])
    assert cli("store", "import", "nowhere", "--store", STORES[0]).code == 2
    assert cli("store", "export", "no/such/dir/x", "--store", STORES[0]).code == 1


def test_import_from_a_pipe(tmp_path: Path) -> None:
    text = '{"chimes_export": 1}\n'
    found = spawn("store", "import", "-", cwd=tmp_path, stdin=text)
    assert found.code == 0
    assert "Read 0 items" in found.err


def test_keys_are_created_listed_and_revoked(cli: Cli) -> None:
    made = cli("key", "create", "laptop", "--role", "admin", "--expires-in", "P30D")
    assert made.code == 0
    key = made.out.strip()
    prefix, key_id, secret = key.split("_", 2)
    assert (prefix, len(key_id), len(secret)) == ("chm", 12, 43)
    assert "not shown again" in made.err
    listed = cli("key", "list")
    assert [row[:3] for row in listed.rows] == [[key_id, "laptop", "admin"]]
    assert listed.rows[0][4] == "active"
    assert secret not in cli("key", "list", "--json").out
    assert cli("key", "revoke", "laptop").code == 1
    assert cli("key", "revoke", "laptop", "--yes").out.strip() == key_id
    assert cli("key", "list").rows[0][4] == "revoked"
    assert cli("key", "revoke", "laptop", "--yes").code == 3
    assert cli("key", "create", "x", "--owner", "alice").code == 2
    assert cli("key", "create", "x", "--owner", "dog:rex").code == 6
    owned = json.loads(cli("key", "create", "x", "--owner", "user:alice", "--json").out)
    assert owned["owner"] == {"type": "user", "id": "alice"}
    assert owned["key"].startswith("chm_")


# Exit code 4: authentication or permission.
def test_server_with_keys_requires_one(cli: Cli, tmp_path: Path) -> None:
    admin = cli("key", "create", "a", "--role", "admin", CHIMES_DATA_DIR="data").out.strip()
    viewer = cli("key", "create", "v", "--role", "viewer", CHIMES_DATA_DIR="data").out.strip()
    server = Server(tmp_path)
    try:
        url = {"CHIMES_URL": server.url}
        assert cli("ls", **url).code == 4
        assert cli("ls", **url, CHIMES_API_KEY="chm_wrongwrong12_x").code == 4
        assert cli("ls", **url, CHIMES_API_KEY=admin).code == 0
        assert cli("ls", **url, CHIMES_API_KEY=viewer).code == 0
        assert cli("key", "list", **url, CHIMES_API_KEY=viewer).code == 4
        assert cli("add", *FAR, **url, CHIMES_API_KEY=viewer).code == 4
        file = tmp_path / "key"
        file.write_text(admin)
        file.chmod(0o600)
        assert cli("key", "list", "--api-key-file", "key", **url).code == 0
    finally:
        assert server.stop() == 0
    log = server.log.read_text()
    assert admin.split("_", 2)[2] not in log
    assert viewer.split("_", 2)[2] not in log


def test_serve_prints_url_and_data_location(server: Server) -> None:
    text = server.log.read_text()
    assert server.url in text
    assert str(server.directory / "data") in text


# Exit code 5: another process uses the exclusive store.
def test_second_server_on_a_json_store_exits_with_5(cli: Cli, tmp_path: Path) -> None:
    first = Server(tmp_path, "--store", "json")
    try:
        second = spawn("serve", "--store", "json", "--port", "0", cwd=tmp_path)
        assert second.code == 5
        assert cli("store", "status", "--store", "json").code == 5
        assert cli("doctor", "--store", "json", CHIMES_URL=first.url).code == 0
        assert cli("doctor", "--store", "json").code == 9
    finally:
        assert first.stop() == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_serve_needs_a_key_for_public_addresses(cli: Cli, tmp_path: Path, host: str) -> None:
    found = spawn("serve", "--host", host, "--port", "0", cwd=tmp_path)
    assert found.code == 2
    assert "chimes key create" in found.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "http"], "port: expected a whole number"),
        (["--roles", "api,cook"], "roles"),
        (["--store", "oracle://u:swordfish@h/x"], "unknown scheme oracle://"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_serve_rejects_invalid_settings(cli: Cli, arguments: list[str], says: str) -> None:
    found = cli("serve", *arguments)
    assert found.code == 2
    assert says in found.err
    assert "swordfish" not in found.err


# Exit code 9: unsupported schema.
def test_newer_schema_exits_with_9(cli: Cli, tmp_path: Path) -> None:
    import sqlite3

    assert cli("store", "migrate", "--store", "sqlite:///x.db").code == 0
    with sqlite3.connect(tmp_path / "x.db") as connection:
        table = "alembic_version"
        connection.execute(f"UPDATE {table} SET version_num = '9999'")
    connection.close()
    found = cli("store", "status", "--store", "sqlite:///x.db")
    assert found.code == 9


# Exit code 130: interrupted.
def test_interrupt_exits_with_130(sink: str, server: Server, tmp_path: Path) -> None:
    import subprocess

    from tests.cli.conftest import CHIMES, environment, release

    made = spawn(
        *("add", "0 9 1 1 *", "--http", f"{sink}/hold/interrupted", "--timeout", "60s", "-q"),
        cwd=tmp_path,
        env={"CHIMES_URL": server.url},
    )
    process = subprocess.Popen(
        [*CHIMES, "run", made.out.strip(), "--wait"],
        env=environment(CHIMES_URL=server.url),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    runs = ""
    while not runs:
        runs = spawn(
            "runs", made.out.strip(), "-q", cwd=tmp_path, env={"CHIMES_URL": server.url}
        ).out
    # Repeated, because CPython ignores a signal during some clean-ups.
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
            break
    # A shell reports 130 for both: an interrupt during the creation of a class ends CPython by the
    # signal itself, although it was handled.
    _, stderr = process.communicate(timeout=60)
    release("/hold/interrupted")
    assert process.returncode in (130, -signal.SIGINT), stderr.decode()


def test_server_survives_a_closed_log_pipe(tmp_path: Path) -> None:
    import subprocess

    from chimes.cli.backend import HttpBackend
    from tests.cli.conftest import CHIMES, URL, environment

    process = subprocess.Popen(
        [*CHIMES, "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    url = ""
    for line in process.stderr:
        url = url or (found[0] if (found := URL.search(line)) else "")
        if "Press Ctrl-C" in line:
            break
    process.stderr.close()
    backend = HttpBackend(url, "")
    assert backend.connect()
    for _ in range(3):
        assert backend.request("GET", "/api/v1/schedules").status == 200
    backend.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_following_a_log_survives_a_server_restart(cli: Cli, tmp_path: Path, sink: str) -> None:
    import subprocess

    from tests.cli.conftest import CHIMES, environment

    first = Server(tmp_path, "--roles", "api")
    url = {"CHIMES_URL": first.url}
    made = cli("add", "0 9 1 1 *", "--http", sink, "-q", **url).out.strip()
    run = cli("run", made, "-q", **url).out.strip()
    follower = subprocess.Popen(
        [*CHIMES, "logs", run, "-f"],
        env=environment(**url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while f"/api/v1/runs/{run}/logs" not in first.log.read_text():
        assert follower.poll() is None
    assert first.stop() == 0
    second = Server(tmp_path, port=int(first.url.rpartition(":")[2]))
    try:
        _, err = follower.communicate(timeout=60)
        assert (follower.returncode, err) == (0, b"")
        assert [row[1] for row in cli("runs", **url).rows] == ["succeeded"]
    finally:
        assert second.stop() == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_conversion_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with MigrationProgress() as quick:
        quick("runs", 100, 400)
    assert terminal.getvalue() == ""
    monkeypatch.setattr(Progress, "_AFTER", 0.0)
    monkeypatch.setattr(Progress, "_EVERY", 0.0)
    with MigrationProgress() as progress:
        for step, done, total in (
            ("schedules", 0, 0),
            # Continues in the middle.
            ("runs", 100, 400),
            ("runs", 200, 400),
            ("runs", 400, 400),
        ):
            progress(step, done, total)
    shown = terminal.getvalue()
    assert "Converted 0 schedules" in shown
    bars = re.findall(r"Converted 400 runs ([█░]{30}) (\d+)/400", shown)
    assert [(bar.count("█"), int(done)) for bar, done in bars] == [(7, 100), (15, 200), (30, 400)]
