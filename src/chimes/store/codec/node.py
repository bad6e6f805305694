"""Encodes node reports and run defaults."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from chimes.errors import InvalidInput
from chimes.model.definition import RunDefaults
from chimes.model.node import NodeReport
from chimes.store.codec.schedule import policy_from_plain, policy_to_plain


def report_to_text(report: NodeReport | None) -> str:
    if report is None:
        return ""
    plain = {
        "running": report.running,
        "sending": report.sending,
        "claims_per_minute": report.claims_per_minute,
        "memory": report.memory,
        "queues": list(report.queues),
        "draining": report.draining,
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def report_from_text(text: str) -> NodeReport | None:
    """None for a report of a newer version that cannot be read."""
    try:
        plain = json.loads(text) if text else None
        if plain is None:
            return None
        memory = plain.get("memory")
        return NodeReport(
            running=int(plain.get("running", 0)),
            sending=int(plain.get("sending", 0)),
            claims_per_minute=float(plain.get("claims_per_minute", 0.0)),
            memory=None if memory is None else int(memory),
            queues=tuple(str(each) for each in plain.get("queues", ())),
            draining=bool(plain.get("draining", False)),
        )
    except (ValueError, TypeError, AttributeError):
        return None


def defaults_to_plain(defaults: RunDefaults | None) -> dict[str, object] | None:
    if defaults is None:
        return None
    plain: dict[str, object] = {
        "policy": policy_to_plain(defaults.policy),
        "priority": defaults.priority,
    }
    if defaults.arguments:
        plain["arguments"] = dict(defaults.arguments)
    return plain


def defaults_from_plain(capabilities: object) -> dict[str, RunDefaults]:
    """Defaults by capability. A list has only names; entries of a newer version that cannot be read
    are ignored."""
    found: dict[str, RunDefaults] = {}
    for requirement, plain in capabilities.items() if isinstance(capabilities, Mapping) else ():
        if plain is None:
            continue
        with contextlib.suppress(InvalidInput, ValueError, KeyError, TypeError):
            arguments = plain.get("arguments")
            found[requirement] = RunDefaults(
                policy=policy_from_plain(plain["policy"]),
                priority=int(plain["priority"]),
                arguments=arguments if isinstance(arguments, dict) else {},
            )
    return found
