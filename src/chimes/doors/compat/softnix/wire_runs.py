"""Softnix's lists, runs and parsed sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chimes.doors.compat.softnix.defaults import CRON, MOST_RUNS_LISTED, ONE_TIME, RUNS_LISTED
from chimes.doors.compat.softnix.wire import Item, expression_out, time_out
from chimes.errors import InvalidInput
from chimes.model.access import Owner, OwnerType
from chimes.model.run import Run, RunStatus
from chimes.retelling import retold
from chimes.triggers import Once
from chimes.wording import ENGLISH, say

if TYPE_CHECKING:
    from chimes.language import Parsed

#: C10. What never began has no word there: a slot that was missed has failed, one that was left out
#: on purpose is canceled; `run_stop_reason` tells which.
_STATUS = {
    RunStatus.QUEUED: "queued",
    RunStatus.RUNNING: "running",
    RunStatus.SUCCEEDED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.TIMEOUT: "failed",
    RunStatus.UNKNOWN: "failed",
    RunStatus.MISSED: "failed",
    RunStatus.CANCELED: "canceled",
    RunStatus.SKIPPED: "canceled",
}
_ERRORS = {
    RunStatus.TIMEOUT: say("timeout"),
    RunStatus.UNKNOWN: say("unknown: the node that had the run is gone"),
    RunStatus.MISSED: say("missed: nobody was there at its time"),
    RunStatus.SKIPPED: say("skipped"),
}
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """R1.19. None: any."""

    owner_type: str | None = None
    owner_id: str | None = None
    enabled: bool | None = None

    @property
    def owner(self) -> Owner | None:
        """None: not named in full."""
        if self.owner_type is None or self.owner_id is None:
            return None
        return Owner(type=OwnerType(self.owner_type), id=self.owner_id)

    def matches(self, item: Item) -> bool:
        return all(
            asked is None or asked == item[name]
            for name, asked in (
                ("owner_type", self.owner_type),
                ("owner_id", self.owner_id),
                ("enabled", self.enabled),
            )
        )


def listing_from(given: Mapping[str, str]) -> Listing:
    owner_type = given.get("owner_type") or None
    if owner_type is not None and owner_type not in OwnerType.__members__.values():
        raise InvalidInput(say("owner_type must be user, chat or system"), field="owner_type")
    enabled = _yes_or_no(given, "enabled")
    status = given.get("status", "").strip().lower()
    if status in ("enabled", "active"):
        enabled = True
    elif status in ("disabled", "paused", "inactive"):
        enabled = False
    elif status not in ("", "all"):
        raise InvalidInput(say("status must be enabled, disabled or all"), field="status")
    if enabled is None and _yes_or_no(given, "include_disabled") is False:
        enabled = True
    return Listing(owner_type=owner_type, owner_id=given.get("owner_id") or None, enabled=enabled)


def limit_from(given: Mapping[str, str]) -> int:
    text = given.get("limit", str(RUNS_LISTED))
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_RUNS_LISTED:
        raise InvalidInput(
            say(
                "limit must lie between 1 and {most_runs_listed}", most_runs_listed=MOST_RUNS_LISTED
            ),
            field="limit",
        )
    return int(text)


def _yes_or_no(given: Mapping[str, str], name: str) -> bool | None:
    text = given.get(name, "").strip().lower()
    if text not in ("", *_YES, *_NO):
        raise InvalidInput(say("{name} must be true or false", name=name), field=name)
    return text in _YES if text else None


def run_out(run: Run, lang: str = ENGLISH) -> Item:
    """R1.17. `run_id` is the run itself; the pipeline's own id stands beside it."""
    status = _STATUS[run.status]
    error = run.error or _ERRORS.get(run.status)
    pipeline_id = (run.result or {}).get("pipeline_run_id")
    return {
        "id": run.id,
        "schedule_id": run.schedule_id,
        "run_id": run.id,
        "status": status,
        "created_at": time_out(run.created_at),
        "started_at": time_out(run.started_at),
        "finished_at": time_out(run.finished_at),
        "error": error and retold(error, lang),
        "run_status": status,
        "run_stop_reason": _stop_reason(run),
        "pipeline_run_id": pipeline_id if isinstance(pipeline_id, str) else None,
    }


def parsed_out(parsed: Parsed) -> Item:
    trigger = parsed.trigger
    return {
        "schedule_type": ONE_TIME if isinstance(trigger, Once) else CRON,
        "timezone": parsed.timezone,
        "task": parsed.task,
        "run_at": time_out(trigger.instant) if isinstance(trigger, Once) else None,
        "cron_expr": expression_out(trigger),
        "source_pattern": parsed.pattern,
    }


def _stop_reason(run: Run) -> str | None:
    if not run.status.terminal:
        return None
    if run.status is RunStatus.SUCCEEDED:
        return "completed"
    return run.reason or run.status.value
