"""Commands for schedules: `add`, `ls`, `show`, `rm`, `upcoming`, `pause`, `resume`, `run`, `skip`,
`move` and `backfill`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import click

from chimes.cli.backend import (
    Backend,
    api_path,
    delete,
    find_schedule,
    get,
    items_of,
    paginate,
    post,
    run_exit_code,
    wait_for,
)
from chimes.cli.command import FAILED, UNREACHABLE, USAGE, Command, CommandError
from chimes.cli.options import (
    WholeNumber,
    client_options,
    confirm_options,
    lazy_client_options,
    output_format_options,
    output_options,
    policy_options,
)
from chimes.cli.output import (
    RUN_COLUMNS,
    Column,
    Json,
    Output,
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
from chimes.cli.time import default_zone, fires_after, format_fire
from chimes.clock import SystemClock
from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.language import (
    describe,
    note_in_words,
    read_trigger,
    warning_line,
    warnings_in_words,
)
from chimes.model.policy import command_options
from chimes.model.recipient import Channel, parse_recipient
from chimes.model.target import TARGETS
from chimes.redaction import escape_control, mask_url
from chimes.triggers import Every, Trigger

_SORTS = {
    "next": "next_run_at",
    "name": "name",
    "created": "created_at",
    "updated": "updated_at",
}
_BAR_WIDTH = 48


@click.command("ls", cls=Command)
@click.argument("text", required=False)
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
    text: str | None,
    enabled: bool | None,
    label: str | None,
    sort: str,
    limit: int | None,
) -> None:
    """List schedules. TEXT filters by name.

    \b
    Examples:
      chimes ls
      chimes ls report --active --sort name
      chimes ls --json=id,name,next_run_at
      chimes ls -q --paused | xargs chimes resume
    """
    query = {
        "q": text,
        "enabled": None if enabled is None else str(enabled).lower(),
        "label": label,
        "sort": _SORTS[sort],
    }
    _print_schedules(output, paginate(backend, "/schedules", limit, **query))


@click.command("show", cls=Command)
@click.argument("schedule")
@output_options
@client_options
def show(backend: Backend, output: Output, schedule: str) -> None:
    """Show one schedule. SCHEDULE is an id, a prefix of an id, or a name.

    \b
    Examples:
      chimes show "Morning report"
      chimes show 0199 --json
    """
    output.one(find_schedule(backend, schedule), schedule_details(SystemClock().now()))


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
        Column(_("id"), getter("schedule_id"), rank=2),
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
}


def target_from_options(options: Mapping[str, object], task: str = "") -> tuple[Json, str]:
    """The target and a default name of the schedule.

    `task` is the part of the expression that is not about time. Without another target it is the
    prompt for the agent."""
    given = [kind for kind in TARGETS if options[kind]]
    if not given and (options["prompt"] or task):
        given = ["agent"]
    if len(given) != 1:
        raise click.UsageError(
            _(
                "Give one target: --http URL, --task NAME, --flow NAME,"
                " --sync SOURCE/COLLECTION, --agent --prompt TEXT, --action ID --kn ID,"
                " --message TEXT, or a prompt after the time."
            )
        )
    kind = given[0]
    for other in TARGETS:
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
    name = str(options[kind])
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
        raise click.UsageError(_("Give either schedules or --all-matching TEXT."))
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
    metavar="TEXT",
    help="All schedules whose name contains this text.",
)
@click.option("--reason", default="", help="Reason, shown with the schedule.")
@click.option("--until", metavar="TIME", help="Resume automatically at this time.")
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
      chimes pause --all-matching report --until 2030-01-01T00:00:00Z
    """
    body: Json = {"reason": reason} if reason else {}
    if until:
        body["until"] = until
    found = _select(backend, schedules, matching)
    _print_schedules(output, [_post_action(backend, each, "pause", body) for each in found])


@click.command("resume", cls=Command)
@click.argument("schedules", nargs=-1)
@click.option(
    "--all-matching",
    "matching",
    metavar="TEXT",
    help="All schedules whose name contains this text.",
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
      chimes resume --all-matching report
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
    help="RFC 3339, or local time in the schedule's zone.",
)
@output_options
@client_options
def move(backend: Backend, output: Output, schedule: str, to: str) -> None:
    """Move the next run of a schedule to another time. Later runs do not change.

    \b
    Examples:
      chimes move "Morning report" --to 2030-02-10T10:30:00+07:00
    """
    found = find_schedule(backend, schedule)
    body: Json = {"to": to, "timezone": found.get("timezone") or "UTC"}
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
    """Run the slots in a time range that have no run yet.

    \b
    Examples:
      chimes backfill report --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z --dry-run
    """
    found = find_schedule(backend, schedule)
    body: Json = {
        "from": start,
        "to": end,
        "timezone": found.get("timezone") or "UTC",
        "dry_run": dry_run,
        "overlap": overlap,
    }
    if concurrency is not None:
        body["concurrency"] = concurrency
    answer = _post_action(backend, found, "backfill", body)
    if output.format in ("json", "ndjson"):
        output.one(answer, [])
        return
    slots, runs = _list_field(answer, "slots"), _list_field(answer, "runs")
    if runs:
        output.rows([run for run in runs if isinstance(run, dict)], RUN_COLUMNS)
    else:
        for slot in slots:
            echo(output.format_time(str(slot)))
    if dry_run:
        echo_err(counted("{count} slot would run.", "{count} slots would run.", len(slots)))
    else:
        echo_err(counted("{count} slot queued.", "{count} slots queued.", len(slots)))


def _list_field(answer: Json, name: str) -> list[object]:
    found = answer.get(name)
    return found if isinstance(found, list) else []


def recipient_argument(text: str) -> Json:
    """A recipient in the JSON form of the API. UsageError if it cannot be parsed."""
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


@click.command("add", cls=Command)
@click.argument("expression")
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
    "--notify",
    multiple=True,
    metavar="CHANNEL[:TO][:OPTION=...]",
    help="Notify inbox, telegram:CHAT, webhook:URL or email:ADDRESS when runs end; repeatable."
    " Options: on=success+failure+recovery+late+always, late=5m, quiet=22:00-07:00,"
    " digest=hourly|daily@08:00|weekly@monday@08:00, urgent=failure (bypasses quiet and digest).",
)
@click.option("--tz", "zone", metavar="ZONE", help="Time zone of the expression.")
@click.option("--name", help="Name of the schedule. Default: made from the target.")
@click.option("--label", multiple=True, metavar="NAME[=VALUE]", help="Label; repeatable.")
@click.option("--priority", type=WholeNumber(-1000, 1000), help="Higher runs first.")
@policy_options
@click.option(
    "--jitter", metavar="DURATION", help="For intervals: delay each run by up to this much."
)
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
    """Create a schedule that calls a URL, runs a task or a flow, synchronises a collection, sends
    a prompt to the agent, executes an action, or sends a message.

    EXPRESSION is a cron expression, an interval ("every 5m"), a time for a single run, or a phrase
    in English, Thai or Chinese. The rest of the phrase is the prompt, unless --prompt is given.

    \b
    Examples:
      chimes add "0 9 * * 1-5" --tz Asia/Bangkok --http https://example.com/report
      chimes add "every 5m" --http http://localhost:8000/tick --method GET --retry 2
      chimes add 2030-02-10T09:00:00+07:00 --http https://example.com/once --body @order.json
      chimes add "0 2 * * *" --task reports.nightly --arg days=7
      chimes add @hourly --flow pipeline --input '{"source": "s3"}'
      chimes add @hourly --sync shop/orders
      chimes add "*/15 * * * *" --http https://example.com/ --dry-run
      chimes add "ทุกวัน 09:00 สรุปข่าว AI" --notify inbox --notify telegram:4711:on=failure
      chimes add @hourly --task sync --notify email:ada@example.com:on=late+failure:digest=daily
      chimes add "0 9 * * 1-5" --agent --prompt "Summarise today's news"
      chimes add @hourly --action restart_pod --kn kn1 --identity '{"pod_ip": "10.0.0.1"}'
    """
    chosen = explicit_language()
    now = SystemClock().now()
    parsed = read_trigger(expression, now=now, timezone=zone or default_zone(), lang=chosen)
    lang = chosen or (current_language() if parsed.pattern == "expression" else parsed.language)
    trigger = parsed.trigger
    if jitter:
        if not isinstance(trigger, Every):
            raise click.UsageError(_("--jitter needs an interval such as 'every 5m'."))
        trigger = Every(trigger.every, jitter=jitter)
    body = _schedule_json(trigger, parsed.task, options)
    _print_trigger(trigger, lang)
    target = body["target"]
    is_prompt = isinstance(target, dict) and target["kind"] == "agent"
    if parsed.task and is_prompt:
        echo_err(f"  → {parsed.task}")
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


def _print_trigger(trigger: Trigger, lang: str) -> None:
    echo_err(describe(trigger, lang))
    now = SystemClock().now()
    for fire in fires_after(trigger.anchored(now), now, _PREVIEW_FIRES, lang):
        note = f"  ({note_in_words(fire.note, lang)})" if fire.note else ""
        echo_err(f"  {format_fire(fire, lang)}{note}")
    for warning in warnings_in_words(trigger, lang):
        echo_err(warning_line(warning, lang))


def _schedule_json(trigger: Trigger, task: str, options: dict[str, object]) -> Json:
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
        body["delivery"] = [_recipient(each) for each in notified]
    return body


def _recipient(text: str) -> Json:
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
