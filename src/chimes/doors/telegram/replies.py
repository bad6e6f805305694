"""How schedules and runs look in a chat; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from chimes.doors.telegram.texts import Language, say
from chimes.language.describing import describe
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.triggers import Every, Once, format_duration_go

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


def created_text(schedule: Schedule, language: Language, *, zone: str) -> str:
    """`Schedule created`, and what was understood: nobody has to trust a guess. `zone`: of the
    words, also where an interval has none of its own."""
    trigger = schedule.trigger
    lines = [say("created", language, id=schedule.id), describe(trigger, language)]
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
    return "\n".join(lines)


def list_text(schedules: Sequence[Schedule], *, more: bool, language: Language) -> str:
    lines = [say("list", language)]
    for schedule in schedules:
        lines += [
            "",
            f"{schedule.id} · {schedule.name}",
            f"  {describe(schedule.trigger, language)}",
        ]
        lines.append(f"  {state_text(schedule, language)}")
    if more:
        lines += ["", say("more", language)]
    return "\n".join(lines)


def state_text(schedule: Schedule, language: Language) -> str:
    if schedule.next_run_at is not None and schedule.enabled:
        return say("next", language, at=local(schedule.next_run_at, schedule.trigger.zone))
    return say("over" if schedule.enabled else "off", language)


def runs_text(schedule: Schedule, runs: Sequence[Run], language: Language) -> str:
    if not runs:
        return say("no_runs", language, id=schedule.id)
    lines = [say("runs", language, id=schedule.id)]
    for run in runs:
        status = _STATUSES.get(run.status, run.status.value)
        at = run.started_at or run.planned_at
        lines.append(f"{status} · {local(at, schedule.trigger.zone)} · {run.id}")
        if run.error:
            lines.append(f"  {run.error[:200]}")
    return "\n".join(lines)


def local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}"


def _iso(moment: datetime | None) -> str:
    return moment.isoformat() if moment else "-"
