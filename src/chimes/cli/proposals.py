"""`chimes proposals`: changes that wait for the decision of a person."""

from __future__ import annotations

from collections.abc import Callable

import click

from chimes.cli.backend import Backend, api_path, find_proposal, get, items_of, post
from chimes.cli.changesets import format_fires, format_value
from chimes.cli.command import (
    FAILED,
    USAGE,
    Command,
    CommandError,
    LazyCommand,
    LazyGroup,
)
from chimes.cli.options import client_options, confirm_options, output_options
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter, localize, nested
from chimes.i18n import _
from chimes.redaction import escape_control

PROPOSAL_COMMANDS = {
    "list": LazyCommand("chimes.cli.proposals", "list_proposals", "List proposals."),
    "show": LazyCommand("chimes.cli.proposals", "show", "Show a proposal with its plan."),
    "approve": LazyCommand("chimes.cli.proposals", "approve", "Make the changes of a proposal."),
    "reject": LazyCommand("chimes.cli.proposals", "reject", "Reject a proposal."),
}
_STATUSES = {
    "open": _("open"),
    "approved": _("approved"),
    "rejected": _("rejected"),
    "expired": _("expired"),
    "failed": _("failed"),
}
_SIGNS = {"create": "+", "update": "~", "delete": "-", "pause": "~", "resume": "~", "run": ">"}
_COLUMNS = [
    Column(_("id"), getter("id"), min_chars=8),
    Column(_("status"), getter("status"), labels=_STATUSES, status=True),
    Column(_("asker"), lambda item: _asker(item), max_width=40),
    Column(_("changes"), lambda item: _names(item), max_width=60),
    Column(_("expires"), getter("expires_at"), time=True, rank=1),
    Column(_("reason"), getter("reason"), max_width=60, rank=2),
    Column(_("by"), getter("decided_by"), rank=3),
]
_DETAILS = [
    Column(_("id"), getter("id")),
    Column(_("status"), getter("status"), labels=_STATUSES, status=True),
    Column(_("asker"), lambda item: _asker(item)),
    Column(_("owner"), lambda item: _owner(item)),
    Column(_("reason"), getter("reason")),
    Column(_("created"), getter("created_at"), time=True),
    Column(_("expires"), getter("expires_at"), time=True),
    Column(_("decided by"), getter("decided_by")),
    Column(_("decision"), getter("decision")),
    Column(_("error"), getter("error")),
]


@click.group("proposals", cls=LazyGroup, lazy=PROPOSAL_COMMANDS)
def proposals() -> None:
    """Decide about changes that an assistant, or another user, proposes. Nothing changes until a
    person approves."""


@click.command("list", cls=Command)
@click.option(
    "--status",
    type=click.Choice(["open", "approved", "rejected", "expired", "failed", "all"]),
    default="open",
    help="Default: open.",
)
@output_options
@client_options
def list_proposals(backend: Backend, output: Output, status: str) -> None:
    """List proposals, the newest first.

    \b
    Examples:
      chimes proposals list
      chimes proposals list --status all --json
    """
    wanted = None if status == "all" else status
    items = items_of(get(backend, "/proposals", status=wanted, limit=200))
    if not items and output.is_table:
        echo_err(_("No proposals."))
        return
    output.rows(items, _COLUMNS)


@click.command("show", cls=Command)
@click.argument("proposal")
@output_options
@client_options
def show(backend: Backend, output: Output, proposal: str) -> None:
    """Show a proposal: who wants it and why, the changed fields, and the fires that it adds, drops
    and moves.

    \b
    Examples:
      chimes proposals show 0198a
      chimes proposals show 0198a --json=plan
    """
    found = find_proposal(backend, proposal)
    output.one(found, _DETAILS)
    if output.format in ("table", "tsv"):
        _print_plan(found, output, echo)


@click.command("approve", cls=Command)
@click.argument("proposal")
@click.option("--reason", default="", help="Reason, kept with the decision.")
@confirm_options
@output_options
@client_options
def approve(
    backend: Backend, output: Output, proposal: str, reason: str, confirm: Callable[..., bool]
) -> None:
    """Show the plan of a proposal, and make its changes with your rights. Needs your consent, or
    --yes. If the schedules changed since, nothing changes and the exit code is 5: look at the new
    plan. The key that made the proposal cannot approve it.

    \b
    Examples:
      chimes proposals approve 0198a
      chimes proposals approve 0198a --yes --reason "as discussed"
    """
    found = find_proposal(backend, proposal)
    if found["status"] == "open":
        _print_plan(found, output, echo_err)
        if not confirm(_("Make these changes?"), explicit=True):
            raise CommandError(
                _("Nothing was changed"), USAGE, hint=_("add --yes to approve without a question")
            )
    body = {"digest": found["digest"], "reason": reason}
    decided = post(backend, api_path("proposals", found["id"], "approve"), body)
    if decided["status"] == "failed":
        raise CommandError(
            _("The changes could not be made: {error}", error=str(decided["error"])), FAILED
        )
    _print_decision(decided, output)


@click.command("reject", cls=Command)
@click.argument("proposal")
@click.option("--reason", default="", help="Reason, which the asker can read.")
@output_options
@client_options
def reject(backend: Backend, output: Output, proposal: str, reason: str) -> None:
    """Reject a proposal. Nothing changes.

    \b
    Examples:
      chimes proposals reject 0198a --reason "not on Mondays"
    """
    found = find_proposal(backend, proposal)
    path = api_path("proposals", found["id"], "reject")
    _print_decision(post(backend, path, {"reason": reason}), output)


def _print_decision(decided: Json, output: Output) -> None:
    if output.format in ("json", "ndjson"):
        output.one(decided, [])
    else:
        echo(escape_control(str(decided["id"])))


def _print_plan(proposal: Json, output: Output, say: Callable[[str], None]) -> None:
    for item in items_of({"items": proposal["plan"]}):
        action = str(item["action"])
        name = escape_control(str(item["name"]))
        say(f"{_SIGNS.get(action, '?')} {localize(_ACTIONS.get(action, action))} {name}")
        fields = item["fields"]
        for path, pair in fields.items() if isinstance(fields, dict) else ():
            if action == "update":
                say(f"    {path}: {format_value(pair[0])} → {format_value(pair[1])}")
            elif action == "create" and path != "name" and pair[1] not in (None, "", {}, []):
                say(f"    {path}: {format_value(pair[1])}")
        if action != "run":
            say(f"    {localize(format_fires(output, item))}")
        for each in items_of({"items": item["warnings"]}):
            text = escape_control(str(each["message"]))
            say(f"    {localize(_('Warning: {text}', text=text))}")


_ACTIONS = {
    "create": _("create"),
    "update": _("update"),
    "delete": _("delete"),
    "pause": _("pause"),
    "resume": _("resume"),
    "run": _("run once"),
}


def _asker(item: Json) -> str:
    asker = nested(item, "asker")
    return str(asker.get("title") or asker.get("name"))


def _owner(item: Json) -> str:
    owner = nested(item, "owner")
    return f"{owner.get('type')}:{owner.get('id')}"


def _names(item: Json) -> str:
    return ", ".join(
        f"{each['action']} {each['name']}" for each in items_of({"items": item["plan"]})
    )
