"""Looks up known vulnerabilities of the pinned versions in the OSV database.

    audit.py [--url URL] [LOCK …]

Exit code 1 if a pinned version has a known vulnerability. If the database cannot be reached, a note
is printed and the exit code is 0: a check must also work without a network.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOCKS = tuple(ROOT / f"requirements{kind}.lock" for kind in ("", "-dev", "-tap"))
URL = "https://api.osv.dev"
#: For everything: name resolution has no timeout of its own.
SECONDS = 10.0
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)", re.MULTILINE)
#: Ids of advisories that do not concern Chimes, with the reason.
IGNORED: dict[str, str] = {}


class Unreachable(Exception):
    """The database gave no usable answer; the text says why."""


def pins(lock: Path) -> set[tuple[str, str]]:
    return set(_PIN.findall(lock.read_text()))


def vulnerabilities(url: str, pinned: list[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Ids of the advisories for each pinned version that has some."""
    queries = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
        for name, version in pinned
    ]
    results = _within(SECONDS, url, json.dumps({"queries": queries}).encode())
    if not isinstance(results, list) or len(results) != len(pinned):
        raise Unreachable("the answer is not the expected list")
    found = {}
    for pin, result in zip(pinned, results, strict=True):
        ids = [each["id"] for each in (result or {}).get("vulns", ())]
        if relevant := [each for each in ids if each not in IGNORED]:
            found[pin] = relevant
    return found


def _within(seconds: float, url: str, body: bytes) -> Any:
    """The `results` of a query, or Unreachable after this time."""
    answer: list[Any] = []
    problems: list[str] = []

    def ask() -> None:
        request = urllib.request.Request(
            f"{url}/v1/querybatch", data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as response:
                answer.append(json.load(response)["results"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if not answer:
        raise Unreachable(problems[0] if problems else f"no answer within {seconds:.0f} s")
    return answer[0]


def main() -> int:
    parser = argparse.ArgumentParser(description="Audits the pinned versions.")
    parser.add_argument("locks", nargs="*", type=Path, default=LOCKS)
    parser.add_argument("--url", default=URL)
    given = parser.parse_args()
    pinned = sorted(set().union(*(pins(lock) for lock in given.locks)))
    try:
        found = vulnerabilities(given.url, pinned)
    except Unreachable as error:
        print(f"Audit of {len(pinned)} pinned versions skipped: {given.url}: {error}")
        return 0
    for (name, version), ids in found.items():
        print(f"{name} {version}: {', '.join(ids)}", file=sys.stderr)
    if found:
        print("Raise the floor in pyproject.toml and run `make lock`.", file=sys.stderr)
        return 1
    print(f"No known vulnerability in {len(pinned)} pinned versions.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
