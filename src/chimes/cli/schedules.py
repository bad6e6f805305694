"""Commands for schedules: `add`, `ls`, `show`, `rm`, `upcoming`, `pause`, `resume`, `run`, `skip`,
`move` and `backfill`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.backend import (
    Backend,
    api_path,
    delete,
    find_run,
    find_schedule,
    get,
    items_of,
    paginate,
    post,
    run_exit_code,
    wait_for,
)
from chimes.cli.command import FAILED, NOT_FOUND, UNREACHABLE, USAGE, Command, CommandError
from chimes.cli.options import (
    PolicyCommand,
    WholeNumber,
    api_time,
    client_options,
    confirm_options,
    default_zone,
    lazy_client_options,
    output_format_options,
    output_options,
)
from chimes.cli.output import (
    RUN_COLUMNS,
    RUN_DETAILS,
    Column,
    Json,
    Output,
    Progress,
    countdown,
    current_language,
    echo,
    echo_err,
    explicit_language,
    getter,
    parse_time,
    piped_schedule_columns,
    schedule_columns,
    schedule_details,
)
from chimes.clock import SystemClock
from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.redaction import escape_control, mask_url

if TYPE_CHECKING:
    from chimes.triggers import Trigger

_SORTS = {
    "next": "next_run_at",
    "name": "name",
    "created": "created_at",
    "updated": "updated_at",
}
_BAR_WIDTH = 48


@click.command("ls", cls=Command)
@click.argument("filter_words", metavar="[FILTER]...", nargs=-1)
@click.option(
    "--paused", "enabled", flag_value=False, type=bool, default=None, help="Only paused schedules."
)
@click.option("--active", "enabled", flag_value=True, type=bool, help="Only active schedules.")
@click.option("--label", metavar="NAME[=VALUE]", help="Only schedules with this label.")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="next", show_default=True)
@click.option("-n", "--limit", type=WholeNumber(1), default=None, help="At most this many.")
@output_options
@client_options
def ls(
    backend: Backend,
    output: Output,
    filter_words: tuple[str, ...],
    enabled: bool | None,
    label: str | None,
    sort: str,
    limit: int | None,
) -> None:
    """List schedules, or those that match a FILTER, as in the search box of the dashboard: words of
    the name, and the conditions status, label, kind, owner, next and namespace.

    \b
    Examples:
      chimes ls
      chimes ls report --active --sort name
      chimes ls status:failed label:billing "next:<1h"
      chimes ls --json=id,name,next_run_at
      chimes ls -q --paused | xargs chimes resume
    """
    query = {
        "q": " ".join(filter_words),
        "enabled": None if enabled is None else str(enabled).lower(),
        "label": label,
        "sort": _SORTS[sort],
    }
    _print_schedules(output, paginate(backend, "/schedules", limit, **query))


@click.command("show", cls=Command)
@click.argument("schedule", metavar="SCHEDULE|RUN")
@output_options
@client_options
def show(backend: Backend, output: Output, schedule: str) -> None:
    """Show one schedule or one run, by an id, a prefix of an id, or the name of the schedule. A
    prefix that fits both means the schedule.

    \b
    Examples:
      chimes show "Morning report"
      chimes show 0199 --json
      chimes show "Morning report" --json=policy
    """
    try:
        found = find_schedule(backend, schedule)
    except CommandError as error:
        if error.code != NOT_FOUND:
            raise
        try:
            run = find_run(backend, schedule)
        except CommandError as other:
            raise (error if other.code == NOT_FOUND else other) from None
        output.one(run, RUN_DETAILS)
        return
    output.one(found, schedule_details(SystemClock().now()))


@click.command("rm", cls=Command)
@click.argument("schedules", nargs=-1, required=True)
@confirm_options
@client_options
@click.pass_context
def rm(
    ctx: click.Context, backend: Backend, confirm: Callable[..., bool], schedules: tuple[str, ...]
) -> None:
    """Delete schedules. Runs in progress continue.

    \b
    Examples:
      chimes rm "Morning report"
      chimes rm 0199aa 0199bb --yes
    """
    found = [find_schedule(backend, each) for each in schedules]
    names = ", ".join(str(each.get("name") or each["id"]) for each in found)
    if not confirm(_("Delete {names}?", names=names), explicit=True):
        echo_err(_("Nothing was deleted. Use --yes to delete without confirmation."))
        ctx.exit(FAILED)
    for each in found:
        delete(backend, api_path("schedules", each["id"]))
        echo(escape_control(str(each["id"])))


@click.command("upcoming", cls=Command)
@click.option("--for", "span", default="24h", show_default=True, metavar="DURATION")
@output_options
@client_options
def upcoming(backend: Backend, output: Output, span: str) -> None:
    """Show upcoming runs, as a timeline on a terminal.

    \b
    Examples:
      chimes upcoming
      chimes upcoming --for 2h --utc
    """
    from chimes.triggers import parse_duration

    length = parse_duration(span, field="--for")
    hours = length / timedelta(hours=1)
    now = SystemClock().now()
    items = items_of(get(backend, "/upcoming", hours=hours, limit=1000))
    if output.format == "ids":
        rows: list[Json] = [item | {"id": item.get("schedule_id")} for item in items]
        output.rows(rows, [])
        return
    columns = [
        Column(_("at"), getter("at"), time=True),
        Column(_("schedule"), getter("name")),
        Column(_("id"), getter("schedule_id"), rank=2, min_chars=8),
    ]
    if output.is_table:
        columns += [
            Column(_("in"), lambda item: countdown(parse_time(str(item["at"])), now), rank=1),
            Column("", lambda item: _bar(parse_time(str(item["at"])) - now, length), rank=3),
        ]
    output.rows(items, columns)


def _bar(left: timedelta, length: timedelta) -> str:
    position = min(_BAR_WIDTH - 1, max(0, int(left / length * _BAR_WIDTH)))
    return "·" * position + "█" + "·" * (_BAR_WIDTH - 1 - position)


# --- targets from options -------------------------------------------------------------------------
_MAX_NAME_LENGTH = 80
#: Options of each kind of target.
_KIND_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "http": ("method", "header", "body"),
    "task": ("arg", "args"),
    "flow": ("input",),
    "sync": (),
    "agent": ("prompt", "model"),
    "action": ("kn", "branch", "identity", "param", "account"),
    "message": (),
    "command": (
        *("shell", "cwd", "env", "stdin", "user", "umask", "success_code"),
        *("memory_limit", "cpu_limit", "output_limit", "kill_after", "require"),
    ),
    # Any kind, as the API has it: engines and brokers have no options of their own.
    "target": (),
}


def target_from_options(options: Mapping[str, object], task: str = "") -> tuple[Json, str]:
    """The target and a default name of the schedule.

    `task` is the part of the expression that is not about time. Without another target it is the
    prompt for the agent."""
    given = [kind for kind in _KIND_OPTIONS if options[kind]]
    if options["shell"] and "command" not in given:
        given.append("command")
    if not given and (options["prompt"] or task):
        given = ["agent"]
    if len(given) != 1:
        raise click.UsageError(
            _(
                "Give one target: --http URL, --task NAME, --flow NAME,"
                " --sync SOURCE/COLLECTION, --agent --prompt TEXT, --action ID --kn ID,"
                " --message TEXT, --command COMMAND, --shell TEXT, --target JSON, or a prompt"
                " after the time."
            )
        )
    kind = given[0]
    for other in _KIND_OPTIONS:
        for option in _KIND_OPTIONS[other]:
            if other != kind and options[option]:
                raise click.UsageError(
                    _(
                        "--{option} cannot be used with --{chosen}; it belongs to --{owner}.",
                        option=option,
                        owner=other,
                        chosen=kind,
                    )
                )
    target, default_name = _agent(options, task) if kind == "agent" else _target(kind, options)
    return target, _first_line(task) or default_name


def _target(kind: str, options: Mapping[str, object]) -> tuple[Json, str]:
    if kind == "http":
        return _http(options)
    if kind == "command":
        return _command(options)
    name = str(options[kind])
    if kind == "target":
        given = _json_object(read_text_argument(name), "--target")
        return given, f"{given.get('kind', '')} {given.get('connection', '')}".strip()
    if kind == "sync":
        return _sync(name)
    if kind == "action":
        return _action(name, options)
    if kind == "message":
        text = read_text_argument(name)
        return {"kind": "message", "text": text}, _first_line(text)
    if kind == "flow":
        start = _json_object(options["input"], "--input")
        return {"kind": "flow", "name": name, "input": start}, f"{kind} {name}"
    args = _json_object(options["args"], "--args")
    args |= dict(_argument(each) for each in _texts(options["arg"]))
    return {"kind": "task", "name": name, "args": args}, f"{kind} {name}"


def _http(options: Mapping[str, object]) -> tuple[Json, str]:
    method, url = str(options["method"] or "POST").upper(), str(options["http"])
    target: Json = {"kind": "http", "url": url, "method": method}
    headers = _texts(options["header"])
    if headers:
        target["headers"] = dict(_header(each) for each in headers)
    if isinstance(options["body"], str):
        target["body"] = read_text_argument(options["body"])
    return target, f"{method} {mask_url(url)}"


def _command(options: Mapping[str, object]) -> tuple[Json, str]:
    from chimes.triggers import format_duration_iso, parse_duration

    command, shell = options["command"], options["shell"]
    target: Json = {"kind": "command"}
    if command and shell:
        raise click.UsageError(_("Give either --command or --shell."))
    if isinstance(command, str):
        try:
            target["command"] = shlex.split(command)
        except ValueError:
            raise click.UsageError(_("A quotation mark in --command is not closed.")) from None
    else:
        target["shell"] = read_text_argument(str(shell))
    for option in ("cwd", "user", "umask", "memory_limit", "output_limit"):
        if options[option] is not None:
            target[option] = options[option]
    for option in ("cpu_limit", "kill_after"):
        if isinstance(text := options[option], str):
            target[option] = format_duration_iso(parse_duration(text, allow_zero=True))
    if isinstance(options["stdin"], str):
        target["stdin"] = read_text_argument(options["stdin"])
    if variables := _texts(options["env"]):
        target["env"] = dict(_pair(each, "--env") for each in variables)
    if labels := _texts(options["require"]):
        target["requires"] = dict(_pair(each, "--require") for each in labels)
    if isinstance(codes := options["success_code"], tuple) and codes:
        target["success_codes"] = list(codes)
    return target, _first_line(str(command or target["shell"]))


def _pair(text: str, option: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(
            _("{option} must be NAME=VALUE, not {text!r}.", option=option, text=text)
        )
    return name, value


def _agent(options: Mapping[str, object], task: str) -> tuple[Json, str]:
    given = options["prompt"]
    prompt = read_text_argument(given) if isinstance(given, str) else task
    if not prompt.strip():
        raise click.UsageError(_("--agent needs a prompt: give --prompt TEXT."))
    target: Json = {"kind": "agent", "prompt": prompt}
    if options["model"]:
        target["model"] = options["model"]
    return target, _first_line(prompt)


def _first_line(text: str) -> str:
    line = " ".join(text.strip().partition("\n")[0].split())
    return line if len(line) <= _MAX_NAME_LENGTH else f"{line[: _MAX_NAME_LENGTH - 1]}…"


def _sync(text: str) -> tuple[Json, str]:
    source, slash, collection = text.partition("/")
    if not slash or not source or not collection:
        raise click.UsageError(_("--sync must be SOURCE/COLLECTION, not {text!r}.", text=text))
    kind = "sync"
    return {"kind": kind, "source": source, "collection": collection}, f"{kind} {text}"


def _action(name: str, options: Mapping[str, object]) -> tuple[Json, str]:
    if not options["kn"]:
        raise click.UsageError(_("--action needs a knowledge network: give --kn ID."))
    target: Json = {
        "kind": "action",
        "action_type_id": name,
        "kn_id": options["kn"],
        "identities": [_json_object(each, "--identity") for each in _texts(options["identity"])],
        "params": dict(_argument(each) for each in _texts(options["param"])),
    }
    if options["branch"]:
        target["branch"] = options["branch"]
    if isinstance(account := options["account"], str):
        account_id, _colon, account_type = account.partition(":")
        target["account"] = {"id": account_id, "type": account_type}
    return target, f"action {name}"


def payload_overrides(
    params: Sequence[str], body: str | None, prompt: str | None, message: str | None
) -> Json:
    """Payload fields that replace those of the schedule for one run."""
    found: Json = {}
    if params:
        found["params"] = dict(_argument(each) for each in params)
    if body is not None:
        found["body"] = read_text_argument(body)
    if prompt is not None:
        found["prompt"] = read_text_argument(prompt)
    if message is not None:
        found["text"] = read_text_argument(message)
    return found


def _argument(text: str) -> tuple[str, object]:
    """NAME=VALUE, where VALUE is JSON if it parses as such, else text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(_("An argument must be NAME=VALUE, not {text!r}.", text=text))
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _json_object(text: object, option: str) -> Json:
    if not isinstance(text, str):
        return {}
    try:
        found = json.loads(read_text_argument(text))
    except ValueError as error:
        raise click.UsageError(
            _("{option} is not valid JSON: {reason}.", option=option, reason=error)
        ) from None
    if not isinstance(found, dict):
        raise click.UsageError(
            _('{option} must be a JSON object such as \'{{"name": "Ada"}}\'.', option=option)
        )
    return found


def _texts(value: object) -> Sequence[str]:
    return [str(each) for each in value] if isinstance(value, tuple) else []


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name.strip():
        raise click.UsageError(_("A header must be 'Name: value', not {text!r}.", text=text))
    return name.strip(), value.strip()


def read_text_argument(text: str) -> str:
    """The text itself; @FILE reads a file, - reads stdin."""
    if text == "-":
        return sys.stdin.read()
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            _("Cannot read {file}: {reason}", file=text[1:], reason=error), USAGE
        ) from None


# --- actions on schedules -------------------------------------------------------------------------
def _select(backend: Backend, references: tuple[str, ...], matching: str | None) -> list[Json]:
    if bool(references) == bool(matching):
        raise click.UsageError(_("Give either schedules or --all-matching FILTER."))
    if matching:
        return list(paginate(backend, "/schedules", q=matching))
    return [find_schedule(backend, each) for each in references]


def _post_action(backend: Backend, schedule: Json, verb: str, body: Json) -> Json:
    return post(backend, api_path("schedules", schedule["id"], verb), body)


def _print_schedules(output: Output, schedules: Iterable[Json]) -> None:
    columns = schedule_columns(SystemClock().now()) if output.is_table else piped_schedule_columns()
    output.rows(schedules, columns)


@click.command("pause", cls=Command)
@click.argument("schedules", nargs=-1)
@click.option(
    "--all-matching",
    "matching",
    metavar="FILTER",
    help="All schedules that match this filter, as in `chimes ls FILTER`.",
)
@click.option("--reason", default="", help="Reason, shown with the schedule.")
@click.option("--until", metavar="TIME", help="Resume automatically at this time, such as 'in 2h'.")
@output_options
@client_options
def pause(
    backend: Backend,
    output: Output,
    schedules: tuple[str, ...],
    matching: str | None,
    reason: str,
    until: str | None,
) -> None:
    """Pause schedules. They do not fire until they are resumed.

    \b
    Examples:
      chimes pause "Morning report" --reason "maintenance"
      chimes pause --all-matching "label:billing report" --until "tomorrow 08:00"
    """
    body: Json = {"reason": reason} if reason else {}
    if until:
        body["until"] = api_time(until, field="--until")
    found = _select(backend, schedules, matching)
    _print_schedules(output, [_post_action(backend, each, "pause", body) for each in found])


@click.command("resume", cls=Command)
@click.argument("schedules", nargs=-1)
@click.option(
    "--all-matching",
    "matching",
    metavar="FILTER",
    help="All schedules that match this filter, as in `chimes ls FILTER`.",
)
@output_options
@client_options
def resume(
    backend: Backend, output: Output, schedules: tuple[str, ...], matching: str | None
) -> None:
    """Resume paused schedules with their next slot.

    \b
    Examples:
      chimes resume "Morning report"
      chimes resume --all-matching "status:paused label:billing"
    """
    found = _select(backend, schedules, matching)
    _print_schedules(output, [_post_action(backend, each, "resume", {}) for each in found])


@click.command("run", cls=Command)
@click.argument("schedule")
@click.option(
    "--wait", is_flag=True, help="Wait until the run has ended; exit code 8 if it failed."
)
@click.option(
    "--timeout", default="1h", show_default=True, help="How long to wait; exit code 124 after that."
)
@click.option(
    "--param", multiple=True, metavar="NAME=VALUE", help="Parameter for this run only; repeatable."
)
@click.option("--body", metavar="TEXT", help="HTTP body for this run only; @FILE reads a file.")
@click.option("--prompt", metavar="TEXT", help="Prompt for this run only; @FILE reads a file.")
@click.option(
    "--message", metavar="TEXT", help="Message text for this run only; @FILE reads a file."
)
@output_options
@client_options
@click.pass_context
def run_now(
    ctx: click.Context,
    backend: Backend,
    output: Output,
    schedule: str,
    wait: bool,
    timeout: str,
    param: tuple[str, ...],
    body: str | None,
    prompt: str | None,
    message: str | None,
) -> None:
    """Run a schedule now. Its next planned run does not change.

    \b
    Examples:
      chimes run "Morning report"
      chimes run 0199 --wait --timeout 5m
      chimes run "Morning report" --param day=monday --param copies=2
    """
    given = payload_overrides(param, body, prompt, message)
    found = find_schedule(backend, schedule)
    if wait and not backend.executes_runs:
        raise CommandError(
            _("Cannot wait: no server is running that would execute the run"),
            UNREACHABLE,
            hint=_("start one with `chimes serve`, or omit --wait"),
        )
    run = _post_action(backend, found, "run", given)
    if not backend.executes_runs:
        echo_err(_("The run is queued and starts when a server is running."))
    if wait:
        run = wait_for(backend, str(run["id"]), timeout)
    output.rows([run], RUN_COLUMNS)
    ctx.exit(run_exit_code(run) if wait else 0)


@click.command("skip", cls=Command)
@click.argument("schedule")
@click.option("--reason", default="", help="Reason for the audit log.")
@output_options
@client_options
def skip(backend: Backend, output: Output, schedule: str, reason: str) -> None:
    """Skip the next run of a schedule. The slot is recorded as skipped.

    \b
    Examples:
      chimes skip "Morning report" --reason "holiday"
    """
    found = find_schedule(backend, schedule)
    body: Json = {"reason": reason} if reason else {}
    _print_schedules(output, [_post_action(backend, found, "skip", body)])


@click.command("move", cls=Command)
@click.argument("schedule")
@click.option(
    "--to",
    "to",
    required=True,
    metavar="TIME",
    help="Such as 'tomorrow 10:00', 'in 2h' or RFC 3339; local times in the schedule's zone.",
)
@output_options
@client_options
def move(backend: Backend, output: Output, schedule: str, to: str) -> None:
    """Move the next run of a schedule to another time. Later runs do not change.

    \b
    Examples:
      chimes move "Morning report" --to "tomorrow 10:00"
      chimes move "Morning report" --to 2030-02-10T10:30:00+07:00
    """
    found = find_schedule(backend, schedule)
    zone = str(found.get("timezone") or "UTC")
    body: Json = {"to": api_time(to, zone=zone, field="--to"), "timezone": zone}
    _print_schedules(output, [_post_action(backend, found, "move", body)])


@click.command("backfill", cls=Command)
@click.argument("schedule")
@click.option(
    "--from", "start", required=True, metavar="TIME", help="Start of the range, inclusive."
)
@click.option("--to", "end", required=True, metavar="TIME", help="End of the range, inclusive.")
@click.option("--dry-run", is_flag=True, help="List the slots without running them.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    help="Maximum of concurrent backfill runs. Default: as the schedule.",
)
@click.option(
    "--overlap",
    type=click.Choice(["queue", "allow"]),
    default="queue",
    show_default=True,
    help="Wait for other runs of the schedule, or run beside them.",
)
@output_options
@client_options
def backfill(
    backend: Backend,
    output: Output,
    schedule: str,
    start: str,
    end: str,
    dry_run: bool,
    concurrency: int | None,
    overlap: str,
) -> None:
    """Run the slots in a time range that have no run yet. More than 1,000 slots are requested in
    chunks.

    \b
    Examples:
      chimes backfill report --from "3 days ago" --to now --dry-run
      chimes backfill report --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z
    """
    found = find_schedule(backend, schedule)
    zone = str(found.get("timezone") or "UTC")
    body: Json = {"timezone": zone, "dry_run": dry_run, "overlap": overlap}
    if concurrency is not None:
        body["concurrency"] = concurrency
    chunks = _backfill_chunks(
        found,
        api_time(start, zone=zone, past=True, field="--from"),
        api_time(end, zone=zone, past=True, field="--to"),
    )
    if len(chunks) > 1 and concurrency is not None and overlap == "allow":
        raise click.UsageError(
            _(
                "With --overlap allow, --concurrency limits at most {most} slots; choose a shorter"
                " range.",
                most=f"{BACKFILL_CHUNK:,}",
            )
        )
    slots: list[object] = []
    runs: list[object] = []
    with Progress(_("Queueing"), len(chunks)) as progress:
        for done, (first, last) in enumerate(chunks):
            progress.show(done)
            part = body | {"from": first, "to": last}
            answer = _post_action(backend, found, "backfill", part)
            slots += _list_field(answer, "slots")
            runs += _list_field(answer, "runs")
    if output.format in ("json", "ndjson"):
        output.one({"slots": slots, "runs": runs}, [])
        return
    if runs:
        output.rows([run for run in runs if isinstance(run, dict)], RUN_COLUMNS)
    else:
        for slot in slots:
            echo(output.format_time(str(slot)))
    if dry_run:
        echo_err(counted("{count} slot would run.", "{count} slots would run.", len(slots)))
    else:
        echo_err(counted("{count} slot queued.", "{count} slots queued.", len(slots)))


#: Slots of one request; the API takes no more.
BACKFILL_CHUNK = 1000


def _backfill_chunks(schedule: Json, start: str, end: str) -> list[tuple[str, str]]:
    """Begin and end of each request, which are inclusive."""
    from chimes.triggers import format_moment, parse_moment, trigger_from_dict

    first, last = parse_moment(start), min(parse_moment(end), SystemClock().now())
    trigger = trigger_from_dict(schedule["trigger"])
    chunks: list[tuple[str, str]] = []
    slot = trigger.next_after(first - timedelta(microseconds=1))
    begin, count = start, 0
    while slot is not None and slot <= last:
        count += 1
        if count > BACKFILL_CHUNK:
            border = format_moment(slot)
            chunks.append((begin, format_moment(slot - timedelta(microseconds=1))))
            begin, count = border, 1
        slot = trigger.next_after(slot)
    return [*chunks, (begin, end)]


def _list_field(answer: Json, name: str) -> list[object]:
    found = answer.get(name)
    return found if isinstance(found, list) else []


def recipient_argument(text: str) -> Json:
    """A recipient in the JSON form of the API. UsageError if it cannot be parsed."""
    from chimes.model.recipient import parse_recipient

    try:
        return parse_recipient(text)
    except InvalidInput as error:
        raise click.UsageError(error.message) from None


# --- add ------------------------------------------------------------------------------------------
_PREVIEW_FIRES = 5
_NO_SERVER_NOTE = _(
    "Note: no server is running. Prompts wait for a node with CHIMES_AGENT_PIPELINE and"
    " CHIMES_AGENT_URL."
)


@click.command("add", cls=PolicyCommand)
@click.argument("expression", required=False, default="")
@click.option("--on-webhook", is_flag=True, help="Run when a request reaches its webhook.")
@click.option("--scheme", metavar="NAME", help="Signature of webhooks: standard, github, stripe.")
@click.option("--secret", metavar="TEXT", help="Key of the signatures; @FILE reads a file.")
@click.option("--after", metavar="SCHEDULE", help="Run when a run of this schedule ends.")
@click.option(
    "--status", multiple=True, metavar="STATUS", help="With --after: only such ends; repeatable."
)
@click.option("--on-file", metavar="PATTERN", help="Run when such a file appears or changes.")
@click.option("--on-sql", metavar="QUERY", help="Run when this query begins to find something.")
@click.option("--connection", metavar="NAME", help="With --on-sql: a connection of chimes.yaml.")
@click.option("--interval", metavar="DURATION", help="With --on-sql: how often. Default: 1m.")
@click.option(
    "--debounce", metavar="DURATION", help="One run with the last event, after this long without."
)
@click.option("--throttle", metavar="DURATION", help="At most one run in this time.")
@click.option(
    "--batch", metavar="COUNT/DURATION", help="One run with this many events, or those of a time."
)
@click.option("--http", metavar="URL", help="Call this URL.")
@click.option("--method", help="HTTP method. Default: POST.")
@click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="HTTP header; repeatable.")
@click.option("--body", help="HTTP body; @FILE reads a file, - reads stdin.")
@click.option("--task", metavar="NAME", help="Run this task of an application.")
@click.option(
    "--arg", multiple=True, metavar="NAME=VALUE", help="Argument of the task; repeatable."
)
@click.option(
    "--args", metavar="JSON", help="Arguments of the task; @FILE reads a file, - reads stdin."
)
@click.option("--flow", metavar="NAME", help="Run this flow of an application.")
@click.option(
    "--input", metavar="JSON", help="Input of the flow; @FILE reads a file, - reads stdin."
)
@click.option("--sync", metavar="SOURCE/COLLECTION", help="Synchronise this collection.")
@click.option("--agent", is_flag=True, help="Send a prompt to the agent.")
@click.option(
    "--prompt", metavar="TEXT", help="Prompt for the agent; @FILE reads a file, - reads stdin."
)
@click.option("--model", metavar="NAME", help="Model of the agent. Default: as configured.")
@click.option(
    "--message", metavar="TEXT", help="Send only this message; @FILE reads a file, - reads stdin."
)
@click.option("--action", metavar="ID", help="Execute this action type.")
@click.option("--kn", metavar="ID", help="Knowledge network of the action.")
@click.option("--branch", metavar="NAME", help="Branch of the knowledge network. Default: main.")
@click.option("--identity", multiple=True, metavar="JSON", help="Object of the action; repeatable.")
@click.option(
    "--param", multiple=True, metavar="NAME=VALUE", help="Parameter of the action; repeatable."
)
@click.option(
    "--account", metavar="ID[:TYPE]", help="Account on whose behalf the action is executed."
)
@click.option(
    "--target",
    metavar="JSON",
    help="A target of any kind as the API has it, such as celery or amqp; @FILE reads a file.",
)
@click.option("--command", metavar="COMMAND", help="Program and arguments, quoted as in a shell.")
@click.option("--shell", metavar="TEXT", help="Text for /bin/sh; @FILE reads a file.")
@click.option("--cwd", metavar="DIR", help="Working directory of the command.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Variable; repeatable.")
@click.option("--stdin", metavar="TEXT", help="Standard input of the command; @FILE reads a file.")
@click.option("--user", metavar="NAME", help="User of the command, if the worker runs as root.")
@click.option("--umask", metavar="OCTAL", help="File mode mask of the command.")
@click.option(
    "--success-code",
    type=WholeNumber(0, 255),
    multiple=True,
    help="Exit code that counts as success; repeatable. Default: 0.",
)
@click.option(
    "--memory-limit", type=WholeNumber(1), metavar="BYTES", help="Memory of each process."
)
@click.option("--cpu-limit", metavar="DURATION", help="CPU time of each process.")
@click.option(
    "--output-limit",
    type=WholeNumber(1),
    metavar="BYTES",
    help="Stop a command that writes more than this.",
)
@click.option(
    "--kill-after",
    metavar="DURATION",
    help="Time between SIGTERM and SIGKILL when the command is stopped. Default: 10s.",
)
@click.option(
    "--require", multiple=True, metavar="NAME=VALUE", help="Label of the worker; repeatable."
)
@click.option(
    "--notify",
    multiple=True,
    metavar="CHANNEL[:TO][:OPTION=...]",
    help="Notify inbox, telegram:CHAT, webhook:URL or email:ADDRESS when runs end; repeatable."
    " Options: on=success+failure+recovery+late+always, late=5m, after=15m, quiet=22:00-07:00,"
    " digest=hourly|daily@08:00|weekly@monday@08:00, urgent=failure (bypasses quiet and digest).",
)
@click.option("--tz", "zone", metavar="ZONE", help="Time zone of the expression.")
@click.option("--name", help="Name of the schedule. Default: made from the target.")
@click.option("--label", multiple=True, metavar="NAME[=VALUE]", help="Label; repeatable.")
@click.option("--priority", type=WholeNumber(-1000, 1000), help="Higher runs first.")
@click.option("--jitter", metavar="DURATION", help="Delay each run by up to this much.")
@click.option("--paused", is_flag=True, help="Create it paused.")
@click.option("--dry-run", is_flag=True, help="Show the result without creating the schedule.")
@confirm_options
@output_format_options
@lazy_client_options
@click.pass_context
def add(
    ctx: click.Context,
    /,
    open_backend: Callable[[], Backend],
    output: Output,
    confirm: Callable[..., bool],
    expression: str,
    zone: str | None,
    jitter: str | None,
    dry_run: bool,
    **options: object,
) -> None:
    """Create a schedule that calls a URL, runs a command, a task or a flow, synchronises a
    collection, sends a prompt to the agent, executes an action, or sends a message.

    EXPRESSION is a cron expression, an interval ("every 5m"), a time for a single run, or a phrase
    in English, Thai or Chinese. The rest of the phrase is the prompt, unless --prompt is given.

    \b
    Examples:
      chimes add "0 9 * * 1-5" --tz Asia/Bangkok --http https://example.com/report
      chimes add "every 5m" --http http://localhost:8000/tick --method GET --retry 2
      chimes add 2030-02-10T09:00:00+07:00 --http https://example.com/once --body @order.json
      chimes add "every night at 2" --command "backup.sh --all" --notify inbox:on=failure
      chimes add @hourly --shell 'df -h > "$HOME/disk.txt"' --env HOME=/srv
      chimes add "0 2 * * *" --task reports.nightly --arg days=7
      chimes add @hourly --flow pipeline --input '{"source": "s3"}'
      chimes add @hourly --sync shop/orders
      chimes add "*/15 * * * *" --http https://example.com/ --dry-run
      chimes add "ทุกวัน 09:00 สรุปข่าว AI" --notify inbox --notify telegram:4711:on=failure
      chimes add @hourly --task sync --notify email:ada@example.com:on=late+failure:digest=daily
      chimes add "0 9 * * 1-5" --agent --prompt "Summarise today's news"
      chimes add @hourly --action restart_pod --kn kn1 --identity '{"pod_ip": "10.0.0.1"}'
      chimes add --on-webhook --scheme github --secret @secret.txt --http https://example.com/build
      chimes add --after "Nightly import" --status succeeded --task reports.nightly
      chimes add --on-file "/srv/in/*.csv" --debounce 30s --command "/srv/load.sh"
    """
    from chimes.triggers import trigger_from_dict

    event = _event_json(options, open_backend)
    task, lang = "", explicit_language() or current_language()
    if event is not None:
        if expression or jitter:
            raise click.UsageError(_("An event needs no EXPRESSION and no --jitter."))
        trigger = trigger_from_dict(event)
    elif not expression:
        raise click.UsageError(
            _("Give a time as EXPRESSION, or --on-webhook, --after, --on-file or --on-sql.")
        )
    else:
        trigger, task, lang = _read_expression(expression, zone)
    if jitter:
        trigger = trigger_from_dict({**trigger.to_dict(), "jitter": jitter})
    body = _schedule_json(trigger, task, options)
    _print_trigger(trigger, lang)
    target = body["target"]
    is_prompt = isinstance(target, dict) and target["kind"] == "agent"
    if task and is_prompt:
        echo_err(f"  → {task}")
    if dry_run:
        if output.format in ("json", "ndjson"):
            echo(json.dumps(body, ensure_ascii=False, indent=2))
        echo_err(_("Nothing was created."))
        return
    if not confirm(_("Create it?")):
        echo_err(_("Nothing was created."))
        ctx.exit(FAILED)
    backend = open_backend()
    created = post(backend, "/schedules", body)
    if is_prompt and not backend.executes_runs:
        echo_err(_NO_SERVER_NOTE)
    output.one(created, schedule_details(SystemClock().now()))


def _read_expression(expression: str, zone: str | None) -> tuple[Trigger, str, str]:
    """The trigger, the rest of the phrase, and the language for its description."""
    from chimes.triggers.text import is_expression, parse_trigger_text

    chosen = explicit_language()
    if is_expression(expression):  # The parser of sentences takes longer to import than all else.
        trigger = parse_trigger_text(expression, zone or default_zone())
        return trigger, "", chosen or current_language()
    from chimes.language import read_trigger

    now = SystemClock().now()
    parsed = read_trigger(expression, now=now, timezone=zone or default_zone(), lang=chosen)
    return parsed.trigger, parsed.task, chosen or parsed.language


#: The option of each event, and those that belong to it.
_EVENT_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "on_webhook": ("scheme", "secret"),
    "after": ("status",),
    "on_file": (),
    "on_sql": ("connection", "interval"),
}
_PACES = ("debounce", "throttle", "batch")


def _event_json(options: Mapping[str, object], open_backend: Callable[[], Backend]) -> Json | None:
    """The trigger of the event options; None if there is none."""
    given = [name for name in _EVENT_OPTIONS if options[name]]
    if len(given) > 1:
        raise click.UsageError(_("Give one of --on-webhook, --after, --on-file and --on-sql."))
    mine = _EVENT_OPTIONS[given[0]] if given else ()
    for name in (*(each for names in _EVENT_OPTIONS.values() for each in names), *_PACES):
        if options[name] and name not in mine and not (given and name in _PACES):
            raise click.UsageError(_("--{option} needs another event.", option=name))
    if not given:
        return None
    trigger: Json
    match given[0]:
        case "on_webhook":
            trigger = {"kind": "webhook", "scheme": options["scheme"] or "none"}
            if options["secret"]:
                trigger["secret"] = read_text_argument(str(options["secret"])).strip()
        case "after":
            source = find_schedule(open_backend(), str(options["after"]))
            trigger = {"kind": "run_end", "schedule": source["id"]}
            if options["status"]:
                trigger["status"] = list(_texts(options["status"]))
        case "on_file":
            trigger = {"kind": "file", "path": options["on_file"]}
        case _:
            trigger = {"kind": "sql", "query": options["on_sql"]}
            trigger |= {name: options[name] for name in ("connection", "interval") if options[name]}
    trigger |= {name: options[name] for name in ("debounce", "throttle") if options[name]}
    if options["batch"]:
        count, _slash, within = str(options["batch"]).partition("/")
        if not count.isdigit() or not within:
            raise click.UsageError(_("--batch takes COUNT/DURATION such as 10/1m."))
        trigger["batch"] = {"count": int(count), "within": within}
    return trigger


def _print_trigger(trigger: Trigger, lang: str) -> None:
    from chimes.cli.time import fires_after, format_fire
    from chimes.language import describe, note_in_words, warning_line, warnings_in_words

    echo_err(describe(trigger, lang))
    if trigger.on_event:
        return
    now = SystemClock().now()
    for fire in fires_after(trigger.with_default_anchor(), now, _PREVIEW_FIRES, lang):
        note = f"  ({note_in_words(fire.note, lang)})" if fire.note else ""
        echo_err(f"  {format_fire(fire, lang)}{note}")
    for warning in warnings_in_words(trigger, lang):
        echo_err(warning_line(warning, lang))


def _schedule_json(trigger: Trigger, task: str, options: dict[str, object]) -> Json:
    from chimes.model.policy import command_options

    target, default_name = target_from_options(options, task)
    policy = {each.json: options[each.name] for each in command_options().values()}
    body: Json = {
        "name": options["name"] or default_name[:200],
        "trigger": trigger.to_dict(),
        "target": target,
        "policy": {name: value for name, value in policy.items() if value is not None},
        "labels": dict(_label(each) for each in _texts(options["label"])),
        "enabled": not options["paused"],
    }
    if options["priority"] is not None:
        body["priority"] = options["priority"]
    if notified := _texts(options["notify"]):
        body["delivery"] = [recipient_json(each) for each in notified]
    return body


def recipient_json(text: str) -> Json:
    """A recipient given as `--notify`."""
    from chimes.model.recipient import Channel

    found = recipient_argument(text)
    if found["channel"] not in {*Channel}:
        raise click.UsageError(
            _(
                "--notify takes inbox, telegram:CHAT, webhook:URL or email:ADDRESS, not {text!r}.",
                text=text,
            )
        )
    return found


def _label(text: str) -> tuple[str, str | None]:
    name, separator, value = text.partition("=")
    return name, value if separator else None
