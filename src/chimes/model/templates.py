"""Ready-made times for those who start with an empty page (R2.36)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    #: Stable; catalogues translate name and description by it.
    id: str
    name: str
    cron_spec: str
    description: str


TEMPLATES = (
    Template(
        id="hourly",
        name="Hourly",
        cron_spec="@hourly",
        description="At the start of every hour",
    ),
    Template(
        id="daily_midnight",
        name="Daily Midnight",
        cron_spec="0 0 * * *",
        description="Every day at midnight",
    ),
    # C26: every day; weekdays would be 0 9 * * 1-5.
    Template(
        id="daily_9am",
        name="Daily 9 AM",
        cron_spec="0 9 * * *",
        description="Every day at 9 AM",
    ),
    Template(
        id="weekly_monday_8am",
        name="Weekly Monday 8 AM",
        cron_spec="0 8 * * 1",
        description="Every Monday at 8 AM",
    ),
)
