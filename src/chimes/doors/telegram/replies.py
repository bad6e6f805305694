"""How schedules and runs look in a chat; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from chimes.doors.telegram.texts import Language
from chimes.language.describing import describe
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.retelling import retold
from chimes.triggers import Every, Once, format_duration_go
from chimes.wording import Wording, joined, say

#: C10, in the words of the seed.
_STATUSES = {
    RunStatus.SUCCEEDED: "completed",
    RunStatus.TIMEOUT: "failed",
    RunStatus.UNKNOWN: "failed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    text: str
    chat_id: str


def created_text(schedule: Schedule, language: Language, *, zone: str) -> Wording:
    """`Schedule created`, and what was understood: nobody has to trust a guess. `zone`: of the
    words, also where an interval has none of its own."""
    trigger = schedule.trigger
    lines: list[str] = [
        say("Schedule created: {id}", id=schedule.id),
        describe(trigger, language),
    ]
    if isinstance(trigger, Once):
        lines += ["type=one_time", f"run_at={_iso(trigger.instant)}"]
    else:
        lines.append("type=cron")
        if isinstance(trigger, Every):
            lines.append(f"cron=@every {format_duration_go(trigger.every)}")
        else:
            lines.append(f"cron={trigger.expression}")
    lines.append(f"timezone={zone}")
    lines.append(f"next_run_at={_iso(schedule.next_run_at)}")
    return joined("\n", lines)


def list_text(schedules: Sequence[Schedule], *, more: bool, language: Language) -> Wording:
    lines: list[str] = [say("Schedules:")]
    for schedule in schedules:
        lines += [
            "",
            f"{schedule.id} · {schedule.name}",
            f"  {describe(schedule.trigger, language)}",
        ]
        lines.append(joined("  ", ("", _state_text(schedule))))
    if more:
        lines += ["", say("… and more")]
    return joined("\n", lines)


def _state_text(schedule: Schedule) -> Wording:
    if schedule.next_run_at is not None and schedule.enabled:
        return say("next {at}", at=local(schedule.next_run_at, schedule.trigger.zone))
    return say("done") if schedule.enabled else say("paused")


def runs_text(schedule: Schedule, runs: Sequence[Run], language: Language) -> Wording:
    if not runs:
        return say("No runs yet: {id}", id=schedule.id)
    lines: list[str] = [say("Runs of {id}:", id=schedule.id)]
    for run in runs:
        status = _STATUSES.get(run.status, run.status.value)
        at = run.started_at or run.planned_at
        lines.append(f"{status} · {local(at, schedule.trigger.zone)} · {run.id}")
        if run.error:
            lines.append(f"  {retold(run.error, language)[:200]}")
    return joined("\n", lines)


def local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}"


def _iso(moment: datetime | None) -> str:
    return moment.isoformat() if moment else "-"
