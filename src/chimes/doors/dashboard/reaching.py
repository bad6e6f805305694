"""Whether what this node is configured to talk to can be reached from here. Addresses come from the
settings and from chimes.yaml, never from a visitor."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from chimes.clock import Clock
from chimes.errors import ConfigError, told
from chimes.model.source import Source, Sources
from chimes.wording import say

PATIENCE = 5.0
_PORTS = {"http": 80, "https": 443, "smtp": 587, "smtps": 465}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    ok: bool
    #: A whole sentence, said.
    text: str


async def reach_url(name: str, url: str, clock: Clock) -> Reach:
    """A connection to the host and port of the URL; nothing is sent but a handshake."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        host, port = None, None
    if not host or not port:
        return Reach(ok=False, text=say("{name}: its address cannot be read.", name=name))
    secure = ssl.create_default_context() if parts.scheme in ("https", "smtps") else None
    before = clock.monotonic()
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port, ssl=secure)
    except TimeoutError:
        text = say("{name}: no answer from {host}:{port}.", name=name, host=host, port=port)
        return Reach(ok=False, text=text)
    except (OSError, ValueError) as error:
        given = {"name": name, "host": host, "port": port, "why": told(error)}
        text = say("{name}: {host}:{port} cannot be reached: {why}", **given)
        return Reach(ok=False, text=text)
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
    took = round((clock.monotonic() - before) * 1000)
    given = {"name": name, "host": host, "port": port, "took": took}
    return Reach(ok=True, text=say("{name}: {host}:{port} answers after {took} ms.", **given))


async def reach_source(source: Source, sources: Sources, clock: Clock) -> Reach:
    """As far as can be seen without synchronising anything."""
    if source.driver == "http_json":
        return await reach_url(source.id, str(source.config.get("url", "")), clock)
    if source.driver == "command":
        return _reach_command(source, sources.directory)
    from chimes.targets.sync.checking import check_callables

    try:
        await check_callables(Sources({source.id: source}, sources.directory))
    except ConfigError as error:
        return Reach(ok=False, text=error.message)
    return Reach(ok=True, text=say("{name}: its function is there.", name=source.id))


def _reach_command(source: Source, directory: str) -> Reach:
    command = source.config.get("command")
    program = str(command[0]) if isinstance(command, list | tuple) and command else ""
    beside = Path(directory, str(source.config.get("cwd", "")), program)
    if program and (shutil.which(program) or ("/" in program and shutil.which(beside))):
        text = say("{name}: the program {program} is there.", name=source.id, program=program)
        return Reach(ok=True, text=text)
    text = say("{name}: there is no program {program}.", name=source.id, program=program)
    return Reach(ok=False, text=text)
