"""Checks that the functions of `python` sources exist.

python -m chimes.targets.sync.function_check: reads a request from standard input. The modules are
imported in this child process, not in the node, so that their import has no side effects there and
a reload sees their current code.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.model.sync import Sources
from chimes.targets.process.child import child_environment
from chimes.targets.process.sanitize import describe_exception
from chimes.targets.sync.python_driver import function_at
from chimes.targets.sync.worker_link import DriverFailure

MODULE = "chimes.targets.sync.function_check"
#: Seconds for importing all modules.
IMPORT_TIMEOUT = 60.0


async def check_callables(sources: Sources) -> None:
    """Raises ConfigError that names the first missing function and its configuration key."""
    named = {
        source.id: str(source.config["callable"])
        for source in sources.by_id.values()
        if source.driver == "python"
    }
    if named:
        await asyncio.to_thread(_check, named, sources.directory)


def _check(named: dict[str, str], directory: str) -> None:
    path = [directory, *(each or str(Path.cwd()) for each in sys.path)]
    request = json.dumps({"path": path, "callables": sorted(set(named.values()))})
    try:
        done = subprocess.run(  # noqa: S603 - runs a Chimes module
            [sys.executable, "-m", MODULE],
            input=request.encode(),
            capture_output=True,
            timeout=IMPORT_TIMEOUT,
            cwd=directory or None,
            env=child_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            _(
                "sources: importing the modules of the python sources took over {seconds:g} s",
                seconds=IMPORT_TIMEOUT,
            )
        ) from None
    marked = done.stdout.rpartition(b"\n\x00")[2]
    try:
        problems = json.loads(marked)
    except ValueError:
        ended = done.stderr.decode(errors="replace").strip()[-500:]
        raise ConfigError(
            _(
                "sources: importing the modules of the python sources ended the process "
                "(status {status}): {output}",
                status=done.returncode,
                output=ended,
            )
        ) from None
    for source, callable_path in named.items():
        if callable_path in problems:
            where = f"sources.{source}.config.callable"
            raise ConfigError(
                _("{where}: {problem}", where=where, problem=problems[callable_path]), key=where
            )


def main() -> None:
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    problems: dict[str, str] = {}
    for path in request["callables"]:
        try:
            function_at(path)
        except DriverFailure as failure:
            problems[path] = str(failure)
        except BaseException as error:
            problems[path] = _(
                "{path} cannot be imported: {error}", path=path, error=describe_exception(error)
            )
    # Modules may print on import: the result follows the marker.
    sys.stdout.write("\n\x00" + json.dumps(problems))


if __name__ == "__main__":
    main()
