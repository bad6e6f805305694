"""`chimes routing`, `chimes silence` and `chimes message-templates`."""

from __future__ import annotations

from typing import IO

import click

from chimes.cli.backend import (
    Backend,
    api_path,
    delete,
    find_run,
    find_schedule,
    get,
    items_of,
    post,
    put,
)
from chimes.cli.command import Command, LazyCommand, LazyGroup
from chimes.cli.options import api_time, client_options, output_options
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter
from chimes.i18n import _
from chimes.redaction import escape_control

_HERE = "chimes.cli.notification_rules"


def _read(file: IO[bytes], section: str) -> Json:
    """A YAML or JSON file with the section, or with a list of its items."""
    from chimes.config.file import json_value, parsed_yaml

    found = json_value(parsed_yaml(file.read(), file.name), file.name)
    if isinstance(found, list):
        return {section: found}
    if not isinstance(found, dict):
        raise click.UsageError(
            _("{file}: expected `{section}:` and a list", file=file.name, section=section)
        )
    return found


def _show(value: Json, output: Output) -> None:
    """The document as YAML, which `set -f` reads back, or as JSON."""
    if output.format in ("json", "ndjson"):
        output.one(value, [])
        return
    from chimes.config.file import to_yaml

    for line in to_yaml(value).splitlines():
        echo(escape_control(line))


# --- routing --------------------------------------------------------------------------------------
ROUTING_COMMANDS = {
    "show": LazyCommand(_HERE, "show_routing", "Show the rules."),
    "set": LazyCommand(_HERE, "set_routing", "Replace the rules."),
    "test": LazyCommand(_HERE, "test_routing", "Show who would be notified."),
}


def _recipient(item: Json) -> str:
    from chimes.model.recipient import format_recipient

    return format_recipient(item)


_RECIPIENT_COLUMNS = [
    Column(_("channel"), getter("channel")),
    Column(_("recipient"), lambda item: _recipient(item)),
]
_file_option = click.option(
    "-f", "--file", type=click.File("rb"), required=True, help="YAML or JSON; - reads stdin."
)


@click.group("routing", cls=LazyGroup, lazy=ROUTING_COMMANDS)
def routing() -> None:
    """Rules that add recipients to runs by label, owner and status. The first rule that matches a
    run decides, unless it has `continue: true`."""


@click.command("show", cls=Command)
@output_options
@client_options
def show_routing(backend: Backend, output: Output) -> None:
    """Show the rules as YAML, which `chimes routing set -f` reads. Secrets are shown as ***.

    \b
    Examples:
      chimes routing show
      chimes routing show > routing.yaml
    """
    _show(get(backend, "/routing"), output)


@click.command("set", cls=Command)
@_file_option
@output_options
@client_options
def set_routing(backend: Backend, output: Output, file: IO[bytes]) -> None:
    """Replace the rules by those of a file. A `version` in the file must be the stored one; an
    address shown as *** keeps its stored value.

    \b
    Examples:
      chimes routing set -f routing.yaml
    """
    stored = put(backend, "/routing", _read(file, "rules"))
    if not output.is_table:
        _show(stored, output)
    rules = stored.get("rules")
    count = len(rules) if isinstance(rules, list) else 0
    echo_err(_("{count} rules, version {version}.", count=count, version=stored.get("version")))


@click.command("test", cls=Command)
@click.argument("schedule")
@click.option("--status", default="failed", show_default=True, help="How the run ends.")
@output_options
@client_options
def test_routing(backend: Backend, output: Output, schedule: str, status: str) -> None:
    """Show who would be notified if a run of a schedule ended now. Sends nothing.

    \b
    Examples:
      chimes routing test "Morning report"
      chimes routing test "Morning report" --status succeeded
    """
    found = find_schedule(backend, schedule)
    answer = get(backend, api_path("routing", "test", found["id"]), status=status)
    if output.format in ("json", "ndjson"):
        output.one(answer, [])
        return
    recipients = items_of({"items": answer.get("recipients")})
    if not recipients:
        echo_err(_("No recipient would be notified."))
        return
    output.rows([each | {"id": each.get("to")} for each in recipients], _RECIPIENT_COLUMNS)


# --- silences -------------------------------------------------------------------------------------
SILENCE_COMMANDS = {
    "add": LazyCommand(_HERE, "add_silence", "Send no notifications for a while."),
    "ls": LazyCommand(_HERE, "list_silences", "List active and planned silences."),
    "rm": LazyCommand(_HERE, "remove_silence", "End a silence."),
}
_SILENCE_COLUMNS = [
    Column(_("id"), getter("id")),
    Column(_("what"), lambda item: _what(item)),
    Column(_("from"), getter("from"), time=True, rank=2),
    Column(_("until"), getter("until"), time=True),
    Column(_("by"), getter("by"), rank=3),
    Column(_("reason"), getter("reason"), rank=1, max_width=60),
]


@click.group("silence", cls=LazyGroup, lazy=SILENCE_COMMANDS)
def silence() -> None:
    """Send no notifications of matching schedules for a while. Schedules still run; each message
    that is not sent is recorded as suppressed (`chimes deliveries`)."""


@click.command("add", cls=Command)
@click.argument("schedule", required=False)
@click.option("--label", multiple=True, metavar="NAME[=VALUE]", help="Label; repeatable.")
@click.option("--all", "everything", is_flag=True, help="All schedules.")
@click.option("--from", "since", metavar="TIME", help="Default: now.")
@click.option("--until", metavar="TIME", required=True, help="The end, such as 'in 2h'.")
@click.option("--reason", default="", help="Reason, shown at messages that are not sent.")
@output_options
@client_options
def add_silence(
    backend: Backend,
    output: Output,
    schedule: str | None,
    label: tuple[str, ...],
    everything: bool,
    since: str | None,
    until: str,
    reason: str,
) -> None:
    """Silence a SCHEDULE, the schedules with all given labels, or --all.

    \b
    Examples:
      chimes silence add "Morning report" --until "in 2h" --reason "new database"
      chimes silence add --label billing --until "tomorrow 08:00"
      chimes silence add --all --until "in 30m"
    """
    if [schedule is not None, bool(label), everything].count(True) != 1:
        raise click.UsageError(_("Give either a schedule, --label or --all."))
    body: Json = {"reason": reason, "until": api_time(until, field="--until")}
    if schedule is not None:
        body["schedule"] = find_schedule(backend, schedule)["id"]
    elif label:
        pairs = (each.partition("=") for each in label)
        body["labels"] = {name: value if equals else None for name, equals, value in pairs}
    else:
        body["all"] = True
    if since is not None:
        body["from"] = api_time(since, field="--from")
    output.rows([post(backend, "/silences", body)], _SILENCE_COLUMNS)


@click.command("ls", cls=Command)
@output_options
@client_options
def list_silences(backend: Backend, output: Output) -> None:
    """List active and planned silences.

    \b
    Examples:
      chimes silence ls
    """
    items = items_of(get(backend, "/silences"))
    if not items:
        echo_err(_("Nothing is silenced."))
    if items or not output.is_table:
        output.rows(items, _SILENCE_COLUMNS)


@click.command("rm", cls=Command)
@click.argument("silence")
@client_options
def remove_silence(backend: Backend, silence: str) -> None:
    """End a silence now.

    \b
    Examples:
      chimes silence rm 3f0c2a6be1d4
    """
    delete(backend, api_path("silences", silence))
    echo_err(_("Silence ended: {id}", id=silence))


def _what(item: Json) -> str:
    if item.get("schedule"):
        return str(item["schedule"])
    labels = item.get("labels")
    if isinstance(labels, dict) and labels:
        return ", ".join(
            name if value is None else f"{name}={value}" for name, value in labels.items()
        )
    return str(item.get("owner") or "*")


# --- message templates ----------------------------------------------------------------------------
TEMPLATE_COMMANDS = {
    "show": LazyCommand(_HERE, "show_templates", "Show the templates."),
    "set": LazyCommand(_HERE, "set_templates", "Replace the templates."),
    "preview": LazyCommand(_HERE, "preview_template", "Show the message of a template."),
}
_instance_option = click.option(
    "--instance", is_flag=True, help="Those of the instance instead of your own."
)


@click.group("message-templates", cls=LazyGroup, lazy=TEMPLATE_COMMANDS)
def message_templates() -> None:
    """Own words for notifications, by language and event. `{{schedule_name}}`, `{{status}}`,
    `{{error}}`, `{{link}}` and others stand for values of the run."""


@click.command("show", cls=Command)
@_instance_option
@output_options
@client_options
def show_templates(backend: Backend, output: Output, instance: bool) -> None:
    """Show the templates as YAML, which `chimes message-templates set -f` reads.

    \b
    Examples:
      chimes message-templates show
    """
    found = get(backend, "/message-templates", scope="instance" if instance else "own")
    if output.format not in ("json", "ndjson"):
        found = {"templates": found.get("templates", [])}
    _show(found, output)


@click.command("set", cls=Command)
@_file_option
@_instance_option
@client_options
def set_templates(backend: Backend, file: IO[bytes], instance: bool) -> None:
    """Replace the templates by those of a file.

    \b
    Examples:
      chimes message-templates set -f templates.yaml
      chimes message-templates set -f templates.yaml --instance
    """
    scope = "instance" if instance else "own"
    stored = put(backend, "/message-templates", _read(file, "templates"), scope=scope)
    templates = stored.get("templates")
    count = len(templates) if isinstance(templates, list) else 0
    echo_err(_("{count} templates stored.", count=count))


@click.command("preview", cls=Command)
@click.option("--title", default="", help="Title with placeholders.")
@click.option("--text", default="", help="Text with placeholders.")
@click.option("--in", "language", default="", help="Language: en, th or zh.")
@click.option("--on", default=None, help="Event: success, failure, recovery, late or always.")
@click.option("--run", default=None, help="Of this run. Default: an example.")
@output_options
@client_options
def preview_template(
    backend: Backend,
    output: Output,
    title: str,
    text: str,
    language: str,
    on: str | None,
    run: str | None,
) -> None:
    """Show the message that a template makes. Stores and sends nothing.

    \b
    Examples:
      chimes message-templates preview --text "{{schedule_name}} is {{status}}: {{error}}"
    """
    body: Json = {"title": title, "text": text, "language": language}
    if on is not None:
        body["on"] = on
    if run is not None:
        body["run_id"] = find_run(backend, run)["id"]
    message = post(backend, "/message-templates/preview", body)
    if output.format in ("json", "ndjson"):
        output.one(message, [])
        return
    echo(escape_control(str(message.get("title", ""))))
    for line in str(message.get("text", "")).splitlines():
        echo(escape_control(line))
