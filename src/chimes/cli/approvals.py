"""`chimes approvals`, `chimes approve`, `chimes reject`, `chimes send-event`: flows that wait."""

from __future__ import annotations

import json

import click

from chimes.cli.backend import Backend, api_path, find_approval, get, items_of, post
from chimes.cli.command import USAGE, Command, CommandError
from chimes.cli.options import client_options, output_options
from chimes.cli.output import Column, Output, echo, echo_err, getter
from chimes.i18n import _
from chimes.redaction import escape_control

_STATUSES = {
    "open": _("open"),
    "approved": _("approved"),
    "rejected": _("rejected"),
    "expired": _("expired"),
    "canceled": _("canceled"),
}
_COLUMNS = [
    Column(_("id"), getter("id"), min_chars=8),
    Column(_("status"), getter("status"), labels=_STATUSES, status=True),
    Column(_("flow"), getter("flow"), max_width=40),
    Column(_("step"), getter("step"), max_width=40),
    Column(_("question"), getter("prompt"), max_width=60),
    Column(_("expires"), getter("expires_at"), time=True, rank=1),
    Column(_("by"), getter("decided_by"), rank=3),
]
_DETAILS = [
    Column(_("id"), getter("id")),
    Column(_("status"), getter("status"), labels=_STATUSES, status=True),
    Column(_("flow"), getter("flow")),
    Column(_("step"), getter("step")),
    Column(_("run"), getter("run_id")),
    Column(_("question"), getter("prompt")),
    Column(_("expires"), getter("expires_at"), time=True),
    Column(_("then"), getter("default")),
    Column(_("decision"), getter("decision")),
    Column(_("decided by"), getter("decided_by")),
    Column(_("reason"), getter("reason")),
]


@click.command("approvals", cls=Command)
@click.argument("approval", required=False)
@click.option(
    "--status",
    type=click.Choice([*_STATUSES, "all"]),
    default="open",
    help="Default: open.",
)
@output_options
@client_options
def approvals(backend: Backend, output: Output, approval: str | None, status: str) -> None:
    """List steps of flows that wait for an approval, the newest first, or show one. Decide with
    `chimes approve` and `chimes reject`.

    \b
    Examples:
      chimes approvals
      chimes approvals --status all --json
      chimes approvals 0198a
    """
    if approval is not None:
        output.one(find_approval(backend, approval), _DETAILS)
        return
    wanted = None if status == "all" else status
    items = items_of(get(backend, "/approvals", status=wanted, limit=200))
    if not items and output.is_table:
        echo_err(_("No approvals."))
        return
    output.rows(items, _COLUMNS)


@click.command("approve", cls=Command)
@click.argument("approval")
@click.option("--reason", default="", help="Reason, kept with the decision.")
@output_options
@client_options
def approve(backend: Backend, output: Output, approval: str, reason: str) -> None:
    """Approve a step of a flow, which then goes on. Of several decisions the first counts; the
    others, and those after the expiry, have exit code 5.

    \b
    Examples:
      chimes approve 0198a
      chimes approve 0198a --reason "checked the numbers"
    """
    _decide(backend, output, approval, "approve", reason)


@click.command("reject", cls=Command)
@click.argument("approval")
@click.option("--reason", default="", help="Reason, kept with the decision.")
@output_options
@client_options
def reject(backend: Backend, output: Output, approval: str, reason: str) -> None:
    """Reject a step of a flow. The step fails, is skipped, or succeeds, as the flow says.

    \b
    Examples:
      chimes reject 0198a --reason "wrong month"
    """
    _decide(backend, output, approval, "reject", reason)


def _decide(backend: Backend, output: Output, approval: str, verb: str, reason: str) -> None:
    found = find_approval(backend, approval)
    decided = post(backend, api_path("approvals", found["id"], verb), {"reason": reason})
    if output.format in ("json", "ndjson"):
        output.one(decided, [])
    else:
        echo(escape_control(str(decided["id"])))


@click.command("send-event", cls=Command)
@click.argument("name")
@click.option(
    "--key", default="", help="Only flows that wait for this key, or for any, receive it."
)
@click.option("--data", default="", help="JSON: the output of the waiting steps.")
@output_options
@client_options
def send_event(backend: Backend, output: Output, name: str, key: str, data: str) -> None:
    """Send an event to flows that wait for it. It is stored for a day, so that a flow that was
    started already and comes to its wait later receives it too. Prints the runs of the steps that
    received it now.

    \b
    Examples:
      chimes send-event payment.received --key order-17 --data '{"amount": 5}'
    """
    body: dict[str, object] = {"key": key}
    if data:
        try:
            body["data"] = json.loads(data)
        except ValueError as error:
            raise CommandError(
                _("--data is not valid JSON: {error}", error=str(error)), USAGE
            ) from None
    sent = post(backend, api_path("events", name), body)
    if output.format in ("json", "ndjson"):
        output.one(sent, [])
        return
    run_ids = sent["run_ids"]
    for run_id in run_ids if isinstance(run_ids, list) else ():
        echo(escape_control(str(run_id)))
