"""`add`: create a schedule, after showing what was understood."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click

from chimes.cli.backend import Backend, post
from chimes.cli.failure import FAILED
from chimes.cli.language import chosen_by_name, spoken
from chimes.cli.lazy import Command
from chimes.cli.options import Whole, form_options, reach_options, yes_option
from chimes.cli.output import Json, Output, echo, tell
from chimes.cli.recipients import written_recipient
from chimes.cli.shapes import schedule_details
from chimes.cli.targets import target_from_options
from chimes.cli.time import default_zone, fires_after, shown_fire
from chimes.clock import SystemClock
from chimes.language import describe, note_in_words, read_trigger, remark, warnings_in_words
from chimes.triggers import Every, Trigger
from chimes.wording import say

_SHOWN = 5
_CHANNELS = ("inbox", "telegram", "webhook", "email")
_NO_PIPELINE = say(
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
            raise click.UsageError(say("--jitter is for intervals such as 'every 5m'."))
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
        tell(say("Nothing was created."))
        return
    if not ask(say("Create it?")):
        tell(say("Nothing was created."))
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
            say(
                "--notify is inbox, telegram:CHAT, webhook:URL or email:ADDRESS, not {text!r}.",
                text=text,
            )
        )
    return found


def _texts(value: object) -> Sequence[str]:
    return [str(each) for each in value] if isinstance(value, tuple) else []


def _label(text: str) -> tuple[str, str | None]:
    name, separator, value = text.partition("=")
    return name, value if separator else None
