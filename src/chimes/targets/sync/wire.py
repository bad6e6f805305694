"""What a worker and the process of a sync task say to each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chimes.i18n import from_stored, to_stored
from chimes.model.egress import EgressRules
from chimes.targets.process.channel import LogLimits, LogLine, json_line

#: How much of what a task says is kept.
LOG_LIMITS = LogLimits(lines=10_000, bytes=4 * 1024 * 1024)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """All that the process needs to know; the first line, from the worker."""

    driver: str
    source: str
    collection: str
    config: Mapping[str, object] = field(repr=False)
    #: As the last run kept it; JSON text.
    state: str | None
    #: Where the configuration file lies.
    directory: str
    #: `sys.path` of the worker: the same modules are to be found.
    path: tuple[str, ...]
    #: Seconds between two signs of life.
    beat: float
    #: A directory for this attempt alone, which the worker removes.
    private: str
    #: Where a driver of ours may connect to; see `egress_wire`.
    rules: Mapping[str, object]
    #: In characters of JSON.
    longest_state: int

    def to_line(self) -> bytes:
        return json_line(
            {
                "driver": self.driver,
                "source": self.source,
                "collection": self.collection,
                "config": dict(self.config),
                "state": self.state,
                "directory": self.directory,
                "path": self.path,
                "beat": self.beat,
                "private": self.private,
                "rules": dict(self.rules),
                "longest_state": self.longest_state,
            }
        )

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        fields = json.loads(line)
        return cls(**(fields | {"path": tuple(fields["path"])}))

    def filled(self, text: str) -> str:
        """With the names of the pair in place of `{source}` and `{collection}`."""
        return text.replace("{source}", self.source).replace("{collection}", self.collection)

    @property
    def kept(self) -> object:
        """The state as a value; None if there is none."""
        return None if self.state is None else json.loads(self.state)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life."""

    def to_line(self) -> bytes:
        return json_line({"beat": 1})


@dataclass(frozen=True, slots=True)
class Kept:
    """State to be kept at once; JSON text."""

    value: str

    def to_line(self) -> bytes:
        return json_line({"state": self.value})


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Once: what came of it. Without a code it went well."""

    code: str = ""
    error: str = ""
    #: The traceback, if there is one.
    trace: str = ""
    result: Mapping[str, object] | None = None

    def to_line(self) -> bytes:
        return json_line(
            {
                "code": self.code,
                "error": to_stored(self.error),
                "trace": self.trace,
                "result": None if self.result is None else dict(self.result),
            }
        )


def message_of(line: bytes) -> LogLine | Heartbeat | Kept | Answer:
    """Raises ValueError, KeyError or TypeError for what is no message."""
    fields = json.loads(line)
    said = LogLine.from_fields(fields)
    if said is not None:
        return said
    if "beat" in fields:
        return Heartbeat()
    if "state" in fields:
        return Kept(str(fields["state"]))
    result = fields["result"]
    if not isinstance(result, dict | None):
        raise ValueError("no result")
    return Answer(
        code=str(fields["code"]),
        error=from_stored(str(fields["error"])),
        trace=str(fields["trace"]),
        result=result,
    )


# @@ Rules of egress on their way to the process that has to keep them.


def rules_to_plain(rules: EgressRules) -> dict[str, object]:
    return {
        "open_mode": rules.open_mode,
        "allow_private": rules.allow_private,
        "allow": list(rules.allow),
        "only": list(rules.only),
        "allow_metadata": rules.allow_metadata,
        "own_ports": [list(each) for each in sorted(rules.own_ports)],
    }


def rules_from_plain(fields: Mapping[str, Any]) -> EgressRules:
    return EgressRules(
        open_mode=fields["open_mode"],
        allow_private=fields["allow_private"],
        allow=tuple(fields["allow"]),
        only=tuple(fields["only"]),
        allow_metadata=fields["allow_metadata"],
        own_ports=frozenset((host, port) for host, port in fields["own_ports"]),
    )
