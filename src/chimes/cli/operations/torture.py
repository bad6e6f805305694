"""`torture`: injects faults into nodes on an empty database and counts what was lost."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from chimes.cli.command import FAILED, INCONCLUSIVE, PROBLEMS, USAGE, Command, CommandError
from chimes.cli.options import WholeNumber, output_format_options
from chimes.cli.output import Column, Json, Output, echo_err, getter
from chimes.config import masked_store_url
from chimes.i18n import _, joined

if TYPE_CHECKING:
    from chimes.torture.database import Database
    from chimes.torture.harness import TortureRequest

_CODES: Final = {"pass": 0, "violation": PROBLEMS, "inconclusive": INCONCLUSIVE}
#: Rounds in which a planted bug has to be found.
_SELF_TEST_ROUNDS = 4
_SELF_TEST_SECONDS = 12.0
_COLUMNS = (
    Column(_("Result"), getter("result")),
    Column(_("Store"), getter("store")),
    Column(_("Slots"), getter("slots")),
    Column(_("Runs"), getter("runs")),
    Column(_("Lost"), getter("lost")),
    Column(_("Doubled"), getter("doubled")),
    Column(_("Results changed"), getter("results_changed")),
    Column(_("Calls"), getter("calls")),
    Column(_("Calls repeated, explained"), getter("calls_repeated")),
    Column(_("Calls not explained"), getter("calls_unexplained")),
    Column(_("Faults"), getter("faults")),
    Column(_("Faults by class"), lambda row: _pairs(row["faults_by_class"])),
    Column(_("Lateness under fault, p50"), lambda row: _seconds(row, "fault_p50")),
    Column(_("Lateness under fault, p99"), lambda row: _seconds(row, "fault_p99")),
    Column(_("Other violations"), lambda row: _pairs(_other_violations(row))),
    Column(_("Inconclusive because"), lambda row: _listed(row["inconclusive_because"])),
)
_BUG_COLUMNS = (
    Column(_("Planted bug"), getter("planted_bug")),
    Column(_("About"), getter("about")),
    Column(_("Found"), getter("found")),
    Column(_("Rounds"), getter("rounds")),
    Column(_("Violations"), lambda row: _pairs(row["violations"])),
)


@click.command("torture", cls=Command)
@click.option("--store", "url", metavar="URL", help="URL of an empty database.")
@click.option(
    "--minutes",
    type=click.FloatRange(0.05, 24 * 60),
    default=2.0,
    show_default=True,
    help="Minutes of faults.",
)
@click.option(
    "--nodes", type=WholeNumber(1, 16), default=None, help="Number of nodes. Default: 3; json: 1."
)
@click.option("--schedules", type=WholeNumber(1, 10_000), default=None, help="Schedules at start.")
@click.option(
    "--faults-per-minute",
    type=click.FloatRange(1, 1000),
    default=180.0,
    show_default=True,
    help="Planned faults per minute.",
)
@click.option("--seed", type=WholeNumber(0), default=None, help="Seed of workload and faults.")
@click.option(
    "--restart-command", metavar="COMMAND", default="", help="Command that restarts the server."
)
@click.option("--drop", is_flag=True, help="Empty the database after a run without violations.")
@click.option(
    "--simulate", is_flag=True, help="Simulate nodes under a virtual clock; no database is needed."
)
@click.option("--seeds", metavar="A-B", help="Seeds of the simulation. Default: 1-20.")
@click.option("--self-test", is_flag=True, help="Plant bugs and check that each is found.")
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="FILE", help="Write the report as JSON."
)
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the files of the run in this empty directory.",
)
@click.option(
    "--plan",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Faults to inject (plan.json of an earlier run).",
)
@output_format_options
@click.pass_context
def torture(ctx: click.Context, /, output: Output, **options: Any) -> None:
    """Certify a database: start nodes on it, inject faults and check every run.

    The database must be empty. Nodes are killed, suspended, cut off, slowed down and started with
    wrong clocks; calls go only to a receiver on this machine. Exit codes: 0 nothing was lost,
    doubled or changed; 9 a violation was found; 10 inconclusive, too little happened; 5 the
    database is not empty. Linux only.

    \b
    Examples:
      chimes torture --store postgresql://chimes@db.example.org/torture --minutes 10
      chimes torture --store redis://localhost/9 --drop --report report.json
      chimes torture --store sqlite:////tmp/torture.db --self-test
      chimes torture --simulate --seeds 1-100
    """
    if options["simulate"]:
        ctx.exit(_simulate(options, output))
    if sys.platform != "linux":
        raise CommandError(_("chimes torture needs Linux"), USAGE)
    ctx.exit(_on_a_store(options, output))


def _simulate(options: Mapping[str, Any], output: Output) -> int:
    from chimes.torture.simulation import NODES, simulate_seeds

    if options["url"]:
        raise CommandError(_("--simulate needs no --store"), USAGE)
    seeds = _parse_seeds(options["seeds"] or "1-20")
    nodes = options["nodes"] or NODES
    # Lost leases and silent stores are what is simulated.
    logging.disable(logging.CRITICAL)
    if options["self_test"]:
        return _simulated_self_test(seeds, options, output)
    report = simulate_seeds(seeds, nodes=nodes, command=_command())
    _write(options["report"], report)
    _print(report, output)
    return _CODES[report["result"]]


def _simulated_self_test(seeds: range, options: Mapping[str, Any], output: Output) -> int:
    from chimes.torture.planted_bugs import BUGS
    from chimes.torture.simulation import simulate

    rows: list[Json] = []
    for name, bug in BUGS.items():
        row: dict[str, Any] = {"id": name, "planted_bug": name, "about": bug.about, "found": False}
        for number, seed in enumerate(seeds, 1):
            checked, _world, _digest = simulate(seed, bug=name)
            violations = {kind: len(found) for kind, found in checked.violations.items() if found}
            row |= {"rounds": number, "violations": violations}
            row["found"] = bool(bug.shown_by & violations.keys())
            if row["found"]:
                break
        rows.append(row)
    return _print_bugs(rows, options, output)


def _parse_seeds(text: str) -> range:
    first, dash, last = text.partition("-")
    valid = first.isdecimal() and (last.isdecimal() or not dash)
    if not valid or int(last or first) < int(first):
        raise CommandError(
            _("Invalid seeds {seeds!r}: expected two numbers, as in 1-20", seeds=text), USAGE
        )
    return range(int(first), int(last or first) + 1)


def _on_a_store(options: Mapping[str, Any], output: Output) -> int:
    from chimes.torture.database import Database

    if not options["url"]:
        raise CommandError(
            _("--store is missing"), USAGE, hint=_("give the URL of an empty database")
        )
    database = Database(options["url"], restart_command=options["restart_command"])
    nodes = options["nodes"] or (1 if database.kind == "json" else 3)
    if database.kind == "json" and nodes > 1:
        raise CommandError(_("A JSON file has one node: leave out --nodes"), USAGE)
    seed = secrets.randbelow(2**31) if options["seed"] is None else options["seed"]
    # SIGTERM ends the processes of the run like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options["self_test"]:
        return asyncio.run(_self_test(database, nodes, seed, options, output))
    return asyncio.run(_certify(database, nodes, seed, options, output))


async def _certify(
    database: Database, nodes: int, seed: int, options: Mapping[str, Any], output: Output
) -> int:
    from chimes.torture import faults
    from chimes.torture.harness import TortureRequest

    await database.check_empty()
    with _work_directory(options["work_dir"]) as directory:
        request = TortureRequest(
            database=database,
            seconds=60 * options["minutes"],
            nodes=nodes,
            seed=seed,
            directory=directory,
            schedules=options["schedules"] or 0,
            fault_rate=options["faults_per_minute"] / 60,
            plan=faults.read(options["plan"]) if options["plan"] else None,
            command=_command(),
            progress=_progress,
        )
        report = await _run(request)
        code = _CODES[report["result"]]
        if code and not options["work_dir"]:
            kept = Path(tempfile.mkdtemp(prefix="chimes-torture-"))
            shutil.copytree(directory, kept, dirs_exist_ok=True)
            echo_err(_("The files of the run are in {directory}.", directory=kept))
    if options["drop"] and code != PROBLEMS:
        await database.drop()
    else:
        echo_err(_("The data of the run was left in {store}.", store=database.shown))
    _write(options["report"], report)
    _print(report, output)
    return code


async def _self_test(
    database: Database, nodes: int, seed: int, options: Mapping[str, Any], output: Output
) -> int:
    """A short run for each planted bug; the database is empty afterwards."""
    from chimes.torture.harness import TortureRequest
    from chimes.torture.planted_bugs import bugs_for

    await database.check_empty()
    rows: list[Json] = []
    for name, bug in bugs_for(database.kind, nodes).items():
        row: dict[str, Any] = {"id": name, "planted_bug": name, "about": bug.about, "found": False}
        for number in range(1, _SELF_TEST_ROUNDS + 1):
            # A short run may miss the bug, above all on a busy machine.
            with _work_directory(None) as directory:
                request = TortureRequest(
                    database=database,
                    seconds=_SELF_TEST_SECONDS,
                    nodes=max(bug.nodes, min(nodes, 2)),
                    seed=seed + number,
                    directory=directory,
                    schedules=options["schedules"] or 30,
                    baseline=1.0,
                    plan=bug.plan,
                    bug=name,
                    slow=bug.slow,
                )
                try:
                    report = await _run(request)
                finally:
                    await database.drop()
            violations = {kind: count for kind, count in report["violations"].items() if count}
            row |= {"rounds": number, "violations": violations}
            row["found"] = bool(bug.shown_by & violations.keys())
            echo_err(
                _("{bug}: found", bug=name) if row["found"] else _("{bug}: not found", bug=name)
            )
            if row["found"]:
                break
        rows.append(row)
    return _print_bugs(rows, options, output)


def _print_bugs(rows: list[Json], options: Mapping[str, Any], output: Output) -> int:
    missed = [str(row["planted_bug"]) for row in rows if not row["found"]]
    _write(options["report"], {"tool": "chimes torture --self-test", "bugs": rows})
    output.rows(rows, _BUG_COLUMNS)
    if missed:
        raise CommandError(_("Not found: {bugs}", bugs=joined(", ", missed)), FAILED)
    return 0


async def _run(request: TortureRequest) -> dict[str, Any]:
    from chimes.torture.harness import TortureRun
    from chimes.torture.processes import ForkServer

    forks = ForkServer()
    try:
        return await TortureRun(request, forks).run()
    except RuntimeError as error:
        raise CommandError(str(error), FAILED) from None
    finally:
        forks.close()


@contextmanager
def _work_directory(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(
            prefix="chimes-torture-", ignore_cleanup_errors=True
        ) as temporary:
            yield Path(temporary)
        return
    given.mkdir(parents=True, exist_ok=True)
    if any(given.iterdir()):
        raise CommandError(_("{directory} is not empty", directory=given), USAGE)
    yield given.resolve()


def _progress(phase: str) -> None:
    phases = {
        "boot": _("Starting the nodes ..."),
        "baseline": _("Creating schedules ..."),
        "faults": _("Injecting faults ..."),
        "heal": _("Faults are over: waiting for the open runs ..."),
        "check": _("Checking every slot and every call ..."),
    }
    if phase in phases:
        echo_err(phases[phase])


def _command() -> str:
    """As it was called, without a password."""
    words = [masked_store_url(each) for each in sys.argv[1:]]
    return shlex.join(["chimes", *words])


def _write(file: Path | None, report: Mapping[str, Any]) -> None:
    if file is None:
        return
    try:
        file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(
            _("Cannot write {file}: {reason}", file=file, reason=error.strerror)
        ) from None


def _print(report: Mapping[str, Any], output: Output) -> None:
    output.one({"id": report["result"], **report}, _COLUMNS)
    for kind, found in report["examples"].items():
        for what in found:
            echo_err(f"{kind}: {what}")


def _pairs(counts: object) -> str:
    assert isinstance(counts, Mapping)
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _listed(items: object) -> str:
    assert isinstance(items, list)
    return ", ".join(map(str, items))


def _other_violations(row: Json) -> dict[str, int]:
    violations = row["violations"]
    assert isinstance(violations, Mapping)
    return {kind: count for kind, count in violations.items() if count}


def _seconds(row: Json, name: str) -> str:
    lateness = row["lateness"]
    assert isinstance(lateness, Mapping)
    return f"{lateness[name]:g} s"
