"""Options shared by several commands, as decorators."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from chimes.cli.command import USAGE, Command, CommandError
from chimes.cli.output import Output, OutputFormat, ToZone, localize
from chimes.i18n import _

if TYPE_CHECKING:
    from chimes.cli.backend import Backend


R = TypeVar("R")
CommandFunction = Callable[..., R]

# Options that override a setting.
store_option = click.option(
    "--store", metavar="URL", help="URL of the store: sqlite:///path, postgresql://…, redis://…"
)
data_dir_option = click.option("--data-dir", metavar="DIR", help="Data directory. Default: ./data.")
config_option = click.option(
    "--config", "file", type=click.Path(path_type=Path), help="Path of a chimes.yaml."
)
allow_volatile_option = click.option(
    "--allow-volatile", flag_value="true", help="Accept a Redis server that may lose data."
)
log_level_option = click.option(
    "--log-level", metavar="LEVEL", help="Log level: debug, info, warning or error."
)
log_format_option = click.option(
    "--log-format", metavar="FORMAT", help="Log format: json, text or auto."
)


def commands_options(function: CommandFunction[R]) -> CommandFunction[R]:
    """`--allow-commands` and `--label`; passes `allow_commands` and `labels` as texts."""

    @click.option("--allow-commands", flag_value="true", help="Execute commands on this node.")
    @click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="NAME=VALUE",
        help="Label of this node, which commands can require; repeatable.",
    )
    @functools.wraps(function)
    def wrapped(*args: object, labels: tuple[str, ...], **kwargs: object) -> R:
        return function(*args, labels=",".join(labels) or None, **kwargs)

    return wrapped


class WholeNumber(click.IntRange):
    """An integer range whose error message is translated, unlike click's."""

    name = "number"

    def convert(
        self, value: int | str, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(localize(_("{value!r} is not a whole number.", value=value)), param, ctx)
        return super().convert(number, param, ctx)


def store_options(function: CommandFunction[R]) -> CommandFunction[R]:
    """`--store`, `--data-dir`, `--config`, `--allow-volatile`; passes `settings`."""

    @click.option("--store", "url", metavar="URL", help="URL of the store.")
    @data_dir_option
    @click.option("--config", type=click.Path(path_type=Path), help="Path of a chimes.yaml.")
    @click.option(
        "--allow-volatile",
        "volatile",
        flag_value="true",
        help="Accept a Redis server that may lose data.",
    )
    @functools.wraps(function)
    def wrapped(
        *args: object,
        url: str | None,
        data_dir: str | None,
        config: Path | None,
        volatile: str | None,
        **kw: object,
    ) -> R:
        from chimes.config import load_settings

        flags = {"store": url, "data_dir": data_dir, "allow_volatile": volatile}
        loaded = load_settings(flags=flags, config_file=config)
        return function(*args, settings=loaded.settings, **kw)

    return wrapped


class PolicyCommand(Command):
    """A command with an option for each field of a policy, passed by the name of the field. They
    are made when the command is used, so that its module does not import the model."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        known = {each.name for each in self.params}
        self.params.extend(each for each in _policy_options() if each.name not in known)
        return super().get_params(ctx)


def _policy_options() -> Iterator[click.Option]:
    from chimes.model.policy import command_options

    for name, field in command_options().items():
        assert field.about.command is not None
        more: dict[str, Any] = {"help": field.about.command.help}
        if field.kind == "choice":
            more["type"] = click.Choice(
                field.about.command.choices or [each.value for each in field.type]
            )
        elif field.kind == "number":
            more["type"] = WholeNumber(0)
        elif field.kind == "duration":
            more["metavar"] = "DURATION"
        elif field.kind == "flag":
            more |= {"type": bool, "metavar": "true|false"}
        elif field.kind == "names":
            more |= {"multiple": True, "metavar": "NAME", "callback": _names}
        yield click.Option([name, field.name], default=None, **more)


def _names(
    _context: click.Context, _option: click.Parameter, given: Sequence[str]
) -> list[str] | None:
    """None if the option is not given."""
    return list(given) or None


def output_options(function: CommandFunction[R]) -> CommandFunction[R]:
    """Format of the output, and `--tz`; passes `output` to the command."""
    tz_option = click.option("--tz", "shown_zone", metavar="ZONE", help="Show times in this zone.")
    return tz_option(output_format_options(function))


def output_format_options(function: CommandFunction[R]) -> CommandFunction[R]:
    """`output_options` without `--tz`, for commands where `--tz` is the zone of the expression."""

    @click.option(
        "--json",
        "json_fields",
        metavar="[=FIELD,…]",
        default=None,
        help="Print JSON objects, or only these fields of them.",
    )
    @click.option("--ndjson", is_flag=True, help="Print one JSON object per line.")
    @click.option(
        "--jq", metavar="EXPR", default="", help="Filter the JSON with jq, which must be installed."
    )
    @click.option(
        "--template",
        metavar="TEXT",
        default="",
        help="Print this text for each object, with values for {field} and {field.member}.",
    )
    @click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
    @click.option("--utc", is_flag=True, help="Show times in UTC.")
    @functools.wraps(function)
    def wrapped(
        *args: object,
        json_fields: str | None,
        ndjson: bool,
        jq: str,
        template: str,
        quiet: bool,
        utc: bool,
        shown_zone: str | None = None,
        **kwargs: object,
    ) -> R:
        if bool(jq) + bool(template) + quiet > 1:
            raise click.UsageError(_("Give only one of --jq, --template and --quiet."))
        if (jq or template) and json_fields is None:
            json_fields = ""
        fields = tuple(each.strip() for each in (json_fields or "").split(",") if each.strip())
        zone = _to_utc if utc else zone_converter(shown_zone) if shown_zone else None
        output = Output(
            format=_output_format(json_fields, ndjson, quiet),
            fields=fields,
            zone=zone,
            jq=jq,
            template=template,
        )
        return function(*args, output=output, **kwargs)

    return wrapped


def _output_format(json_fields: str | None, ndjson: bool, quiet: bool) -> OutputFormat:
    if quiet:
        return "ids"
    if ndjson:
        return "ndjson"
    if json_fields is not None:
        return "json"
    return "table" if sys.stdout.isatty() else "tsv"


def zone_converter(name: str) -> ToZone:
    """A function that converts to an IANA zone, with the time zone data of the scheduler."""
    from chimes.triggers import parse_zone

    zone = parse_zone(name)

    def convert(moment: datetime) -> datetime:
        offset = zone.offset_at(int(moment.timestamp()))
        return moment.astimezone(timezone(timedelta(seconds=offset)))

    return convert


def default_zone() -> str:
    """The zone of times that are written without one."""
    from chimes.config import load_settings

    return load_settings().settings.default_timezone


def api_time(text: str, *, zone: str | None = None, past: bool = False, field: str) -> str:
    """A time that a person wrote, such as `24h` or `tomorrow 10:00`, as the API takes it. `past`: a
    length lies before now."""
    from chimes.clock import SystemClock
    from chimes.triggers.values import format_moment, parse_time

    now = SystemClock().now()
    return format_moment(
        parse_time(text, now=now, zone=zone or default_zone(), past=past, field=field)
    )


def _to_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def client_options(function: CommandFunction[R]) -> CommandFunction[R]:
    """`--url` and `--api-key-file`; passes the connected `backend` to the command."""

    @functools.wraps(function)
    def wrapped(*args: object, open_backend: Callable[..., Backend], **kwargs: object) -> R:
        return function(*args, backend=open_backend(), **kwargs)

    return lazy_client_options(wrapped)


def lazy_client_options(function: CommandFunction[R]) -> CommandFunction[R]:
    """`client_options` for commands that connect late or never: passes `open_backend`."""

    @functools.wraps(function)
    def wrapped(*args: object, connect: Callable[..., Backend], **kwargs: object) -> R:
        def open_backend(*, create: bool = False) -> Backend:
            backend = connect(create=create)
            click.get_current_context().call_on_close(backend.close)
            return backend

        return function(*args, open_backend=open_backend, **kwargs)

    return server_options(wrapped)


def server_options(function: CommandFunction[R]) -> CommandFunction[R]:
    """`client_options` for commands that connect several times: passes `connect`, whose backends
    the command closes."""

    @click.option("--url", envvar="CHIMES_URL", metavar="URL", help="URL of the server.")
    @click.option(
        "--api-key-file",
        type=click.Path(path_type=Path),
        envvar="CHIMES_API_KEY_FILE",
        metavar="FILE",
        help="File with the API key. Default: CHIMES_API_KEY.",
    )
    @functools.wraps(function)
    def wrapped(*args: object, url: str | None, api_key_file: Path | None, **kwargs: object) -> R:
        def open_connection(*, create: bool = False) -> Backend:
            from chimes.cli.backend import connect

            key = read_key_file(api_key_file) if api_key_file else read_api_key()
            return connect(url, key, create=create)

        return function(*args, connect=open_connection, **kwargs)

    return wrapped


def read_api_key() -> str:
    """The key in CHIMES_API_KEY, or empty."""
    return os.environ.get("CHIMES_API_KEY", "").strip()


def read_key_file(file: Path) -> str:
    """The API key in a file, which must not be readable by other users."""
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CommandError(
            _("Cannot read {file}: {reason}", file=file, reason=error.strerror), USAGE
        ) from None
    if os.name == "posix" and mode & 0o077:
        raise CommandError(
            _("Other users of this machine can read {file}", file=file),
            USAGE,
            hint=_("run: chmod 600 {file}", file=file),
        )
    if not text or len(text.split()) != 1:
        raise CommandError(_("{file} must contain one key and nothing else", file=file), USAGE)
    return text


def confirm_options(function: CommandFunction[R]) -> CommandFunction[R]:
    """`--yes` and `--no-input`; passes `confirm`, which returns whether to continue."""

    @click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
    @click.option("--no-input", is_flag=True, help="Never prompt, as if there were no terminal.")
    @functools.wraps(function)
    def wrapped(*args: object, yes: bool, no_input: bool, **kwargs: object) -> R:
        def confirm(question: str, *, explicit: bool = False) -> bool:
            """Asks on a terminal. Without one returns True, unless consent must be `explicit`. No
            question: whether there is consent without asking."""
            if yes:
                return True
            if question and sys.stdin.isatty() and sys.stderr.isatty() and not no_input:
                return click.confirm(localize(question), default=False, err=True)
            return not explicit

        return function(*args, confirm=confirm, **kwargs)

    return wrapped
