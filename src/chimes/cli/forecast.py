"""`forecast`, `suggest` and `simulate`: what the coming days will be like."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.backend import Backend, connect, find_schedule, get, items_of, paginate, post
from chimes.cli.command import USAGE, Command, CommandError
from chimes.cli.options import (
    WholeNumber,
    client_options,
    default_zone,
    output_format_options,
    output_options,
    read_key_file,
)
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter, localize
from chimes.clock import SystemClock
from chimes.i18n import _

if TYPE_CHECKING:
    from chimes.config import Settings
    from chimes.model.planning import MaintenanceWindow
    from chimes.model.schedule import Schedule
    from chimes.model.simulation import SimulatedRun, Simulation

#: Minutes of a forecast that a table shows, and rows of a simulation.
_SHOWN = 20
#: Rows up to which JSON is indented.
_INDENTED = 2000
#: Runs that one node executes at once if its configuration does not say.
_WORKERS = 100


@click.command("forecast", cls=Command)
@click.option("--days", type=WholeNumber(1, 92), default=7, show_default=True)
@output_options
@client_options
def forecast(backend: Backend, output: Output, days: int) -> None:
    """Show the busiest minutes of the coming days: how many runs start, and how long they take by
    their history. JSON has all minutes with runs.

    \b
    Examples:
      chimes forecast
      chimes forecast --days 1 --json=minutes
    """
    answer = get(backend, "/forecast", days=days)
    if output.format in ("json", "ndjson"):
        output.one(answer, [])
        return
    minutes = items_of({"items": answer["minutes"]})
    busiest = sorted(minutes, key=lambda each: -_number(each, "runs"))[:_SHOWN]
    columns = [
        Column(_("at"), getter("at"), time=True),
        Column(_("runs"), getter("runs")),
        Column(_("busy seconds"), getter("busy_seconds")),
        Column(_("hot"), lambda item: "●" if item["hot"] else ""),
    ]
    output.rows([{"id": each["at"], **each} for each in busiest], columns)


@click.command("suggest", cls=Command)
@click.argument("what", metavar="SCHEDULE|EXPRESSION")
@click.option("--zone", metavar="ZONE", help="Time zone of an expression.")
@output_options
@client_options
def suggest(backend: Backend, output: Output, what: str, zone: str | None) -> None:
    """Suggest minutes of the hour at which fewer other schedules fire. Changes nothing.

    \b
    Examples:
      chimes suggest nightly-report
      chimes suggest "0 2 * * *" --zone Europe/Berlin
      chimes suggest "@daily" --json
    """
    from chimes.errors import InvalidInput
    from chimes.triggers.text import parse_trigger_text

    body: Json
    try:
        body = {"trigger": parse_trigger_text(what, zone or default_zone(), "auto").to_dict()}
    except InvalidInput:
        body = {"schedule": str(find_schedule(backend, what)["id"])}
    answer = post(backend, "/suggest", body)
    if output.format in ("json", "ndjson"):
        output.one(answer, [])
        return
    at = output.format_time(str(answer["at"])) if answer["at"] else "–"
    echo(
        localize(
            _(
                "{words}: {count} other runs at {at}",
                words=answer["words"],
                count=answer["runs"],
                at=at,
            )
        )
    )
    rows = items_of({"items": answer["suggestions"]})
    if not rows:
        echo_err(_("There is no quieter minute."))
        return
    output.rows(
        [{"id": each["words"], **each} for each in rows],
        [
            Column(_("expression"), _expression),
            Column(_("other runs"), getter("runs")),
            Column(_("description"), getter("words"), rank=1),
        ],
    )


def _expression(row: Json) -> object:
    trigger = row["trigger"]
    assert isinstance(trigger, dict)
    return trigger.get("expression") or " ".join(
        ("every", str(trigger.get("every")), str(trigger.get("anchor")))
    )


def _number(row: Json, name: str) -> float:
    value = row[name]
    return float(value) if isinstance(value, (int, float)) else 0.0


# --- simulate -------------------------------------------------------------------------------------
@click.command("simulate", cls=Command)
@click.option("--days", type=WholeNumber(1, 366), default=7, show_default=True)
@click.option("--from", "start", metavar="TIME", help="Begin at this time. Default: now.")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Simulate the schedules of a file instead of those of the server; needs no server.",
)
@click.option(
    "--durations",
    type=click.Choice(["history", "fixed"]),
    help="How long runs take: the median of earlier ones, or all the same. Default: history.",
)
@click.option(
    "--duration",
    "fixed",
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="How long runs take that have no history.",
)
@click.option("--nodes", type=WholeNumber(1, 1000), default=1, show_default=True)
@click.option(
    "--workers", type=WholeNumber(1, 10_000), help="Runs of a node at once. Default: as configured."
)
@click.option(
    "--outage",
    "outages",
    multiple=True,
    metavar="'TIME DURATION'",
    help="No node is up for so long; repeatable.",
)
@click.option("--url", envvar="CHIMES_URL", metavar="URL", help="URL of the server.")
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    envvar="CHIMES_API_KEY_FILE",
    metavar="FILE",
    help="File with the API key. Default: CHIMES_API_KEY.",
)
@output_format_options
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    output: Output,
    days: int,
    start: str | None,
    file: Path | None,
    durations: str | None,
    fixed: str,
    nodes: int,
    workers: int | None,
    outages: Sequence[str],
    url: str | None,
    api_key_file: Path | None,
) -> None:
    """Simulate schedules with the planner of the scheduler itself, under a virtual clock: what
    would run, wait, be skipped and be missed, and how late. Nothing runs and nothing is saved.

    Every run is assumed to succeed. Named limits, timeouts and events play no part.

    \b
    Examples:
      chimes simulate --days 30
      chimes simulate --days 30 --nodes 2 --outage "Mon 02:00 3h"
      chimes simulate --file chimes.yaml --from 2030-03-09T00:00:00Z --days 3 --json
      chimes simulate --durations fixed --duration 20m --workers 4
    """
    from chimes.config import load_settings
    from chimes.model import simulation
    from chimes.triggers.values import parse_duration, parse_time

    zone, now = default_zone(), SystemClock().now()
    since = now if start is None else parse_time(start, now=now, zone=zone, field="--from")
    length = parse_duration(fixed, field="--duration", allow_zero=True)
    backend: Backend | None = None
    if file is None or durations == "history":
        key = read_key_file(api_key_file) if api_key_file else os.environ.get("CHIMES_API_KEY", "")
        backend = connect(url, key.strip())
        ctx.call_on_close(backend.close)
    windows: tuple[MaintenanceWindow, ...] = ()
    if file is not None:
        settings, schedules = _from_file(file, since)
    else:
        assert backend is not None
        settings = load_settings().settings
        schedules = _from_server(backend, settings, since)
        windows = _windows(backend)
    if backend is not None:
        schedules = _with_calendars(backend, schedules)
    known: dict[str, timedelta] = {}
    if backend is not None and durations != "fixed":
        known = _history(backend)
    names = {each.id: each for each in schedules}
    result = simulation.simulate(
        schedules,
        since,
        since + timedelta(days=days),
        capacity=nodes * (workers or settings.workers or _WORKERS),
        durations={
            each.id: known[key]
            for each in names.values()
            for key in (each.id, each.name)
            if key in known
        },
        default_duration=length,
        outages=[simulation.parse_outage(each, since, zone) for each in outages],
        windows=windows,
        keep_cursors=start is None and file is None,
    )
    _print_simulation(output, result, simulation.summary_of(result), by_name=file is not None)


def _print_simulation(
    output: Output, result: Simulation, summary: dict[str, object], *, by_name: bool
) -> None:
    if output.format in ("json", "ndjson"):
        output.one(
            {
                "runs": [_run_json(each, by_name=by_name) for each in result.runs],
                "summary": summary,
                "timeline": [
                    {
                        "at": _moment(each.at),
                        "started": each.started,
                        "late": each.late,
                        "skipped": each.skipped,
                        "missed": each.missed,
                        "max_concurrent": each.concurrent,
                        "max_lateness_seconds": each.lateness.total_seconds(),
                    }
                    for each in result.timeline
                ],
            },
            [],
            compact=len(result.runs) > _INDENTED,
        )
        return
    if output.is_table:
        for name, value in summary.items():
            echo(f"{name.replace('_', ' '):24}{value}")
        echo("")
    notable = [each for each in result.runs if each.started_at is None or each.lateness]
    shown = notable[:_SHOWN] if output.is_table else result.runs
    output.rows(
        [_run_json(each, by_name=by_name) for each in shown],
        [
            Column(_("slot"), getter("slot"), time=True),
            Column(_("schedule"), getter("name")),
            Column(_("status"), getter("status"), status=True),
            Column(_("started"), getter("started_at"), time=True),
            Column(_("reason"), getter("reason"), rank=1),
            Column(_("slots"), getter("slots"), rank=2),
        ],
    )
    if output.is_table and len(notable) > _SHOWN:
        echo_err(_("and {count} more; --json has all", count=len(notable) - _SHOWN))


def _run_json(run: SimulatedRun, *, by_name: bool) -> Json:
    """`by_name`: a schedule of a file is known by its name."""
    return {
        "id": run.schedule_id,
        "schedule": run.name if by_name else run.schedule_id,
        "name": run.name,
        "slot": _moment(run.slot),
        "status": run.status.value,
        "started_at": _moment(run.started_at),
        "finished_at": _moment(run.finished_at),
        "reason": run.reason,
        "slots": run.slots,
    }


def _moment(at: datetime | None) -> str | None:
    from chimes.triggers import format_moment

    return None if at is None else format_moment(at)


def _from_file(file: Path, since: datetime) -> tuple[Settings, list[Schedule]]:
    """The schedules of the file."""
    from pydantic import ValidationError

    from chimes.cli.changesets import read_given
    from chimes.errors import InvalidInput
    from chimes.model import replace
    from chimes.model.access import Actor
    from chimes.model.ids import declared_id
    from chimes.web.api.schemas import AppliedScheduleIn
    from chimes.web.api.translate import draft_from

    given = read_given(file, {}, None)
    settings, found = given.loaded.settings, []
    if given.schedules is None:
        raise CommandError(_("{file} has no section `schedules:`", file=file), USAGE)
    for name, body in given.schedules.items():
        try:
            draft = draft_from(AppliedScheduleIn.model_validate(body), Actor(), settings, since)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise CommandError(
                _("{name}: {problem}", name=f"{name}.{where}", problem=first["msg"]), USAGE
            ) from None
        except InvalidInput as error:
            raise error.within(str(name)) from None
        trigger = draft.trigger
        if trigger.on_event:
            continue
        trigger = trigger.with_default_zone(settings.default_timezone).with_default_anchor()
        # As `apply` gives it to a new schedule, because jitter and hashed fields depend on it.
        schedule_id = draft.id or declared_id(f"{draft.namespace}/{draft.owner}", str(name), 1)
        trigger = trigger.seeded(schedule_id)
        found.append(replace(draft, id=schedule_id, name=str(name), trigger=trigger))
    by_name = {each.name: each.id for each in found}
    return settings, [_with_named_dependency(each, by_name) for each in found]


def _with_named_dependency(schedule: Schedule, ids: Mapping[str, str]) -> Schedule:
    from chimes.model import replace
    from chimes.model.ids import ScheduleId

    depends_on = schedule.depends_on
    if depends_on is None or depends_on.schedule_id not in ids:
        return schedule
    other = ScheduleId(ids[depends_on.schedule_id])
    return replace(schedule, depends_on=replace(depends_on, schedule_id=other))


def _from_server(backend: Backend, settings: Settings, since: datetime) -> list[Schedule]:
    """The schedules as the API shows them; of a target only what decides about overlaps."""
    from chimes.model.access import Owner, OwnerType
    from chimes.model.ids import ScheduleId
    from chimes.model.schedule import Dependency, Schedule
    from chimes.model.target import FlowTarget, HttpTarget, SyncTarget, Target, TaskTarget
    from chimes.services.schedules.rules import default_policy
    from chimes.triggers import parse_duration, parse_moment, trigger_from_dict
    from chimes.web.api.schemas import PolicyIn
    from chimes.web.api.translate import policy_from

    def moment(row: Json, name: str) -> datetime | None:
        value = row.get(name)
        return parse_moment(value) if isinstance(value, str) else None

    found = []
    for row in paginate(backend, "/schedules"):
        target, owner, depends_on, pause = (
            each if isinstance(each := row.get(name), dict) else {}
            for name in ("target", "owner", "depends_on", "pause")
        )
        trigger = row["trigger"]
        if not isinstance(trigger, dict) or trigger.get("kind") in _EVENT_KINDS:
            continue
        like: Target = HttpTarget(url="http://localhost/")
        match target.get("kind"):
            case "task":
                like = TaskTarget(name=str(target["name"]))
            case "flow":
                like = FlowTarget(name=str(target["name"]))
            case "sync":
                like = SyncTarget(
                    source=str(target["source"]), collection=str(target["collection"])
                )
        policy = PolicyIn.model_validate(row["policy"])
        until = pause.get("until")
        created = moment(row, "created_at") or since
        found.append(
            Schedule(
                id=ScheduleId(str(row["id"])),
                namespace=str(row["namespace"]),
                name=str(row["name"]),
                owner=Owner(type=OwnerType(str(owner["type"])), id=str(owner["id"])),
                trigger=trigger_from_dict(trigger).seeded(str(row["id"])),
                target=like,
                policy=policy_from(policy, default_policy(settings, like)),
                priority=int(_number(row, "priority")),
                enabled=bool(row["enabled"]),
                pause_until=parse_moment(until) if isinstance(until, str) else None,
                depends_on=Dependency(
                    schedule_id=ScheduleId(str(depends_on["schedule_id"])),
                    within=parse_duration(str(depends_on["within"])),
                )
                if depends_on
                else None,
                next_slot=moment(row, "next_slot"),
                next_run_at=moment(row, "next_run_at"),
                last_success_at=moment(row, "last_success_at"),
                fired_count=int(_number(row, "fired_count")) if "fired_count" in row else 0,
                created_at=created,
                updated_at=created,
            )
        )
    return found


def _with_calendars(backend: Backend, schedules: Sequence[Schedule]) -> list[Schedule]:
    """Fills in the contents of the shared calendars."""
    from chimes.model import replace
    from chimes.triggers.calendars import CALENDAR_KEYS, parse_named_calendar

    if not any(each.trigger.calendar_names() for each in schedules):
        return [*schedules]
    known = {
        str(row["name"]): parse_named_calendar({key: row[key] for key in CALENDAR_KEYS})
        for row in items_of(get(backend, "/calendars"))
    }
    return [replace(each, trigger=each.trigger.with_calendars(known)) for each in schedules]


#: Kinds of triggers that have no slots.
_EVENT_KINDS = ("webhook", "run_end", "file", "sql")


def _windows(backend: Backend) -> tuple[MaintenanceWindow, ...]:
    from chimes.model.planning import MaintenanceWindow
    from chimes.triggers import parse_moment

    return tuple(
        MaintenanceWindow(
            namespace=str(each["namespace"] or ""),
            since=parse_moment(str(each["since"])),
            until=parse_moment(str(each["until"])) if each["until"] else None,
        )
        for each in items_of(get(backend, "/maintenance"))
    )


def _history(backend: Backend) -> dict[str, timedelta]:
    """Median durations by id and by name."""
    rows = items_of({"items": get(backend, "/forecast", days=1)["schedules"]})
    return {
        str(each[name]): timedelta(seconds=_number(each, "seconds"))
        for each in rows
        for name in ("name", "schedule")
        if each["seconds"] is not None
    }
