"""`doctor`: is everything in order, and if not, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from chimes.cli.checks import Findings
from chimes.cli.failure import OK, PROBLEMS
from chimes.cli.language import said
from chimes.cli.lazy import Command
from chimes.cli.options import form_options
from chimes.cli.output import Json, Output, echo, tell
from chimes.cli.server_checks import BAD, Check
from chimes.redaction import escaped
from chimes.wording import counted, say

_IN_ORDER = say("Everything is in order.")
_SIGNS = {"ok": "✓", "warning": "!", "problem": "✕"}


@click.command("doctor", cls=Command)
@click.option("--store", metavar="URL", help="As for serve.")
@click.option("--data-dir", metavar="DIR", help="As for serve.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml.")
@form_options
@click.pass_context
def doctor(
    ctx: click.Context, output: Output, store: str | None, data_dir: str | None, file: Path | None
) -> None:
    """Check Python, versions, time zones, configuration, store, port, clock and disk.

    Exit code 9 says that there is a problem; warnings alone are fine.

    \b
    Examples:
      chimes doctor
      chimes doctor --json
    """
    findings = Findings(flags={"store": store, "data_dir": data_dir}, file=file)
    found: list[Check] = []
    for check in _all(findings):
        found += check()
    if output.form in ("table", "tsv"):
        _print(found, people=output.for_people)
    else:
        output.rows([_row(each) for each in found], [])
    ctx.exit(PROBLEMS if any(each.state == BAD for each in found) else OK)


def _all(findings: Findings) -> Iterator[Callable[[], list[Check]]]:
    """In the order in which a person would look; later checks lean on earlier ones."""
    yield findings.python
    yield findings.packages
    yield findings.zones
    yield findings.configuration
    yield findings.server
    yield findings.store
    yield findings.clock
    yield findings.disk


def _row(check: Check) -> Json:
    found: Json = {"id": check.name, "state": check.state, "detail": said(check.detail)}
    return found | ({"fix": said(check.fix)} if check.fix else {})


def _print(found: list[Check], *, people: bool) -> None:
    for check in found:
        detail, fix = escaped(said(check.detail)), escaped(said(check.fix))
        if people:
            echo(f"{_SIGNS[check.state]} {said(check.name)}: {detail}")
            if fix:
                echo(f"    {fix}")
        else:
            echo(f"{_SIGNS[check.state]}\t{check.name}\t{detail}\t{fix}")
    bad = sum(check.state == BAD for check in found)
    tell(counted("{count} problem.", "{count} problems.", bad) if bad else _IN_ORDER)
