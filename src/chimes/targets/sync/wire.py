"""Messages between a worker and the child process of a sync task: JSON lines on a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chimes.egress import EgressRules
from chimes.i18n import from_stored, to_stored
from chimes.targets.process.channel import LogLimits, LogLine, json_line

LOG_LIMITS = LogLimits(lines=10_000, bytes=4 * 1024 * 1024)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The first line: sent by the worker to start the task."""

    driver: str
    source: str
    collection: str
    config: Mapping[str, object] = field(repr=False)
    #: The checkpoint of the last run, as JSON text.
    state: str | None
    #: Directory of the configuration file.
    directory: str
    #: `sys.path` of the worker, so that the child finds the same modules.
    path: tuple[str, ...]
    #: Interval between two heartbeats.
    heartbeat_seconds: float
    #: Temporary directory of this attempt; the worker removes it.
    private_directory: str
    #: Egress rules of built-in drivers; see `egress_rules_from_json`.
    rules: Mapping[str, object]
    #: In characters of JSON.
    max_state_length: int

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
                "heartbeat_seconds": self.heartbeat_seconds,
                "private_directory": self.private_directory,
                "rules": dict(self.rules),
                "max_state_length": self.max_state_length,
            }
        )

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        fields = json.loads(line)
        return cls(**(fields | {"path": tuple(fields["path"])}))

    def expand(self, text: str) -> str:
        """Replaces the placeholders `{source}` and `{collection}`."""
        return text.replace("{source}", self.source).replace("{collection}", self.collection)

    @property
    def checkpoint(self) -> object:
        """The decoded checkpoint; None if there is none."""
        return None if self.state is None else json.loads(self.state)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Shows that the child process is alive."""

    def to_line(self) -> bytes:
        return json_line({"beat": 1})


@dataclass(frozen=True, slots=True)
class CheckpointMessage:
    """A checkpoint to store at once, as JSON text."""

    value: str

    def to_line(self) -> bytes:
        return json_line({"state": self.value})


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultMessage:
    """The last line: result of the task. An empty code means success."""

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


def message_of(line: bytes) -> LogLine | Heartbeat | CheckpointMessage | ResultMessage:
    """Raises ValueError, KeyError or TypeError for a malformed line."""
    fields = json.loads(line)
    log_line = LogLine.from_fields(fields)
    if log_line is not None:
        return log_line
    if "beat" in fields:
        return Heartbeat()
    if "state" in fields:
        return CheckpointMessage(str(fields["state"]))
    result = fields["result"]
    if not isinstance(result, dict | None):
        raise ValueError("malformed result")
    return ResultMessage(
        code=str(fields["code"]),
        error=from_stored(str(fields["error"])),
        trace=str(fields["trace"]),
        result=result,
    )


def egress_rules_to_json(rules: EgressRules) -> dict[str, object]:
    return {
        "open_mode": rules.open_mode,
        "allow_private": rules.allow_private,
        "allow": list(rules.allow),
        "only": list(rules.only),
        "allow_metadata": rules.allow_metadata,
        "own_ports": [list(each) for each in sorted(rules.own_ports)],
    }


def egress_rules_from_json(fields: Mapping[str, Any]) -> EgressRules:
    return EgressRules(
        open_mode=fields["open_mode"],
        allow_private=fields["allow_private"],
        allow=tuple(fields["allow"]),
        only=tuple(fields["only"]),
        allow_metadata=fields["allow_metadata"],
        own_ports=frozenset((host, port) for host, port in fields["own_ports"]),
    )
