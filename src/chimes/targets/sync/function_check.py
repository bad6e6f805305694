"""Whether the functions that python sources name are there.

python -m chimes.targets.sync.function_check: reads a request from standard input. The operator's
modules are imported in this process, not in the node's: what they do on import is their own
business, and a reload has to see them as they are now.
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
#: An import that takes longer has gone wrong.
PATIENCE = 60.0


async def check_callables(sources: Sources) -> None:
    """Raises ConfigError that names the first one that is not there, and where it stands."""
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
        done = subprocess.run(  # noqa: S603 - a module of ours
            [sys.executable, "-m", MODULE],
            input=request.encode(),
            capture_output=True,
            timeout=PATIENCE,
            cwd=directory or None,
            env=child_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            _(
                "sources: importing the modules of the python sources took over {seconds:g} s",
                seconds=PATIENCE,
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
    # Modules may print while they are imported: the answer is what comes after the mark.
    sys.stdout.write("\n\x00" + json.dumps(problems))


if __name__ == "__main__":
    main()
