"""`ls`, `show`, `rm`, `upcoming`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import click

from chimes.cli.backend import (
    Backend,
    delete,
    exit_code_of,
    find_schedule,
    get,
    items_of,
    pages,
    path_of,
    post,
    wait_for,
)
from chimes.cli.command import FAILED, UNREACHABLE, USAGE, Command, Failure
from chimes.cli.locale import chosen_by_name, spoken
from chimes.cli.options import (
    Whole,
    client_options,
    form_options,
    output_options,
    reach_options,
    yes_option,
)
from chimes.cli.output import (
    RUN_COLUMNS,
    Column,
    Json,
    Output,
    countdown,
    echo,
    parsed,
    pick,
    piped_schedule_columns,
    schedule_columns,
    schedule_details,
    tell,
)
from chimes.cli.time import default_zone, fires_after, shown_fire
from chimes.clock import SystemClock
from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.language import describe, note_in_words, read_trigger, remark, warnings_in_words
from chimes.model.recipient import parse_recipient
from chimes.redaction import escaped
from chimes.triggers import Every, Trigger

_SORTS = {
    "next": "next_run_at",
    "name": "name",
    "created": "created_at",
    "updated": "updated_at",
}
_BAR = 48


@click.command("ls", cls=Command)
@click.argument("text", required=False)
@click.option("--paused", "enabled", flag_value=False, type=bool, default=None, help="Only paused.")
@click.option("--active", "enabled", flag_value=True, type=bool, help="Only active.")
@click.option("--label", metavar="NAME[=VALUE]", help="Only with this label.")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="next", show_default=True)
@click.option("-n", "--limit", type=Whole(1), default=None, help="At most this many.")
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
    """List schedules; TEXT is part of a name.

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
    rows = pages(backend, "/schedules", limit, **query)
    columns = schedule_columns(SystemClock().now())
    output.rows(rows, columns if output.for_people else piped_schedule_columns())


@click.command("show", cls=Command)
@click.argument("schedule")
@output_options
@client_options
def show(backend: Backend, output: Output, schedule: str) -> None:
    """Show one schedule; SCHEDULE is an id, its beginning, or a name.

    \b
    Examples:
      chimes show "Morning report"
      chimes show 0199 --json
    """
    output.one(find_schedule(backend, schedule), schedule_details(SystemClock().now()))


@click.command("rm", cls=Command)
@click.argument("schedules", nargs=-1, required=True)
@yes_option
@client_options
@click.pass_context
def rm(
    ctx: click.Context, backend: Backend, ask: Callable[..., bool], schedules: tuple[str, ...]
) -> None:
    """Delete schedules. Runs that are under way go on to their end.

    \b
    Examples:
      chimes rm "Morning report"
      chimes rm 0199aa 0199bb --yes
    """
    found = [find_schedule(backend, each) for each in schedules]
    names = ", ".join(str(each.get("name") or each["id"]) for each in found)
    if not ask(_("Delete {names}?", names=names), careful=True):
        tell(_("Nothing was deleted; --yes would do it without asking."))
        ctx.exit(FAILED)
    for each in found:
        delete(backend, path_of("schedules", each["id"]))
        echo(escaped(str(each["id"])))


@click.command("upcoming", cls=Command)
@click.option("--for", "span", default="24h", show_default=True, metavar="DURATION")
@output_options
@client_options
def upcoming(backend: Backend, output: Output, span: str) -> None:
    """Show what comes next, as bars on a terminal.

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
    if output.form == "ids":
        rows: list[Json] = [item | {"id": item.get("schedule_id")} for item in items]
        output.rows(rows, [])
        return
    columns = [
        Column(_("at"), pick("at"), time=True),
        Column(_("schedule"), pick("name")),
        Column(_("id"), pick("schedule_id"), rank=2),
    ]
    if output.for_people:
        columns += [
            Column(_("in"), lambda item: countdown(parsed(str(item["at"])), now), rank=1),
            Column("", lambda item: _bar(parsed(str(item["at"])) - now, length), rank=3),
        ]
    output.rows(items, columns)


def _bar(left: timedelta, length: timedelta) -> str:
    place = min(_BAR - 1, max(0, int(left / length * _BAR)))
    return "·" * place + "█" + "·" * (_BAR - 1 - place)


# @@ `add --http|--task|--flow|--sync|--agent|--action|--message`: what a schedule is to do.

_KINDS = ("http", "task", "flow", "sync", "agent", "action", "message")
_LONGEST_NAME = 80
#: Which options belong to which kind.
_OWN: Mapping[str, tuple[str, ...]] = {
    "http": ("method", "header", "body"),
    "task": ("arg", "args"),
    "flow": ("input",),
    "sync": (),
    "agent": ("prompt", "model"),
    "action": ("kn", "branch", "identity", "param", "account"),
    "message": (),
}


def target_from_options(options: Mapping[str, object], task: str = "") -> tuple[Json, str]:
    """The target, and a name for a schedule that was given none. `task`: what is to be done as the
    words said it; where nobody is named to do it, it is a prompt."""
    given = [kind for kind in _KINDS if options[kind]]
    if not given and (options["prompt"] or task):
        given = ["agent"]
    if len(given) != 1:
        raise click.UsageError(
            _(
                "Say what to do with one of --http URL, --task NAME, --flow NAME,"
                " --sync SOURCE/COLLECTION, --agent --prompt TEXT, --action ID --kn ID,"
                " --message TEXT, or in words after the time."
            )
        )
    kind = given[0]
    for other in _KINDS:
        for option in _OWN[other]:
            if other != kind and options[option]:
                raise click.UsageError(
                    _(
                        "--{option} is for --{owner}, not for --{chosen}.",
                        option=option,
                        owner=other,
                        chosen=kind,
                    )
                )
    target, usual_name = _agent(options, task) if kind == "agent" else _target(kind, options)
    return target, _first_line(task) or usual_name


def _target(kind: str, options: Mapping[str, object]) -> tuple[Json, str]:
    if kind == "http":
        return _http(options)
    name = str(options[kind])
    if kind == "sync":
        return _sync(name)
    if kind == "action":
        return _action(name, options)
    if kind == "message":
        text = text_in(name)
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
        target["body"] = text_in(options["body"])
    return target, f"{method} {url}"


def _agent(options: Mapping[str, object], task: str) -> tuple[Json, str]:
    given = options["prompt"]
    prompt = text_in(given) if isinstance(given, str) else task
    if not prompt.strip():
        raise click.UsageError(_("Say what the agent is to do with --prompt TEXT."))
    target: Json = {"kind": "agent", "prompt": prompt}
    if options["model"]:
        target["model"] = options["model"]
    return target, _first_line(prompt)


def _first_line(text: str) -> str:
    line = " ".join(text.strip().partition("\n")[0].split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"


def _sync(text: str) -> tuple[Json, str]:
    source, slash, collection = text.partition("/")
    if not slash or not source or not collection:
        raise click.UsageError(
            _("--sync is written as SOURCE/COLLECTION, not {text!r}.", text=text)
        )
    kind = "sync"
    return {"kind": kind, "source": source, "collection": collection}, f"{kind} {text}"


def _action(name: str, options: Mapping[str, object]) -> tuple[Json, str]:
    if not options["kn"]:
        raise click.UsageError(_("Say of which knowledge network it is with --kn ID."))
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
        account_id, _unused, account_type = account.partition(":")
        target["account"] = {"id": account_id, "type": account_type}
    return target, f"action {name}"


def overrides(
    params: Sequence[str], body: str | None, prompt: str | None, message: str | None
) -> Json:
    """What one run has otherwise than its schedule, as the API takes it."""
    found: Json = {}
    if params:
        found["params"] = dict(_argument(each) for each in params)
    if body is not None:
        found["body"] = text_in(body)
    if prompt is not None:
        found["prompt"] = text_in(prompt)
    if message is not None:
        found["text"] = text_in(message)
    return found


def _argument(text: str) -> tuple[str, object]:
    """`n=5` is a number, `ok=true` a truth value; what is no JSON is text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(_("An argument is written as name=value, not {text!r}.", text=text))
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _json_object(text: object, option: str) -> Json:
    if not isinstance(text, str):
        return {}
    try:
        found = json.loads(text_in(text))
    except ValueError as error:
        raise click.UsageError(
            _("{option} is not JSON: {reason}.", option=option, reason=error)
        ) from None
    if not isinstance(found, dict):
        raise click.UsageError(
            _('{option} is a JSON object such as \'{{"name": "Ada"}}\'.', option=option)
        )
    return found


def _texts(value: object) -> Sequence[str]:
    return [str(each) for each in value] if isinstance(value, tuple) else []


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name.strip():
        raise click.UsageError(_("A header is written as 'Name: value', not {text!r}.", text=text))
    return name.strip(), value.strip()


def text_in(text: str) -> str:
    """What was given itself, or what stands in the file that it names."""
    if text == "-":
        return sys.stdin.read()
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(
            _("{file} cannot be read: {reason}", file=text[1:], reason=error), USAGE
        ) from None


# @@ `pause`, `resume`, `run`, `skip`, `move`, `backfill`.


def _chosen(backend: Backend, references: tuple[str, ...], matching: str | None) -> list[Json]:
    if bool(references) == bool(matching):
        raise click.UsageError(_("Name schedules, or give --all-matching TEXT."))
    if matching:
        return list(pages(backend, "/schedules", q=matching))
    return [find_schedule(backend, each) for each in references]


def _act(backend: Backend, schedule: Json, verb: str, body: Json) -> Json:
    return post(backend, path_of("schedules", schedule["id"], verb), body)


def _show(output: Output, schedules: list[Json]) -> None:
    people = output.for_people
    columns = schedule_columns(SystemClock().now()) if people else piped_schedule_columns()
    output.rows(schedules, columns)


@click.command("pause", cls=Command)
@click.argument("schedules", nargs=-1)
@click.option("--all-matching", "matching", metavar="TEXT", help="All whose name has this text.")
@click.option("--reason", default="", help="Kept with the schedule.")
@click.option("--until", metavar="TIME", help="Resume by itself then.")
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
    """Pause schedules: nothing fires until they are resumed.

    \b
    Examples:
      chimes pause "Morning report" --reason "maintenance"
      chimes pause --all-matching report --until 2030-01-01T00:00:00Z
    """
    body: Json = {"reason": reason} if reason else {}
    if until:
        body["until"] = until
    found = _chosen(backend, schedules, matching)
    _show(
        output, [post(backend, path_of("schedules", each["id"], "pause"), body) for each in found]
    )


@click.command("resume", cls=Command)
@click.argument("schedules", nargs=-1)
@click.option("--all-matching", "matching", metavar="TEXT", help="All whose name has this text.")
@output_options
@client_options
def resume(
    backend: Backend, output: Output, schedules: tuple[str, ...], matching: str | None
) -> None:
    """Resume paused schedules, from the next slot on.

    \b
    Examples:
      chimes resume "Morning report"
      chimes resume --all-matching report
    """
    found = _chosen(backend, schedules, matching)
    _show(output, [_act(backend, each, "resume", {}) for each in found])


@click.command("run", cls=Command)
@click.argument("schedule")
@click.option("--wait", is_flag=True, help="Until the run has ended; exit 8 if it failed.")
@click.option("--timeout", default="1h", show_default=True, help="How long to wait; exit 124.")
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="Another one, this once.")
@click.option("--body", metavar="TEXT", help="Of the call, this once; @FILE reads a file.")
@click.option("--prompt", metavar="TEXT", help="Of the agent, this once; @FILE reads a file.")
@click.option("--message", metavar="TEXT", help="What to tell, this once; @FILE reads a file.")
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
    """Run a schedule now; its next regular run stays where it is.

    \b
    Examples:
      chimes run "Morning report"
      chimes run 0199 --wait --timeout 5m
      chimes run "Morning report" --param day=monday --param copies=2
    """
    given = overrides(param, body, prompt, message)
    found = find_schedule(backend, schedule)
    if wait and not backend.live:
        raise Failure(
            _("Nobody would carry the run out: no server is running"),
            UNREACHABLE,
            hint=_("start one with `chimes serve`, or leave --wait out"),
        )
    run = _act(backend, found, "run", given)
    if not backend.live:
        tell(_("The run is queued; it starts when a server does."))
    if wait:
        run = wait_for(backend, str(run["id"]), timeout)
    output.rows([run], RUN_COLUMNS)
    ctx.exit(exit_code_of(run) if wait else 0)


@click.command("skip", cls=Command)
@click.argument("schedule")
@click.option("--reason", default="", help="Kept in the audit.")
@output_options
@client_options
def skip(backend: Backend, output: Output, schedule: str, reason: str) -> None:
    """Skip the next run of a schedule; the slot leaves a row that says so.

    \b
    Examples:
      chimes skip "Morning report" --reason "holiday"
    """
    found = find_schedule(backend, schedule)
    body: Json = {"reason": reason} if reason else {}
    _show(output, [_act(backend, found, "skip", body)])


@click.command("move", cls=Command)
@click.argument("schedule")
@click.option("--to", "to", required=True, metavar="TIME", help="RFC 3339, or local in its zone.")
@output_options
@client_options
def move(backend: Backend, output: Output, schedule: str, to: str) -> None:
    """Move the next run of a schedule to another time, once.

    \b
    Examples:
      chimes move "Morning report" --to 2030-02-10T10:30:00+07:00
    """
    found = find_schedule(backend, schedule)
    body: Json = {"to": to, "timezone": found.get("timezone") or "UTC"}
    _show(output, [_act(backend, found, "move", body)])


@click.command("backfill", cls=Command)
@click.argument("schedule")
@click.option("--from", "start", required=True, metavar="TIME", help="First moment, inclusive.")
@click.option("--to", "end", required=True, metavar="TIME", help="Last moment, inclusive.")
@click.option("--dry-run", is_flag=True, help="Only show which slots it would be.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    help="At most so many of them at a time; otherwise as the schedule.",
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
    """Run the slots of a stretch of time that have no run yet.

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
    answer = _act(backend, found, "backfill", body)
    if output.form in ("json", "ndjson"):
        output.one(answer, [])
        return
    slots, runs = _objects(answer, "slots"), _objects(answer, "runs")
    if runs:
        output.rows([run for run in runs if isinstance(run, dict)], RUN_COLUMNS)
    else:
        for slot in slots:
            echo(output.moment(str(slot)))
    if dry_run:
        tell(counted("{count} slot would run.", "{count} slots would run.", len(slots)))
    else:
        tell(counted("{count} slot is run.", "{count} slots are run.", len(slots)))


def _objects(answer: Json, name: str) -> list[object]:
    found = answer.get(name)
    return found if isinstance(found, list) else []


# @@ Recipients as they are written on a command line.


def written_recipient(text: str) -> Json:
    """As the API takes it; a usage error if an option would be lost."""
    try:
        return parse_recipient(text)
    except InvalidInput as error:
        raise click.UsageError(error.message) from None


# @@ `add`: create a schedule, after showing what was understood.

_SHOWN = 5
_CHANNELS = ("inbox", "telegram", "webhook", "email")
_NO_PIPELINE = _(
    "Note: no server was asked. Prompts wait for a node that has CHIMES_AGENT_PIPELINE and"
    " CHIMES_AGENT_URL."
)


@click.command("add", cls=Command)
@click.argument("expression")
@click.option("--http", metavar="URL", help="Call this URL.")
@click.option("--method", help="Of the call; POST unless told.")
@click.option("--header", multiple=True, metavar="'NAME: VALUE'")
@click.option("--body", help="Text to send; @FILE reads a file, - reads stdin.")
@click.option("--task", metavar="NAME", help="Run this task of an application.")
@click.option("--arg", multiple=True, metavar="NAME=VALUE", help="An argument of the task.")
@click.option("--args", metavar="JSON", help="All arguments; @FILE reads a file, - reads stdin.")
@click.option("--flow", metavar="NAME", help="Run this flow of an application.")
@click.option("--input", metavar="JSON", help="Of the flow; @FILE reads a file, - reads stdin.")
@click.option("--sync", metavar="SOURCE/COLLECTION", help="Synchronise this collection.")
@click.option("--agent", is_flag=True, help="Hand a prompt to the agent.")
@click.option("--prompt", metavar="TEXT", help="Of the agent; @FILE reads a file, - reads stdin.")
@click.option("--model", metavar="NAME", help="Of the agent; else as configured.")
@click.option("--message", metavar="TEXT", help="Only tell this; @FILE reads a file, - stdin.")
@click.option("--action", metavar="ID", help="Have this action type executed.")
@click.option("--kn", metavar="ID", help="The knowledge network of the action.")
@click.option("--branch", metavar="NAME", help="Of the knowledge network; main unless told.")
@click.option("--identity", multiple=True, metavar="JSON", help="An object the action is for.")
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="A parameter of the action.")
@click.option("--account", metavar="ID[:TYPE]", help="For whom the action is executed.")
@click.option(
    "--notify",
    multiple=True,
    metavar="CHANNEL[:TO][:OPTION=...]",
    help="Tell inbox, telegram:CHAT, webhook:URL or email:ADDRESS how runs end."
    " Options: on=success+failure+recovery+late+always, late=5m, quiet=22:00-07:00,"
    " digest=hourly|daily@08:00|weekly@monday@08:00, urgent=failure (past both).",
)
@click.option("--tz", "zone", metavar="ZONE", help="The zone the expression is in.")
@click.option("--name", help="Else made from the method and the URL.")
@click.option("--label", multiple=True, metavar="NAME[=VALUE]")
@click.option("--priority", type=Whole(-1000, 1000))
@click.option("--retry", type=Whole(0), help="Extra attempts after the first.")
@click.option("--timeout", metavar="DURATION", help="Of one attempt.")
@click.option("--overlap", type=click.Choice(["allow", "skip", "queue", "cancel_old"]))
@click.option("--misfire", type=click.Choice(["skip", "one", "all"]))
@click.option("--jitter", metavar="DURATION", help="For intervals: up to this much later.")
@click.option("--paused", is_flag=True, help="Create it paused.")
@click.option("--dry-run", is_flag=True, help="Only show what was understood.")
@yes_option
@form_options
@reach_options
@click.pass_context
def add(
    ctx: click.Context,
    /,
    reach: Callable[[], Backend],
    output: Output,
    ask: Callable[..., bool],
    expression: str,
    zone: str | None,
    jitter: str | None,
    dry_run: bool,
    **options: object,
) -> None:
    """Create a schedule that calls a URL, runs a task or a flow, synchronises a collection, hands
    a prompt to the agent, or has an action executed.

    EXPRESSION is a cron expression, an interval ("every 5m"), a moment for a single run, or words
    in Thai, English or Chinese. What they say besides the time is the prompt, unless told.

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
    chosen = chosen_by_name()
    now = SystemClock().now()
    read = read_trigger(expression, now=now, timezone=zone or default_zone(), lang=chosen)
    lang = chosen or (spoken() if read.pattern == "expression" else read.language)
    trigger = read.trigger
    if jitter:
        if not isinstance(trigger, Every):
            raise click.UsageError(_("--jitter is for intervals such as 'every 5m'."))
        trigger = Every(trigger.every, jitter=jitter)
    body = _request(trigger, read.task, options)
    _echo_reading(trigger, lang)
    target = body["target"]
    is_prompt = isinstance(target, dict) and target["kind"] == "agent"
    if read.task and is_prompt:
        tell(f"  → {read.task}")
    if dry_run:
        if output.form in ("json", "ndjson"):
            echo(json.dumps(body, ensure_ascii=False, indent=2))
        tell(_("Nothing was created."))
        return
    if not ask(_("Create it?")):
        tell(_("Nothing was created."))
        ctx.exit(FAILED)
    backend = reach()
    made = post(backend, "/schedules", body)
    if is_prompt and not backend.live:
        tell(_NO_PIPELINE)
    output.one(made, schedule_details(SystemClock().now()))


def _echo_reading(trigger: Trigger, lang: str) -> None:
    tell(describe(trigger, lang))
    now = SystemClock().now()
    for fire in fires_after(trigger.anchored(now), now, _SHOWN, lang):
        note = f"  ({note_in_words(fire.note, lang)})" if fire.note else ""
        tell(f"  {shown_fire(fire, lang)}{note}")
    for warning in warnings_in_words(trigger, lang):
        tell(remark(warning, lang))


def _request(trigger: Trigger, task: str, options: dict[str, object]) -> Json:
    target, usual_name = target_from_options(options, task)
    policy = {
        "max_retries": options["retry"],
        "timeout": options["timeout"],
        "overlap": options["overlap"],
        "misfire": options["misfire"],
    }
    body: Json = {
        "name": options["name"] or usual_name[:200],
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
    found = written_recipient(text)
    if found["channel"] not in _CHANNELS:
        raise click.UsageError(
            _(
                "--notify is inbox, telegram:CHAT, webhook:URL or email:ADDRESS, not {text!r}.",
                text=text,
            )
        )
    return found


def _label(text: str) -> tuple[str, str | None]:
    name, separator, value = text.partition("=")
    return name, value if separator else None
