"""`chimes completion` and `chimes help`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chimes.cli import completion
from chimes.cli.command import COMMANDS
from chimes.cli.completion import schedule_names, zone_names
from tests.cli.conftest import Cli, Server, environment


def complete(cli: Cli, capsys: pytest.CaptureFixture[str], words: str, **more: str) -> list[str]:
    """The values that the completion of a shell gets."""
    count = str(len(words.split(" ")) - 1)
    variables = {"_CHIMES_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    with pytest.raises(SystemExit):
        cli(**variables, **more)
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]


def test_commands_options_zones_and_names(
    cli: Cli,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert complete(cli, capsys, "chimes maint") == ["maintenance"]
    assert complete(cli, capsys, "chimes maintenance o") == ["on", "off"]
    assert "--until" in complete(cli, capsys, "chimes maintenance on --u")
    assert complete(cli, capsys, "chimes next x --tz asia/bang") == ["Asia/Bangkok"]
    monkeypatch.setattr(completion, "_TIMEOUT", 30.0)
    url = {"CHIMES_URL": server.url}
    made = cli("add", "@daily", "--http", "http://127.0.0.1:9/", "--name", "Zebra Report", **url)
    assert made.code == 0, made.err
    for command in ("show", "why", "pause", "run"):
        assert complete(cli, capsys, f"chimes {command} zeb", **url) == ["zebra-report"]
    assert cli("show", "zebra-report", "--json=name", **url).code == 0
    assert complete(cli, capsys, "chimes show zebra-rep", **url) == ["zebra-report"]
    id_ = cli("show", "zebra-report", "-q", **url).out.strip()
    assert id_ in complete(cli, capsys, f"chimes show {id_[:20]}", **url)
    # Also behind more names than are listed.
    monkeypatch.setattr(completion, "_MAX_NAMES", 1)
    cli("add", "@daily", "--http", "http://127.0.0.1:9/", "--name", "Aardvark", **url)
    assert complete(cli, capsys, "chimes show zeb", **url) == ["zebra-report"]
    assert complete(cli, capsys, "chimes show zeb", CHIMES_URL="http://127.0.0.1:1") == []


def test_powershell(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli(
            _CHIMES_COMPLETE="powershell_complete",
            COMP_WORDS="chimes maintenance o",
            COMP_INCOMPLETE="o",
        )
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows] == ["on", "off"]
    script = cli("completion", "powershell").out
    assert "Register-ArgumentCompleter -Native -CommandName chimes" in script


def test_every_shell_has_a_script(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish", "powershell"):
        found = cli("completion", shell)
        assert (found.code, "_CHIMES_COMPLETE" in found.out) == (0, True), shell
    assert cli("completion", "tcsh").code == 2


def test_bash_uses_the_script(tmp_path: Path) -> None:
    """A real bash, with the real command."""
    scripts = Path(sys.executable).parent
    bash = shutil.which("bash")
    assert bash is not None
    program = (
        'eval "$(chimes completion bash)"; COMP_WORDS=(chimes maintenance o); COMP_CWORD=2;'
        ' _chimes_completion chimes; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", program],
        cwd=tmp_path,
        env=environment(PATH=f"{scripts}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["on", "off"], done.stderr


def test_values_without_a_server() -> None:
    assert "Europe/Berlin" in zone_names("europe/")
    assert zone_names("nowhere") == []
    assert schedule_names("http://127.0.0.1:1", "") == []
    assert schedule_names("not a url", "") == []


def test_help_of_a_command(cli: Cli) -> None:
    assert cli("help").out == cli("--help").out
    assert cli("help", "store", "backup").out == cli("store", "backup", "--help").out
    wrong = cli("help", "backfil")
    assert (wrong.code, "Did you mean backfill?" in wrong.err) == (2, True)
    assert cli("help", "ls", "more").code == 2


def test_manual_page(cli: Cli, tmp_path: Path) -> None:
    page = cli("help", "--man").out
    assert page.startswith(".TH CHIMES 1")
    for name in COMMANDS:
        assert f".SS chimes {name}".replace("-", "\\-") in page, name
    lines = page.splitlines()
    requests = {line.split()[0] for line in lines if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi"}
    if man := shutil.which("man"):
        (tmp_path / "chimes.1").write_text(page)
        shown = subprocess.run(
            [man, "--warnings", "-l", str(tmp_path / "chimes.1")],
            env=environment(MANPAGER="cat", MANWIDTH="100"),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert "chimes maintenance on" in shown.stdout
