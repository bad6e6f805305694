"""`runs`, `why`, `logs`, `cancel`, `retry`, `known`, `acknowledge` and `reply`."""

from __future__ import annotations

import re
from dataclasses import replace

import click

from chimes.cli.backend import (
    Backend,
    api_path,
    delete,
    find_run,
    find_schedule,
    get,
    items_of,
    log_lines,
    paginate,
    post,
)
from chimes.cli.command import NOT_FOUND, Command, CommandError
from chimes.cli.options import WholeNumber, api_time, client_options, output_options, zone_converter
from chimes.cli.output import RUN_COLUMNS, Column, Json, Output, echo, echo_err, getter
from chimes.cli.schedules import read_text_argument
from chimes.clock import SystemClock
from chimes.i18n import _
from chimes.redaction import escape_control

#: A filter, and not the name of a schedule.
_CONDITION = re.compile(r"(?:^|\s)[a-z]+:[^\s/]")
_LEVELS = ("debug", "info", "warning", "error", "critical")


@click.command("runs", cls=Command)
@click.argument("schedules", metavar="[SCHEDULE|FILTER]...", nargs=-1)
@click.option("--status", multiple=True, help="Only runs with this status; repeatable.")
@click.option("--parent", metavar="RUN", help="Only steps of this flow run.")
@click.option(
    "--since", metavar="TIME", help="Planned at or after this time, such as 24h or yesterday."
)
@click.option("--until", metavar="TIME", help="Planned before this time.")
@click.option("-n", "--limit", type=WholeNumber(1), default=50, show_default=True)
@output_options
@client_options
def runs(
    backend: Backend,
    output: Output,
    schedules: tuple[str, ...],
    status: tuple[str, ...],
    parent: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """List runs, newest first: all of them, those of one SCHEDULE, or those that match a FILTER, as
    in the search box of the dashboard. A filter has at least one of the conditions status,
    schedule, origin, owner, namespace, node, since, until and same.

    \b
    Examples:
      chimes runs
      chimes runs "Morning report" --status failed --since 24h
      chimes runs status:failed status:timeout since:7d
      chimes runs --parent 0199ab
      chimes runs -q --status queued | xargs -n 1 chimes cancel
    """
    path, text = "/runs", " ".join(schedules)
    if text and not _CONDITION.search(text):
        path, text = api_path("schedules", find_schedule(backend, text)["id"], "runs"), ""
    query = {
        "q": text,
        "status": ",".join(status),
        "parent_id": None if parent is None else find_run(backend, parent)["id"],
        "since": since and api_time(since, past=True, field="--since"),
        "until": until and api_time(until, past=True, field="--until"),
    }
    rows = paginate(backend, path, limit, **query)
    output.rows(rows, RUN_COLUMNS)


_OUTCOMES = {
    "ran": _("ran"),
    "skipped": _("skipped"),
    "missed": _("missed"),
    "paused": _("paused"),
    "pending": _("pending"),
    "not_due": _("not due"),
}
_WHY_COLUMNS = [
    Column(_("slot"), getter("slot"), time=True),
    Column(_("outcome"), getter("outcome"), labels=_OUTCOMES, status=True),
    Column(_("why"), getter("message"), max_width=120, min_width=20),
    Column(_("run"), getter("run_id"), rank=1, min_chars=8),
]


@click.command("why", cls=Command)
@click.argument("schedule")
@click.option(
    "--at",
    metavar="TIME",
    help="The slot at this time, in the zone of the schedule, such as 'yesterday 09:00'.",
)
@click.option("--date", metavar="DATE", help="All slots of a day, such as yesterday or 2030-01-31.")
@output_options
@client_options
def why(backend: Backend, output: Output, schedule: str, at: str | None, date: str | None) -> None:
    """Say why a slot ran or did not run, from the fire log. Without --at and --date: the most
    recent slot that did not run, or the latest one if all did.

    \b
    Examples:
      chimes why "Morning report"
      chimes why "Morning report" --at "yesterday 09:00"
      chimes why "Morning report" --date 2030-01-31 --json
    """
    from chimes.triggers.values import parse_date

    if at is not None and date is not None:
        raise click.UsageError(_("Give either --at or --date, not both."))
    found = find_schedule(backend, schedule)
    zone = str(found.get("timezone") or "UTC")
    path = api_path("schedules", found["id"], "why")
    if output.zone is None and output.is_table:
        output = replace(output, zone=zone_converter(zone))
    if date is not None:
        day = parse_date(date, now=SystemClock().now(), zone=zone, field="--date")
        answers = items_of(get(backend, path, date=day.date().isoformat()))
        _print_answers(answers, output)
        return
    moment = at and api_time(at, zone=zone, past=True, field="--at")
    answer = get(backend, path, at=moment)
    if output.format in ("json", "ndjson"):
        output.one(answer, [])
    else:
        _print_answers([answer], output)


def _print_answers(answers: list[Json], output: Output) -> None:
    if output.format == "ids":
        answers = [{"id": each["run_id"]} for each in answers if each.get("run_id")]
    if not answers:
        echo_err(_("No slots on that day."))
    if answers or not output.is_table:
        output.rows(answers, _WHY_COLUMNS)


@click.command("logs", cls=Command)
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run has ended.")
@click.option("--level", type=click.Choice(_LEVELS), default="debug", help="This level and above.")
@click.option("--grep", metavar="TEXT", help="Only lines that contain this text.")
@output_options
@client_options
def logs(
    backend: Backend, output: Output, run: str, follow: bool, level: str, grep: str | None
) -> None:
    """Show the log of a run. RUN is a run, or a schedule, which means its latest run.

    \b
    Examples:
      chimes logs 0199ab
      chimes logs "Morning report" -f
      chimes logs 0199ab --level error --ndjson
    """
    least = _LEVELS.index(level)
    for entry in log_lines(backend, str(_find_run_or_latest(backend, run)["id"]), follow=follow):
        severity = str(entry.get("level", "info"))
        if _LEVELS.index(severity) < least if severity in _LEVELS else False:
            continue
        if grep and grep not in str(entry.get("message", "")):
            continue
        if output.format in ("json", "ndjson"):
            replace(output, format="ndjson").one(entry, [])
        else:
            at = output.format_time(str(entry.get("at", "")))
            echo(f"{at}\t{severity}\t{escape_control(str(entry.get('message', '')))}")


def _find_run_or_latest(backend: Backend, reference: str) -> Json:
    try:
        return find_run(backend, reference)
    except CommandError as failure:
        if failure.code != NOT_FOUND:
            raise
        schedule = find_schedule(backend, reference)
    latest = list(paginate(backend, api_path("schedules", schedule["id"], "runs"), 1))
    if not latest:
        raise CommandError(
            _("{schedule} has no runs yet", schedule=schedule.get("name")), NOT_FOUND
        )
    return latest[0]


@click.command("cancel", cls=Command)
@click.argument("run")
@output_options
@client_options
def cancel(backend: Backend, output: Output, run: str) -> None:
    """Cancel a run. A queued run ends at once; a running one is requested to stop.

    \b
    Examples:
      chimes cancel 0199ab
    """
    found = find_run(backend, run)
    output.rows([post(backend, api_path("runs", found["id"], "cancel"), {})], RUN_COLUMNS)


@click.command("retry", cls=Command)
@click.argument("run")
@click.option(
    "--from-step",
    default="",
    help="Of a flow: begin with this step; results of earlier steps are kept.",
)
@output_options
@client_options
def retry(backend: Backend, output: Output, run: str, from_step: str) -> None:
    """Run an ended run again as a new run, which refers to the old one.

    \b
    Examples:
      chimes retry 0199ab
      chimes retry 0199ab --from-step load
    """
    found = find_run(backend, run)
    body = {"from_step": from_step} if from_step else {}
    output.rows([post(backend, api_path("runs", found["id"], "retry"), body)], RUN_COLUMNS)


_KNOWN_COLUMNS = (
    Column(_("run"), getter("run_id")),
    Column(_("schedule"), getter("schedule_id")),
    Column(_("reason"), getter("reason")),
    Column(_("by"), getter("by")),
    Column(_("at"), getter("at"), time=True),
)


@click.command("known", cls=Command)
@click.argument("schedule")
@click.option("--reason", default="", help="Reason, shown to other users.")
@click.option("--forget", is_flag=True, help="Remove the mark, so that failures count again.")
@output_options
@client_options
def known(backend: Backend, output: Output, schedule: str, reason: str, forget: bool) -> None:
    """Mark the latest failure of a schedule as known. The same error then needs no attention,
    until the schedule succeeds or fails with another error.

    \b
    Examples:
      chimes known "Morning report" --reason "the bank is closed until Monday"
      chimes known "Morning report" --forget
    """
    if forget and reason:
        raise click.UsageError(_("Give either --reason or --forget, not both."))
    found = find_schedule(backend, schedule)
    path = api_path("runs", _latest_failure(backend, found)["id"], "known")
    if forget:
        delete(backend, path)
        echo_err(_("Failures of {schedule} need attention again.", schedule=found.get("name")))
        return
    _print_known(post(backend, path, {"reason": reason}), output)


def _print_known(marked: Json, output: Output) -> None:
    output.rows([{"id": marked["run_id"]} if output.format == "ids" else marked], _KNOWN_COLUMNS)


@click.command("acknowledge", cls=Command)
@click.argument("run")
@click.option("--reason", default="", help="Reason, shown to other users.")
@output_options
@client_options
def acknowledge(backend: Backend, output: Output, run: str, reason: str) -> None:
    """Acknowledge the failure of a run: it is marked as known, and not escalated to further
    recipients. `chimes known SCHEDULE --forget` takes it back.

    \b
    Examples:
      chimes acknowledge 0199ab --reason "looking into it"
    """
    found = find_run(backend, run)
    body = {"reason": reason}
    _print_known(post(backend, api_path("runs", found["id"], "acknowledge"), body), output)


def _latest_failure(backend: Backend, schedule: Json) -> Json:
    from chimes.model.run import FAILED_STATUSES

    statuses = ",".join(status.value for status in FAILED_STATUSES)
    latest = list(
        paginate(backend, api_path("schedules", schedule["id"], "runs"), 1, status=statuses)
    )
    if not latest:
        raise CommandError(_("{schedule} has not failed", schedule=schedule.get("name")), NOT_FOUND)
    return latest[0]


@click.command("reply", cls=Command)
@click.argument("run")
@click.argument("text")
@output_options
@client_options
def reply(backend: Backend, output: Output, run: str, text: str) -> None:
    """Reply to the answer of an agent. Starts a new run with the conversation so far. TEXT is the
    reply; @FILE reads a file, - reads stdin.

    \b
    Examples:
      chimes reply 0199ab "And in French?"
      chimes reply 0199ab @questions.txt
    """
    found = find_run(backend, run)
    answer = post(
        backend, api_path("runs", found["id"], "reply"), {"text": read_text_argument(text)}
    )
    output.rows([answer], RUN_COLUMNS)
