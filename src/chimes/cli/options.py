"""Options that many commands share."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from chimes.cli.command import Failure
from chimes.cli.locale import said
from chimes.cli.output import Form, InZone, Output
from chimes.i18n import _

if TYPE_CHECKING:
    from chimes.cli.backend import Backend


R = TypeVar("R")
Wrapped = Callable[..., R]


class Whole(click.IntRange):
    """A whole number. Click names what it wanted in English."""

    name = "number"

    def convert(
        self, value: int | str, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(said(_("{value!r} is not a whole number.", value=value)), param, ctx)
        return super().convert(number, param, ctx)


def output_options(function: Wrapped[R]) -> Wrapped[R]:
    """`--json`, `--ndjson`, `-q`, `--utc`, `--tz`; the command gets `output`."""
    zoned = click.option("--tz", "shown_in", metavar="ZONE", help="Show times in this zone.")
    return zoned(form_options(function))


def form_options(function: Wrapped[R]) -> Wrapped[R]:
    """The same without `--tz`, for commands in which it is the zone of the expression."""

    @click.option(
        "--json",
        "json_fields",
        metavar="[=FIELD,…]",
        default=None,
        help="Full objects as the API gives them, or only these fields.",
    )
    @click.option("--ndjson", is_flag=True, help="One JSON object per line.")
    @click.option("-q", "--quiet", is_flag=True, help="Only ids.")
    @click.option("--utc", is_flag=True, help="Show times in UTC.")
    @functools.wraps(function)
    def wrapped(
        *args: object,
        json_fields: str | None,
        ndjson: bool,
        quiet: bool,
        utc: bool,
        shown_in: str | None = None,
        **kwargs: object,
    ) -> R:
        fields = tuple(each.strip() for each in (json_fields or "").split(",") if each.strip())
        zone = _utc if utc else named_zone(shown_in) if shown_in else None
        output = Output(form=_form(json_fields, ndjson, quiet), fields=fields, zone=zone)
        return function(*args, output=output, **kwargs)

    return wrapped


def _form(json_fields: str | None, ndjson: bool, quiet: bool) -> Form:
    if quiet:
        return "ids"
    if ndjson:
        return "ndjson"
    if json_fields is not None:
        return "json"
    return "table" if sys.stdout.isatty() else "tsv"


def named_zone(name: str) -> InZone:
    """To the wall clock of an IANA zone, by the same tables that fire times come from."""
    from chimes.triggers import parse_zone

    zone = parse_zone(name)

    def convert(moment: datetime) -> datetime:
        offset = zone.offset_at(int(moment.timestamp()))
        return moment.astimezone(timezone(timedelta(seconds=offset)))

    return convert


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def client_options(function: Wrapped[R]) -> Wrapped[R]:
    """`--url` and `--api-key-file`; the command gets `backend`, already connected."""

    @functools.wraps(function)
    def wrapped(*args: object, reach: Callable[..., Backend], **kwargs: object) -> R:
        return function(*args, backend=reach(), **kwargs)

    return reach_options(wrapped)


def reach_options(function: Wrapped[R]) -> Wrapped[R]:
    """The same for commands that may not need anybody: they get `reach`, which connects."""

    @click.option("--url", envvar="CHIMES_URL", metavar="URL", help="Where the server is.")
    @click.option(
        "--api-key-file",
        type=click.Path(path_type=Path),
        envvar="CHIMES_API_KEY_FILE",
        metavar="FILE",
        help="A file that holds the key; else it is taken from CHIMES_API_KEY.",
    )
    @functools.wraps(function)
    def wrapped(*args: object, url: str | None, api_key_file: Path | None, **kw: object) -> R:
        def reach(*, create: bool = False) -> Backend:
            from chimes.cli.backend import connect

            key = secret_from(api_key_file) if api_key_file else _key_from_environment()
            backend = connect(url, key, create=create)
            click.get_current_context().call_on_close(backend.close)
            return backend

        return function(*args, reach=reach, **kw)

    return wrapped


def _key_from_environment() -> str:
    return os.environ.get("CHIMES_API_KEY", "").strip()


def secret_from(file: Path) -> str:
    """The key in a file that nobody else can read (S63)."""
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Failure(
            _("{file} cannot be read: {reason}", file=file, reason=error.strerror), 2
        ) from None
    if os.name == "posix" and mode & 0o077:
        raise Failure(
            _("{file} can be read by other users of this machine", file=file),
            2,
            hint=_("chmod 600 {file}", file=file),
        )
    if not text or len(text.split()) != 1:
        raise Failure(_("{file} must hold one key and nothing else", file=file), 2)
    return text


def yes_option(function: Wrapped[R]) -> Wrapped[R]:
    """`--yes` and `--no-input`; the command gets `ask`, which answers whether to go on."""

    @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
    @click.option("--no-input", is_flag=True, help="Never ask, as if there were no terminal.")
    @functools.wraps(function)
    def wrapped(*args: object, yes: bool, no_input: bool, **kwargs: object) -> R:
        def ask(question: str, *, careful: bool = False) -> bool:
            """On a terminal a person decides. Elsewhere only a `careful` question is a no."""
            if yes:
                return True
            if sys.stdin.isatty() and sys.stderr.isatty() and not no_input:
                return click.confirm(said(question), default=False, err=True)
            return not careful

        return function(*args, ask=ask, **kwargs)

    return wrapped
