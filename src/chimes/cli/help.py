"""`chimes help`: the help of a command, or all of it as a manual page. `chimes version`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from chimes import __version__
from chimes.cli.command import Command, LocalizedCommand, cli
from chimes.cli.options import output_format_options
from chimes.cli.output import Output, echo, localize, localize_help
from chimes.i18n import _


@click.command("help", cls=LocalizedCommand)
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.option("--man", is_flag=True, help="Print the manual page chimes(1), for `man -l`.")
def help_(names: tuple[str, ...], man: bool) -> None:
    """Show the help of a command, or of all commands.

    \b
    Examples:
      chimes help
      chimes help store backup
      chimes help --man > chimes.1 && man -l ./chimes.1
    """
    if man:
        echo("\n".join(_manual()))
        return
    ctx = click.Context(cli, info_name="chimes")
    command: click.Command = cli
    for name in names:
        if not isinstance(command, click.Group):
            raise click.UsageError(
                _("{command} has no command {name!r}.", command=ctx.command_path, name=name)
            )
        _found, inner, _rest = command.resolve_command(ctx, [name])
        assert inner is not None
        command, ctx = inner, click.Context(inner, info_name=name, parent=ctx)
    echo(command.get_help(ctx))


def _manual() -> Iterator[str]:
    """The page in roff."""
    yield f'.TH CHIMES 1 "" "chimes {__version__}" "Chimes"'
    yield ".SH NAME"
    yield f"chimes \\- {_roff(localize(_('runs jobs on schedule')))}"
    yield ".SH SYNOPSIS"
    yield ".B chimes\n[OPTIONS] COMMAND [ARGS]..."
    yield ".SH DESCRIPTION"
    yield from _description(cli)
    yield ".SH COMMANDS"
    yield from _commands(cli, click.Context(cli, info_name="chimes"))
    yield ".SH ENVIRONMENT"
    for name, text in _VARIABLES:
        yield f".TP\n.B {name}\n{_roff(localize(text))}"
    yield ".SH EXIT STATUS"
    for code, text in _EXIT_CODES:
        yield f".TP\n.B {code}\n{_roff(localize(text))}"


def _commands(group: click.Group, ctx: click.Context) -> Iterator[str]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=ctx)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)
            continue
        arguments = " ".join(command.collect_usage_pieces(inner))
        yield f".SS {_roff(inner.command_path)} {_roff(arguments)}"
        yield from _description(command)
        for param in command.get_params(inner):
            if isinstance(param, click.Option) and (record := param.get_help_record(inner)):
                yield f".TP\n.B {_roff(record[0])}\n{_roff(localize_help(record[1]))}"


def _description(command: click.Command) -> Iterator[str]:
    for block in localize_help(command.help or "").split("\n\n"):
        if block.startswith("\b"):
            lines = _roff(block.removeprefix("\b").strip())
            yield f".PP\n.nf\n{lines}\n.fi"
        elif block.strip():
            yield f".PP\n{_roff(' '.join(block.split()))}"


def _roff(text: str) -> str:
    """Escapes backslashes, dashes, and lines that would be requests."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.split("\n")
    )


_VARIABLES = (
    ("CHIMES_URL", _("URL of the server. Default: http://127.0.0.1:7100.")),
    ("CHIMES_API_KEY", _("API key of client commands.")),
    ("CHIMES_LANG", _("Output language: en, th or zh.")),
    ("NO_COLOR", _("If set, no colours.")),
    ("PAGER, NO_PAGER", _("Program for long tables on a terminal; if NO_PAGER is set, none.")),
)
_EXIT_CODES = (
    (0, _("Success.")),
    (1, _("Failure.")),
    (2, _("Wrong usage.")),
    (3, _("Not found.")),
    (4, _("Not authenticated or not allowed.")),
    (5, _("Conflict.")),
    (6, _("Invalid input.")),
    (7, _("The server cannot be reached.")),
    (8, _("The awaited run failed.")),
    (9, _("doctor or a check found problems.")),
    (10, _("A check was inconclusive.")),
    (124, _("Timed out.")),
    (130, _("Interrupted.")),
)


# --- version --------------------------------------------------------------------------------------
@click.command("version", cls=Command)
@output_format_options
def version(output: Output) -> None:
    """Show the version.

    \b
    Examples:
      chimes version
      chimes version --json
    """
    number = ".".join(str(part) for part in sys.version_info[:3])
    if output.format in ("json", "ndjson"):
        output.one({"version": __version__, "python": number}, [])
    else:
        echo(_("chimes {version} (Python {number})", version=__version__, number=number))
