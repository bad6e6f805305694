"""`known`, `reply`: what people say about a run."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, delete, pages, path_of, post
from chimes.cli.failure import NOT_FOUND, Failure
from chimes.cli.finding import find_run, find_schedule
from chimes.cli.lazy import Command
from chimes.cli.options import client_options, output_options
from chimes.cli.output import Column, Json, Output, pick, tell
from chimes.cli.shapes import RUN_COLUMNS
from chimes.cli.targets import text_in
from chimes.model.insights import BAD
from chimes.wording import say

_KNOWN = (
    Column(say("run"), pick("run_id")),
    Column(say("schedule"), pick("schedule_id")),
    Column(say("reason"), pick("reason")),
    Column(say("by"), pick("by")),
    Column(say("at"), pick("at"), time=True),
)


@click.command("known", cls=Command)
@click.argument("schedule")
@click.option("--reason", default="", help="Stands beside it, for others.")
@click.option("--forget", is_flag=True, help="It counts again.")
@output_options
@client_options
def known(backend: Backend, output: Output, schedule: str, reason: str, forget: bool) -> None:
    """Mark the latest failure of a schedule as known: it needs no attention for the same error
    again, until it fails in another way or works.

    \b
    Examples:
      chimes known "Morning report" --reason "the bank is closed until Monday"
      chimes known "Morning report" --forget
    """
    if forget and reason:
        raise click.UsageError(say("Give --reason or --forget, not both."))
    found = find_schedule(backend, schedule)
    path = path_of("runs", _latest_failure(backend, found)["id"], "known")
    if forget:
        delete(backend, path)
        tell(say("The failures of {schedule} count again.", schedule=found.get("name")))
        return
    output.rows([post(backend, path, {"reason": reason})], _KNOWN)


def _latest_failure(backend: Backend, schedule: Json) -> Json:
    statuses = ",".join(status.value for status in BAD)
    latest = list(pages(backend, path_of("schedules", schedule["id"], "runs"), 1, status=statuses))
    if not latest:
        raise Failure(say("{schedule} has not failed", schedule=schedule.get("name")), NOT_FOUND)
    return latest[0]


@click.command("reply", cls=Command)
@click.argument("run")
@click.argument("text")
@output_options
@client_options
def reply(backend: Backend, output: Output, run: str, text: str) -> None:
    """Answer an agent: a new run of it, which is told what it was asked and what it answered.
    TEXT is what to say; @FILE reads a file, - reads stdin.

    \b
    Examples:
      chimes reply 0199ab "And in French?"
      chimes reply 0199ab @questions.txt
    """
    found = find_run(backend, run)
    answer = post(backend, path_of("runs", found["id"], "reply"), {"text": text_in(text)})
    output.rows([answer], RUN_COLUMNS)
