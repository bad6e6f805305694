"""Groups that import a command when it is called, and commands with our habits."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from chimes.wording import say


class Lazy(NamedTuple):
    """Where a command is, and the line that help shows without loading it."""

    module: str
    name: str
    help: str


class Command(click.Command):
    """`--json` may stand alone or have a value; a key may not be on the command line (S64)."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        options = args[:end]
        if any(each == "--api-key" or each.startswith("--api-key=") for each in options):
            raise click.UsageError(
                say(
                    "A key on the command line can be seen by every user of this machine. "
                    "Put it into CHIMES_API_KEY, or into a file for --api-key-file."
                ),
                ctx,
            )
        # Else click would take the argument behind a bare --json for its value.
        options = ["--json=" if each == "--json" else each for each in options]
        return super().parse_args(ctx, [*options, *args[end:]])


class LazyGroup(click.Group):
    """Commands by name; nothing is imported until one is called."""

    command_class = Command

    def __init__(self, name: str | None = None, *, lazy: Mapping[str, Lazy], **attrs: Any) -> None:
        super().__init__(name, **attrs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._lazy.get(cmd_name)
        if found is None:
            return None
        command = getattr(import_module(found.module), found.name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._lazy and not args[0].startswith("-"):
            from chimes.triggers.reading import nearest

            hint = nearest(args[0], self._lazy)
            meant = f" {hint[0].upper()}{hint[1:]}" if hint else ""
            raise click.UsageError(
                say("There is no command {args!r}.{meant}", args=args[0], meant=meant), ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, found.help) for name, found in self._lazy.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
