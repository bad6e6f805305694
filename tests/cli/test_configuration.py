"""`config show`, `config path`, `doctor`."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from chimes.config import load_settings
from tests.cli.conftest import Cli, Server


def test_config_show_prints_origins(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "chimes.yaml").write_text("log_level: debug\n")
    found = cli("config", "show", "--store", "json", DEFAULT_TIMEOUT="1m30s")
    rows = {row[0]: row[1:] for row in found.rows}
    assert rows["store"] == [f"json:///{tmp_path}/data", "flag --store"]
    assert rows["default_timeout"] == ["1m30s", "environment DEFAULT_TIMEOUT"]
    assert rows["log_level"] == ["debug", "file chimes.yaml"]
    assert rows["host"] == ["127.0.0.1", "default"]
    assert rows["roles"][0] == "api,scheduler,worker"


def test_config_show_hides_secrets(cli: Cli) -> None:
    for format in ([], ["--json"], ["--ndjson"]):
        found = cli("config", "show", *format, CHIMES_ADMIN_TOKEN="swordfish")
        assert found.code == 0
        assert "swordfish" not in found.out + found.err
        assert "***" in found.out


@pytest.mark.parametrize(
    "variable",
    [
        "CHIMES_SMTP_URL",
        "CHIMES_AGENT_URL",
        "CHIMES_AGENT_CALLBACK_URL",
        "CHIMES_TELEGRAM_API_URL",
        "CHIMES_TELEGRAM_WEBHOOK_URL",
    ],
)
def test_config_show_hides_passwords_in_urls(cli: Cli, variable: str) -> None:
    url = "https://anna:swordfish@mail.example.org:465/x"
    for format in ([], ["--json"]):
        found = cli("config", "show", *format, **{variable: url})
        assert found.code == 0
        assert "swordfish" not in found.out + found.err
        assert "anna:***@mail.example.org:465" in found.out
    assert load_settings(environ={variable: url}).secrets == ("swordfish",)


def test_config_path_prints_the_file_in_use(cli: Cli, tmp_path: Path) -> None:
    assert cli("config", "path").out == ""
    (tmp_path / "chimes.yaml").write_text("port: 1\n")
    assert cli("config", "path").out == f"{tmp_path}/chimes.yaml\n"


def doctor_checks(cli: Cli, *arguments: str, **variables: str) -> dict[str, dict[str, str]]:
    found = cli("doctor", "--json", *arguments, **variables)
    return {each["id"]: each for each in json.loads(found.out)}


def test_doctor_without_problems(cli: Cli) -> None:
    found = cli("doctor")
    assert found.code == 0
    assert {row[0] for row in found.rows} == {"✓"}
    names = [row[1] for row in found.rows]
    assert names == [
        *(
            "python",
            "packages",
            "time zones",
            "configuration",
            "server",
            "store",
            "secrets",
            "clock",
            "disk",
        )
    ]
    assert "No problems" in found.err


def test_doctor_reports_a_broken_configuration_with_9(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "chimes.yaml").write_text("prot: 1\n")
    found = cli("doctor")
    assert found.code == 9
    assert "did you mean port?" in found.out
    assert "1 problem" in found.err


def test_doctor_finds_another_program_on_the_port(cli: Cli) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

        thread = threading.Thread(target=answer)
        thread.start()
        found = cli("doctor", "--json", CHIMES_PORT=port)
        thread.join()
    assert found.code == 9
    server = next(each for each in json.loads(found.out) if each["id"] == "server")
    assert server["state"] == "problem"
    assert "--port" in server["fix"]


def test_doctor_warns_about_unknown_variables(cli: Cli) -> None:
    found = doctor_checks(cli, CHIMES_STOER="json")
    assert found["environment"]["state"] == "warning"
    assert found["environment"]["fix"] == "did you mean CHIMES_STORE?"


def test_doctor_checks_store_and_server(cli: Cli, server: Server) -> None:
    data = str(server.directory / "data")
    found = doctor_checks(cli, "--data-dir", data, CHIMES_URL=server.url)
    assert "is running at" in found["server"]["detail"]
    assert "schema" in found["store"]["detail"]
    assert "in step with the server" in found["clock"]["detail"]
    # Other tests may leave schedules on this server that lack a setting.
    del found["schedules"]
    assert {each["state"] for each in found.values()} == {"ok"}


def test_doctor_warns_about_a_memory_store(cli: Cli) -> None:
    assert doctor_checks(cli, "--store", "memory")["store"]["state"] == "warning"


def test_doctor_reports_a_store_that_cannot_be_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"not a database at all, far from it" * 100)
    found = cli("doctor", "--store", "sqlite:///x.db")
    assert found.code == 9
    assert "✕\tstore" in found.out
