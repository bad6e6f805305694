"""Pinned dependencies: hashes, completeness, installation, and the audit of vulnerabilities."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).parent.parent
RUN, DEV, TAP = (ROOT / f"requirements{kind}.lock" for kind in ("", "-dev", "-tap"))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: Path) -> dict[str, str]:
    """The text of each pin with its hashes, by name."""
    blocks = re.split(r"\n(?=\S)", lock.read_text().strip())
    return {normalised(block.partition("==")[0]): block for block in blocks}


def test_every_pin_has_a_version_and_hashes() -> None:
    for lock in (RUN, DEV, TAP):
        found = entries(lock)
        assert len(found) > 20
        for name, text in found.items():
            first, *hashes = text.replace("\\\n", "\n").splitlines()
            assert re.fullmatch(r"[\w.-]+==[\w.!+]+( ; .+)?", first.strip()), name
            assert hashes, name
            for each in hashes:
                assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each.strip()), name


def test_every_declared_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    run = [
        *project["project"]["dependencies"],
        *project["build-system"]["requires"],
        *groups["build"],
        *(each for name in ("postgres", "mysql", "redis") for each in extras[name]),
    ]
    # Extras for tests and web frameworks belong to applications.
    dev = [*run, *groups["dev"], *(each for name in extras for each in extras[name])]
    for lock, needed in ((RUN, run), (DEV, dev)):
        names = {normalised(match[0]) for each in needed if (match := _NAME.match(each))}
        assert names - {"chimes"} - entries(lock).keys() == set()
    # The same versions in both.
    shared = entries(DEV)
    assert {name: shared[name] for name in entries(RUN)} == entries(RUN)


def test_installation_verifies_the_hashes() -> None:
    script = (ROOT / "tools" / "setup.sh").read_text()
    lines = [line.strip() for line in script.splitlines()]
    installs = [line for line in lines if line.startswith("install ")]
    assert installs == [
        'install .venv --require-hashes -r "$lock"',
        "install .venv --no-deps --no-build-isolation -e .",
        "install .venv/tap --require-hashes -r requirements-tap.lock",
    ]


class _Advisories(BaseHTTPRequestHandler):
    vulnerable: ClassVar[set[str]] = set()
    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = [each["package"]["name"] for each in body["queries"]]
        type(self).asked = names
        results = [
            {"vulns": [{"id": "PYSEC-1"}]} if name in self.vulnerable else {} for name in names
        ]
        content = json.dumps({"results": results}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def advisories(*vulnerable: str) -> Iterator[str]:
    """A stub of the database."""
    _Advisories.vulnerable = {*vulnerable}
    with HTTPServer(("127.0.0.1", 0), _Advisories) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def audit(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "audit.py"), "--url", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_audit_reports_vulnerable_pins_and_passes_without_a_network() -> None:
    with advisories() as url:
        clean = audit(url)
    assert (clean.returncode, clean.stderr) == (0, "")
    pinned = set().union(*(entries(lock) for lock in (RUN, DEV, TAP)))
    assert {normalised(name) for name in _Advisories.asked} == pinned
    with advisories("jinja2") as url:
        found = audit(url)
    assert found.returncode == 1
    assert re.match(r"jinja2 [0-9.]+: PYSEC-1\n", found.stderr)
    skipped = audit("http://127.0.0.1:1")
    assert skipped.returncode == 0
    assert "skipped" in skipped.stdout


def test_the_audit_is_part_of_the_checks() -> None:
    makefile = (ROOT / "Makefile").read_text()
    check = makefile.partition("\ncheck:")[2].partition("\n\n")[0]
    assert "tools/audit.py" in check
