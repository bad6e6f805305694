"""The drivers that there are, and how each reads its `config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chimes.targets.sync.configs import read_command, read_python
from chimes.targets.sync.http_config import read_http_json
from chimes.targets.sync.sections import Section

#: One line per driver.
DRIVERS: Mapping[str, Callable[[Section], object]] = {
    "python": read_python,
    "command": read_command,
    "http_json": read_http_json,
}
