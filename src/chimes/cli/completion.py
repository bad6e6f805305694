"""Shell completion: `chimes completion SHELL`, and values of arguments and options.

Click completes commands and options. Names of schedules come from a running server, if it answers
at once; the local store is not opened for them.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from chimes.cli.command import CommandError, LocalizedCommand
from chimes.cli.options import read_api_key
from chimes.cli.output import echo

if TYPE_CHECKING:
    from chimes.cli.output import Json

#: Seconds for the answer of the server: the user waits at the prompt.
_TIMEOUT = 0.3
_MAX_NAMES = 100
_POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $env:COMP_WORDS = $commandAst.ToString()
    $env:COMP_INCOMPLETE = $wordToComplete
    $env:%(complete_var)s = "powershell_complete"
    %(prog_name)s | ForEach-Object {
        $type, $value, $help = $_.Split("`t", 3)
        $kind = [System.Management.Automation.CompletionResultType]::ParameterValue
        [System.Management.Automation.CompletionResult]::new($value, $value, $kind, $help)
    }
    Remove-Item Env:COMP_WORDS, Env:COMP_INCOMPLETE, Env:%(complete_var)s
}
"""


class PowerShellComplete(ShellComplete):
    name = "powershell"
    source_template = _POWERSHELL

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ["COMP_WORDS"])[1:]
        incomplete = os.environ.get("COMP_INCOMPLETE", "")
        if incomplete and words and words[-1] == incomplete:
            words.pop()
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type}\t{item.value}\t{item.help or item.value}"


add_completion_class(PowerShellComplete)


def zone_names(incomplete: str) -> list[str]:
    """Names of time zones, in any case of letters."""
    from importlib.resources import files

    folded = incomplete.casefold()
    listed = (files("tzdata") / "zones").read_text(encoding="ascii").split()
    return [name for name in listed if name.casefold().startswith(folded)]


def schedule_names(url: str | None, incomplete: str) -> list[str]:
    """Names of schedules, in the form without spaces that commands accept. Empty if no server
    answers in time."""
    from chimes.cli.backend import API, default_url, items_of, slug

    def rows(words: str) -> list[Json]:
        path = f"{API}/schedules?limit={_MAX_NAMES}&sort=name&q={quote(words)}"
        page = json.loads(_get(url or default_url(), path))
        return items_of(page) if isinstance(page, dict) else []

    folded = incomplete.casefold()
    words = " ".join(re.findall(r"\w+", folded))
    try:
        # The server looks for the words, as they are written: the first names of all need not have
        # one that begins so.
        for text in dict.fromkeys((words, words.title(), "")):
            listed = rows(text)
            names = dict.fromkeys(slug(str(row.get("name") or row["id"])) for row in listed)
            # Ids only where they are wanted: each schedule has a name, which is shorter.
            ids = [str(row["id"]) for row in listed] if folded else []
            if found := [each for each in (*names, *ids) if each.startswith(folded)]:
                return found
    except (OSError, ValueError, CommandError):
        pass
    return []


def _get(url: str, path: str) -> bytes:
    """The body of an answer. Without `http.client`, whose import takes longer than the answer."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        return _get_securely(url, path)
    key = read_api_key()
    lines = [
        f"GET {parts.path.rstrip('/')}{path} HTTP/1.0",
        f"Host: {parts.netloc}",
        "Accept: application/json",
        *([f"Authorization: Bearer {key}"] if key else []),
    ]
    deadline = monotonic() + _TIMEOUT
    with socket.create_connection((parts.hostname, parts.port or 80), _TIMEOUT) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
        received = bytearray()
        while part := connection.recv(65536):
            received += part
            if monotonic() > deadline:
                raise TimeoutError
    head, _blank, body = bytes(received).partition(b"\r\n\r\n")
    return body if head.split(b" ", 2)[1:2] == [b"200"] else b""


def _get_securely(url: str, path: str) -> bytes:
    from chimes.cli.backend import HttpBackend

    with closing(HttpBackend(url, read_api_key(), timeout=_TIMEOUT)) as server:
        answer = server.request("GET", path) if server.connect() else None
    return answer.body if answer is not None and answer.status == 200 else b""


class ZoneName(click.types.StringParamType):
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _items(zone_names(incomplete))


class ScheduleName(click.types.StringParamType):
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        url = ctx.params.get("url") or os.environ.get("CHIMES_URL")
        return _items(schedule_names(url, incomplete))


def _items(values: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values]


def add_value_types(command: click.Command) -> None:
    """Lets the arguments and options of a command complete names of schedules and zones."""
    for param in command.params:
        if isinstance(param, click.Argument) and param.name in ("schedule", "schedules"):
            param.type = ScheduleName()
        elif isinstance(param, click.Option) and param.metavar == "ZONE":
            param.type = ZoneName()


@click.command("completion", cls=LocalizedCommand)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish", "powershell"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell. It completes commands, options, time zones and, if a
    server is running, names of schedules.

    \b
    Examples:
      echo 'eval "$(chimes completion bash)"' >> ~/.bashrc
      echo 'eval "$(chimes completion zsh)"' >> ~/.zshrc
      chimes completion fish > ~/.config/fish/completions/chimes.fish
      chimes completion powershell >> $PROFILE
    """
    from chimes.cli.command import cli

    kind = get_completion_class(shell)
    assert kind is not None
    echo(kind(cli, {}, "chimes", "_CHIMES_COMPLETE").source())
