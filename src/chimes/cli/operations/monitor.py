"""`monitor`: check-ins of jobs that run elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from chimes.cli.backend import (
    Backend,
    api_path,
    delete,
    find_exact,
    get,
    has_prefix,
    items_of,
    only_row,
    paginate,
    post,
    slug,
)
from chimes.cli.command import FAILED, USAGE, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import (
    client_options,
    confirm_options,
    lazy_client_options,
    output_format_options,
    output_options,
)
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter, nested
from chimes.i18n import Message, _, counted
from chimes.redaction import escape_control

_SEARCH_LIMIT = 5000

MONITOR_COMMANDS = {
    "create": LazyCommand("chimes.cli.operations.monitor", "create", "Create a monitor."),
    "list": LazyCommand("chimes.cli.operations.monitor", "list_monitors", "List monitors."),
    "show": LazyCommand("chimes.cli.operations.monitor", "show", "Show one monitor."),
    "pause": LazyCommand("chimes.cli.operations.monitor", "pause", "Pause monitors."),
    "resume": LazyCommand("chimes.cli.operations.monitor", "resume", "Resume paused monitors."),
    "rm": LazyCommand("chimes.cli.operations.monitor", "remove", "Delete monitors."),
    "rotate": LazyCommand(
        "chimes.cli.operations.monitor", "rotate", "Replace the URLs of a monitor."
    ),
    "pings": LazyCommand(
        "chimes.cli.operations.monitor", "pings", "List the last pings of a monitor."
    ),
    "ping": LazyCommand("chimes.cli.operations.monitor", "ping", "Send a ping."),
    "import": LazyCommand("chimes.cli.operations.monitor", "import_group", "Import monitors."),
}


@click.group("monitor", cls=LazyGroup, lazy=MONITOR_COMMANDS)
def monitor() -> None:
    """Monitor jobs that run elsewhere: they call a URL when they have ended."""


_STATUSES: Final[dict[str, Message]] = {
    "new": _("new"),
    "up": _("up"),
    "late": _("late"),
    "down": _("down"),
    "paused": _("paused"),
}
_COLUMNS = [
    Column(_("id"), getter("id"), rank=1),
    Column(_("name"), getter("name")),
    Column(_("status"), getter("status"), labels=_STATUSES, status=True),
    Column(_("last ping"), getter("last_ping_at"), time=True, rank=2),
    Column(_("expected"), getter("expected_at"), time=True, rank=3),
    Column(_("duration"), getter("last_duration"), rank=4),
    Column(_("when"), getter("words"), rank=5),
]
_DETAILS = [
    Column(_("Id"), getter("id")),
    Column(_("Name"), getter("name")),
    Column(_("Status"), getter("status"), labels=_STATUSES, status=True),
    Column(_("When"), getter("words")),
    Column(_("Grace"), getter("grace")),
    Column(_("Ping URL"), getter("ping_url"), max_width=200),
    Column(_("Badge"), getter("badge_url"), max_width=200),
    Column(_("Last ping"), getter("last_ping_at"), time=True),
    Column(_("Last duration"), getter("last_duration")),
    Column(_("Expected"), getter("expected_at"), time=True),
    Column(_("Down since"), lambda item: nested(item, "down").get("at"), time=True),
    Column(_("Cause"), lambda item: nested(item, "down").get("cause")),
    Column(_("Tags"), lambda item: ", ".join(map(str, _listed(item.get("tags"))))),
]
_PING_COLUMNS = [
    Column(_("number"), getter("number")),
    Column(_("at"), getter("at"), time=True),
    Column(_("kind"), getter("kind")),
    Column(_("exit code"), getter("exit_code"), rank=2),
    Column(_("duration"), getter("duration"), rank=1),
    Column(_("address"), getter("address"), rank=4),
    Column(_("log"), getter("log"), rank=3, max_width=60),
]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


@click.command("create", cls=Command)
@click.argument("name")
@click.option("--cron", metavar="EXPRESSION", help="A ping is expected at these times.")
@click.option("--every", metavar="DURATION", help="A ping is expected this long after the last.")
@click.option("--at", "moment", metavar="TIME", help="One ping is expected at this time.")
@click.option("--when", "phrase", metavar="TEXT", help="The same in words, as for `chimes add`.")
@click.option("--tz", "zone", metavar="ZONE", help="Time zone. Default: yours.")
@click.option(
    "--grace",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How long after the expected time it is down.",
)
@click.option("--tag", multiple=True, help="Tag; repeatable.")
@click.option(
    "--notify",
    multiple=True,
    metavar="CHANNEL[:TO][:OPTION=...]",
    help="Notify inbox, telegram:CHAT, webhook:URL or email:ADDRESS; repeatable. on=failure is"
    " down, on=recovery up again, on=late late. Other options as for `chimes add`.",
)
@output_format_options
@lazy_client_options
def create(
    open_backend: Callable[..., Backend],
    output: Output,
    name: str,
    cron: str | None,
    every: str | None,
    moment: str | None,
    phrase: str | None,
    zone: str | None,
    grace: str,
    tag: tuple[str, ...],
    notify: tuple[str, ...],
) -> None:
    """Create a monitor, and print the URL that the job calls.

    \b
    Examples:
      chimes monitor create backup --cron "0 2 * * *" --tz Europe/Berlin --grace 30m
      chimes monitor create heartbeat --every 10m --grace 2m --notify inbox:on=failure+recovery
      chimes monitor create report --when "every weekday at 9am" --tag finance
    """
    body: Json = {
        "name": name,
        "trigger": _trigger(cron, every, moment, phrase, zone),
        "grace": grace,
        "tags": list(tag),
    }
    if notify:
        from chimes.cli.schedules import recipient_json

        body["delivery"] = [recipient_json(each) for each in notify]
    made = post(open_backend(create=True), "/monitors", body)
    if output.format in ("json", "ndjson"):
        output.one(made, [])
        return
    echo(escape_control(str(made["ping_url"])))


def _trigger(
    cron: str | None, every: str | None, moment: str | None, phrase: str | None, zone: str | None
) -> Json:
    given = [each for each in (cron, every, moment, phrase) if each is not None]
    if len(given) != 1:
        raise click.UsageError(_("Give one of --cron, --every, --at and --when."))
    named: Json = {} if zone is None else {"timezone": zone}
    if cron is not None:
        return {"kind": "cron", "expression": cron} | named
    if every is not None:
        return {"kind": "every", "every": every}
    if moment is not None:
        return {"kind": "once", "at": moment} | named
    from chimes.cli.options import default_zone
    from chimes.clock import SystemClock
    from chimes.language import read_trigger

    now = SystemClock().now()
    return read_trigger(given[0], now=now, timezone=zone or default_zone()).trigger.to_dict()


@click.command("list", cls=Command)
@click.option(
    "--status",
    type=click.Choice(list(_STATUSES)),
    multiple=True,
    help="Only monitors in this status; repeatable.",
)
@click.option("--match", metavar="TEXT", help="Part of the name.")
@output_options
@client_options
def list_monitors(
    backend: Backend, output: Output, status: tuple[str, ...], match: str | None
) -> None:
    """List monitors by name.

    \b
    Examples:
      chimes monitor list
      chimes monitor list --status down --status late
      chimes monitor list --match backup --json=id,name,status
    """
    rows = paginate(backend, "/monitors", None, q=match)
    output.rows((row for row in rows if not status or row["status"] in status), _COLUMNS)


@click.command("show", cls=Command)
@click.argument("monitor")
@output_options
@client_options
def show(backend: Backend, output: Output, monitor: str) -> None:
    """Show one monitor. MONITOR is an id, a prefix of an id, or a name.

    \b
    Examples:
      chimes monitor show backup
      chimes monitor show backup --json=status,expected_at
    """
    output.one(find_monitor(backend, monitor), _DETAILS)


@click.command("pause", cls=Command)
@click.argument("monitors", nargs=-1, required=True)
@client_options
def pause(backend: Backend, monitors: tuple[str, ...]) -> None:
    """Pause monitors: nothing is expected until they are resumed.

    \b
    Examples:
      chimes monitor pause backup
    """
    _act(backend, monitors, "pause")


@click.command("resume", cls=Command)
@click.argument("monitors", nargs=-1, required=True)
@client_options
def resume(backend: Backend, monitors: tuple[str, ...]) -> None:
    """Resume paused monitors: pings are expected from now on.

    \b
    Examples:
      chimes monitor resume backup
    """
    _act(backend, monitors, "resume")


def _act(backend: Backend, references: tuple[str, ...], verb: str) -> None:
    for found in [find_monitor(backend, each) for each in references]:
        changed = post(backend, api_path("monitors", found["id"], verb))
        echo(escape_control(f"{changed['id']} {changed['status']}"))


@click.command("rm", cls=Command)
@click.argument("monitors", nargs=-1, required=True)
@confirm_options
@client_options
@click.pass_context
def remove(
    ctx: click.Context, backend: Backend, confirm: Callable[..., bool], monitors: tuple[str, ...]
) -> None:
    """Delete monitors with their history. Their URLs stop working.

    \b
    Examples:
      chimes monitor rm backup
      chimes monitor rm backup --yes
    """
    found = [find_monitor(backend, each) for each in monitors]
    names = ", ".join(str(each["name"]) for each in found)
    if not confirm(_("Delete {names}?", names=names), explicit=True):
        echo_err(_("Nothing was deleted. Use --yes to delete without confirmation."))
        ctx.exit(FAILED)
    for each in found:
        delete(backend, api_path("monitors", each["id"]))
        echo(escape_control(str(each["id"])))


@click.command("rotate", cls=Command)
@click.argument("monitor")
@client_options
def rotate(backend: Backend, monitor: str) -> None:
    """Replace the URLs of ping and badge, for example because they became known. The old ones stop
    working at once.

    \b
    Examples:
      chimes monitor rotate backup
    """
    found = find_monitor(backend, monitor)
    changed = post(backend, api_path("monitors", found["id"], "rotate"))
    echo(escape_control(str(changed["ping_url"])))


@click.command("pings", cls=Command)
@click.argument("monitor")
@output_options
@client_options
def pings(backend: Backend, output: Output, monitor: str) -> None:
    """List the last pings of a monitor, newest first.

    \b
    Examples:
      chimes monitor pings backup
      chimes monitor pings backup --json=at,kind,duration,log
    """
    found = find_monitor(backend, monitor)
    output.rows(items_of(get(backend, api_path("monitors", found["id"], "pings"))), _PING_COLUMNS)


@click.command("ping", cls=Command)
@click.argument("monitor")
@click.option("--start", "verb", flag_value="start", help="The job begins.")
@click.option("--fail", "verb", flag_value="fail", help="The job has failed.")
@click.option("--exit-code", type=click.IntRange(0, 255), help="How the job has ended.")
@click.option("--rid", metavar="ID", help="Pairs the start and the end of one job.")
@client_options
def ping(
    backend: Backend, monitor: str, verb: str | None, exit_code: int | None, rid: str | None
) -> None:
    """Send a ping to a monitor, as its job does.

    \b
    Examples:
      chimes monitor ping backup --start
      chimes monitor ping backup
      chimes monitor ping backup --exit-code 3
    """
    if verb is not None and exit_code is not None:
        raise click.UsageError(_("Give either --start or --fail or --exit-code."))
    found = find_monitor(backend, monitor)
    path = urlsplit(str(found["ping_url"])).path
    if "*" in path:
        raise CommandError(
            _("The ping URL of {name} is not known", name=found["name"]),
            FAILED,
            hint=_("it is shown when it is made: `chimes monitor rotate` makes a new one"),
        )
    # Without the prefix of a proxy: the backend calls the server itself.
    path = path[path.index("/ping/") :]
    last = verb if exit_code is None else str(exit_code)
    query = f"?rid={rid}" if rid else ""
    answer = backend.request("POST", path + (f"/{last}" if last else "") + query)
    if answer.status != 200:
        raise CommandError(answer.body.decode(errors="replace").strip(), FAILED)
    echo("OK")


IMPORT_COMMANDS = {
    "healthchecks": LazyCommand(
        "chimes.cli.operations.monitor", "import_healthchecks", "Import checks of Healthchecks."
    ),
}


@click.group("import", cls=LazyGroup, lazy=IMPORT_COMMANDS)
def import_group() -> None:
    """Import monitors of another system.

    \b
    Examples:
      chimes monitor import healthchecks checks.json --dry-run
    """


@click.command("healthchecks", cls=Command)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only show what would be created.")
@confirm_options
@output_options
@lazy_client_options
@click.pass_context
def import_healthchecks(
    ctx: click.Context,
    open_backend: Callable[..., Backend],
    output: Output,
    confirm: Callable[..., bool],
    file: Path,
    dry_run: bool,
) -> None:
    """Create monitors for the checks in FILE: the answer of Healthchecks to GET /api/v3/checks/.
    Checks whose name is in use are skipped. Jobs have to call the new URLs.

    \b
    Examples:
      curl -H "X-Api-Key: $KEY" https://healthchecks.io/api/v3/checks/ > checks.json
      chimes monitor import healthchecks checks.json --dry-run
      chimes monitor import healthchecks checks.json --yes
    """
    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise CommandError(
            _("{file} cannot be read: {reason}", file=file, reason=error.strerror), USAGE
        ) from None
    except ValueError:
        raise CommandError(_("{file} is not JSON", file=file), USAGE) from None
    backend = open_backend(create=not dry_run)
    body: Json = {"format": "healthchecks", "data": data, "dry_run": True}
    plan = items_of(post(backend, "/monitors/import", body))
    wanted = sum(each["action"] == "create" for each in plan)
    if dry_run or not wanted:
        output.rows(plan, _IMPORT_COLUMNS)
        echo_err(_("Nothing was created."))
        return
    question = counted("Create {count} monitor?", "Create {count} monitors?", wanted)
    if not confirm(question):
        echo_err(_("Nothing was created."))
        ctx.exit(FAILED)
    made = post(backend, "/monitors/import", body | {"dry_run": False})
    output.rows(items_of(made), _IMPORT_COLUMNS)


_IMPORT_COLUMNS = [
    Column(_("name"), getter("name")),
    Column(_("action"), getter("action")),
    Column(_("when"), getter("words"), rank=2),
    Column(_("ping URL"), getter("ping_url"), rank=1, max_width=200),
    Column(_("message"), getter("message"), rank=3),
]


def find_monitor(backend: Backend, reference: str) -> Json:
    found = find_exact(backend, "monitors", reference)
    if found is not None:
        return found
    rows = list(islice(paginate(backend, "/monitors"), _SEARCH_LIMIT))
    named = [row for row in rows if row.get("name") == reference]
    folded = reference.casefold()
    matches = named or [
        row
        for row in rows
        if slug(str(row.get("name", ""))) == folded or has_prefix(row, reference)
    ]
    words = [str(row.get("name", "")) for row in rows]
    missing = _("No monitor {reference!r}", reference=reference)
    return only_row(
        matches, reference, words, missing, _("list monitors with `chimes monitor list`")
    )
