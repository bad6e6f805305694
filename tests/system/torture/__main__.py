"""`python -m tests.system.torture`: exit 0 pass, 1 a violation, 9 inconclusive, 2 cannot run."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.system.torture import nemesis
from tests.system.torture.conductor import Conductor, RunRequest
from tests.system.torture.mutants import MUTANTS
from tests.system.torture.profiles import PROFILES
from tests.system.torture.stores import SERVERS, STORES

PASS, VIOLATION, CANNOT_RUN, INCONCLUSIVE = 0, 1, 2, 9
CODES = {"pass": PASS, "violation": VIOLATION, "inconclusive": INCONCLUSIVE}


def request_from(arguments: Sequence[str]) -> RunRequest:
    parser = argparse.ArgumentParser(prog="python -m tests.system.torture", description=__doc__)
    parser.add_argument("--store", choices=STORES, required=True)
    parser.add_argument("--profile", choices=sorted(PROFILES), default="pr")
    parser.add_argument("--minutes", type=float, help="of chaos; the profile's by default")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--nodes", type=int, help="the profile's by default; 1 on json")
    parser.add_argument("--schedules", type=int, help="at the start; the profile's by default")
    parser.add_argument("--out", type=Path, help="an empty directory; a new one by default")
    parser.add_argument("--plan", type=Path, help="a plan.json to replay instead of the seed's")
    parser.add_argument("--faults", default="", help="only these kinds, separated by commas")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="")
    given = parser.parse_args(arguments)
    profile = PROFILES[given.profile]
    if given.schedules:
        profile = replace(profile, schedules=given.schedules)
    seconds = 60 * (profile.minutes if given.minutes is None else given.minutes)
    nodes = given.nodes or (1 if given.store == "json" else profile.nodes)
    if seconds <= 0 or nodes < 1 or (given.store == "json" and nodes > 1):
        parser.error("minutes and nodes are positive, and a JSON file has one node")
    out = given.out or Path(tempfile.mkdtemp(prefix="chimes-torture-"))
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        parser.error(f"{out} is not empty")
    if given.plan is None:
        plan = nemesis.make_plan(
            given.seed,
            seconds=seconds,
            nodes=nodes,
            rate=profile.faults,
            server=given.store in SERVERS,
            kinds=[kind for kind in given.faults.split(",") if kind],
        )
    else:
        plan = nemesis.read(given.plan)
    return RunRequest(
        store=given.store,
        seed=given.seed,
        nodes=nodes,
        seconds=seconds,
        profile=profile,
        out=out.resolve(),
        plan=plan,
        mutant=given.mutant,
    )


def main(arguments: Sequence[str]) -> int:
    request = request_from(arguments)
    # SIGTERM cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = asyncio.run(Conductor(request).run())
    except Exception:
        traceback.print_exc()
        print(f"the harness could not run; what there is: {request.out}", file=sys.stderr)
        return CANNOT_RUN
    (request.out / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"kept in {request.out}", file=sys.stderr)
    print(json.dumps(found))
    return CODES[found["result"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
