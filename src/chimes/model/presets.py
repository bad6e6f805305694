"""Ready-made schedules to start from (R1.41, UX A.4), as data: the API, the command line and the
dashboard show them, and what a preset says can be sent as a schedule as it stands.

The texts of the languages are in `preset_texts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Plain = Mapping[str, object]

_ALWAYS: tuple[Plain, ...] = ({"channel": "inbox"},)
_WHEN_BROKEN: tuple[Plain, ...] = ({"channel": "inbox", "on": ["failure", "recovery"]},)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    #: Stable; texts are found by it.
    id: str
    #: As the API reads it, without a zone.
    trigger: Plain
    #: As the API reads it; a prompt comes from the texts.
    target: Plain
    #: Who is told, as the API reads it.
    delivery: tuple[Plain, ...]


def _cron(expression: str) -> Plain:
    return {"kind": "cron", "expression": expression}


def _every(duration: str) -> Plain:
    return {"kind": "every", "every": duration}


def _agent(id: str, trigger: Plain) -> Preset:
    return Preset(id=id, trigger=trigger, target={"kind": "agent"}, delivery=_ALWAYS)


def _call(id: str, trigger: Plain, path: str, method: str = "POST") -> Preset:
    """Who starts from it puts an address of their own in."""
    target = {"kind": "http", "method": method, "url": f"https://example.com/{path}"}
    return Preset(id=id, trigger=trigger, target=target, delivery=_WHEN_BROKEN)


PRESETS = (
    _agent("daily_summary", _cron("0 18 * * *")),
    _agent("news_digest", _cron("0 7 * * *")),
    _agent("morning_brief", _cron("0 8 * * 1-5")),
    _agent("weekly_report", _cron("0 9 * * 1")),
    _agent("reminder", _cron("30 16 * * 5")),
    _call("month_end", _cron("0 18 L * *"), "month-end"),
    _call("health_ping", _every("PT5M"), "health", "GET"),
    _call("heartbeat", _every("PT1M"), "heartbeat", "GET"),
    _call("nightly_backup", _cron("0 2 * * *"), "backup"),
    _call("data_sync", _every("PT30M"), "sync"),
    _call("certificate_check", _cron("0 6 * * *"), "", "GET"),
    _call("cleanup", _cron("0 3 * * 0"), "cleanup"),
)
