"""Help, imports and exit codes common to all commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from chimes.cli.command import COMMANDS
from chimes.cli.command import cli as root
from tests.cli.conftest import CHIMES, Cli, environment, spawn
from tests.tables import each_row

HEAVY = (
    "fastapi",
    "sqlalchemy",
    "aiohttp",
    "pydantic",
    "starlette",
    "uvicorn",
    "rich",
    "jinja2",
    "babel",
    "httpx2",
)


def commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    context = click.Context(root)
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for nested in command.list_commands(context):
                child = command.get_command(context, nested)
                assert child is not None
                found.append((f"{name} {nested}", child))
        else:
            found.append((name, command))
    return found


def test_help_opens_with_the_three_most_useful_commands(cli: Cli) -> None:
    found = cli()
    assert found.code == 0
    places = [found.out.index(f"chimes {name}") for name in ("serve", "add", "next")]
    assert places == sorted(places)
    assert list(COMMANDS)[:3] == ["serve", "add", "next"]
    assert cli("--help").out == found.out


@each_row(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_command_has_help_with_an_example(name: str, command: click.Command) -> None:
    assert command.help
    assert f"chimes {name}" in command.help.partition("Examples:")[2]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name == "json_fields":
            assert parameter.help


def test_every_command_is_listed_with_a_line_of_help(cli: Cli) -> None:
    shown = cli("-h")
    for name, found in COMMANDS.items():
        assert found.help in shown.out, (name, shown.code, shown.err)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["version"],
        ["next", "* * * * *"],
        ["explain", "* * * * *"],
        ["ls", "--url", "http://127.0.0.1:1"],
        ["add", "* * * * *", "--http", "http://x.example", "--dry-run"],
        ["config", "show"],
        ["runs", "--url", "http://127.0.0.1:1"],
        ["why", "x", "--url", "http://127.0.0.1:1"],
        ["maintenance", "status", "--url", "http://127.0.0.1:1"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]) or "help",
)
def test_light_commands_import_no_heavy_modules(arguments: list[str], tmp_path: Path) -> None:
    script = (
        "import sys\nfrom chimes.cli.command import run\n"
        f"run({arguments!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "[]"


#: Modules that completion does without: they take a third of its time.
COMPLETION = ("http.client", "ssl", "email", "secrets", "subprocess")
#: Modules that client commands need only for output on a terminal or for times.
MODEL = (
    "msgspec",
    "asyncio",
    "chimes.language.parser",
    "chimes.model.run",
    "chimes.triggers",
    "rich",
)


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["ls"], {}),
        (["runs"], {}),
        (["pause", "x"], {}),
        (["maintenance", "status"], {}),
        ([], {"_CHIMES_COMPLETE": "bash_complete", "COMP_WORDS": "chimes s", "COMP_CWORD": "1"}),
        (
            [],
            {
                "_CHIMES_COMPLETE": "bash_complete",
                "COMP_WORDS": "chimes show x",
                "COMP_CWORD": "2",
            },
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_client_commands_do_not_import_the_model(
    arguments: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    """Before the network they take about 120 ms of CPU time; with the model it was 310 ms. Of a
    completion, two thirds are the import of click."""
    unwanted = (*MODEL, *COMPLETION) if variables else MODEL
    script = (
        "import atexit, sys\nfrom chimes.cli.command import run\n"
        f"show = lambda: print([n for n in {unwanted!r} if n in sys.modules], file=sys.stderr)\n"
        "atexit.register(show)\n"
        f"run({arguments!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(CHIMES_URL="http://127.0.0.1:1", **variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "[]"


#: One of each module with client commands, beside those above.
CLIENT_COMMANDS = (
    "version", "show x", "edit x", "set x priority=1", "duplicate x", "export", "run x", "logs x",
    "upcoming", "inbox", "deliveries", "audit", "nodes", "key list", "user list", "secret list",
    "proposals list", "limits list", "monitor list", "routing show", "silence ls",
    "message-templates show",
)  # fmt: skip


def test_no_client_command_imports_the_model(tmp_path: Path) -> None:
    """All of them in one process, so that the first one that does is named."""
    unwanted = (*HEAVY, *MODEL)
    script = (
        "import sys\nfrom chimes.cli.command import run\n"
        f"for words in {CLIENT_COMMANDS!r}:\n"
        "    try: run(words.split())\n"
        "    except SystemExit: pass\n"
        f"    found = [name for name in {unwanted!r} if name in sys.modules]\n"
        "    if found: sys.exit(f'{words}: {found}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(CHIMES_URL="http://127.0.0.1:1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    assert done.stderr.count("127.0.0.1:1") >= len(CLIENT_COMMANDS) - 1


def test_importing_the_command_line_does_not_import_click(tmp_path: Path) -> None:
    script = "import sys, chimes.cli; print([m for m in ('click', 'json') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_script_and_modules_start_the_same_command(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("chimes")
    for command in ([str(script)], CHIMES, [sys.executable, "-m", "chimes"]):
        done = subprocess.run(
            [*command, "--version"], env=environment(), capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("chimes ")


def test_groups_know_both_spellings(cli: Cli) -> None:
    """`chimes user list` and `chimes silence ls` are there; people write the other one."""
    for words in (("user", "ls"), ("user", "rm"), ("silence", "list"), ("list",)):
        found = cli(*words, "--help")
        assert found.code == 0, words
        assert "Usage: chimes" in found.out
    assert cli("monitor", "lsit").code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nxt"], "Did you mean next?"),
        (["strore", "status"], "Did you mean store?"),
        (["store", "migrat"], "Did you mean migrate?"),
        (["ls", "--jsn"], "--json"),
        (["show"], "SCHEDULE"),
        (["runs", "--limit", "many"], "--limit"),
        (["rm"], "SCHEDULES"),
    ],
)
def test_usage_error_has_exit_code_2_and_a_suggestion(
    cli: Cli, arguments: list[str], says: str
) -> None:
    found = cli(*arguments)
    assert found.code == 2
    assert says in found.err
    assert found.out == ""


@pytest.mark.parametrize("given", [["--api-key", "chm_secret"], ["--api-key=chm_secret"]])
@pytest.mark.parametrize("command", [["ls"], ["serve"], ["key", "list"]])
def test_api_key_as_an_argument_is_rejected(cli: Cli, command: list[str], given: list[str]) -> None:
    found = cli(*command, *given)
    assert found.code == 2
    assert "CHIMES_API_KEY" in found.err
    assert "chm_secret" not in found.err


def test_key_file_must_not_be_readable_by_others(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("chm_abc\n")
    file.chmod(0o644)
    found = cli("ls", "--api-key-file", str(file))
    assert found.code == 2
    assert "chmod 600" in found.err
    file.chmod(0o600)
    assert cli("ls", "--api-key-file", str(file)).code == 7
    file.write_text("two keys\n")
    assert cli("ls", "--api-key-file", str(file)).code == 2
    assert cli("ls", "--api-key-file", "nowhere").code == 2


# Exit code 7: no server is reachable.
def test_without_server_and_store_the_exit_code_is_7_with_a_hint(cli: Cli, tmp_path: Path) -> None:
    found = cli("ls")
    assert found.code == 7
    assert "chimes serve" in found.err
    assert list(tmp_path.iterdir()) == []
    assert cli("ls", CHIMES_URL="http://127.0.0.1:1").code == 7
    assert cli("ls", CHIMES_URL="ftp://nowhere").code == 2
    assert cli("ls", CHIMES_URL="http://x:99999999").code == 2


def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*CHIMES, "next", "* * * * *", "-n", "1000"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


def test_version_as_json(cli: Cli) -> None:
    assert cli("version").out.startswith("chimes ")
    assert '"version"' in cli("version", "--json").out


def test_exit_code_of_unsafe_and_invalid_configuration_files(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "chimes.yaml"
    file.write_text("host: !!python/object/apply:os.system ['true']\n")
    assert cli("serve").code == 6
    file.write_text("prot: 1\n")
    found = cli("serve")
    assert found.code == 2
    assert "did you mean port?" in found.err
    assert cli("config", "show").code == 2


def test_exit_code_of_the_process(tmp_path: Path) -> None:
    found = spawn("next", "61 * * * *", cwd=tmp_path)
    assert (found.code, found.out) == (6, "")
