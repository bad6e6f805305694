"""The part of the store port that counts: what the dashboard shows without loading rows.

Answers are of the moment, and exact but for what the values say: lags are kept in brackets
(`model/lags.py`), `MADE_BEFORE` leaves out what was made long before its time, and what retention
has forgotten is not counted any more.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Protocol

from chimes.model.access import Owner
from chimes.model.attention import Attentions
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    EVERY_RUN,
    ErrorGroups,
    LagBucket,
    Result,
    RunFilter,
    ScheduleCounts,
    Tally,
    Window,
)
from chimes.model.listing import ScheduleQuery
from chimes.model.run import Run


class Insights(Protocol):
    async def schedule_counts(
        self, query: ScheduleQuery, *, failing: bool = True
    ) -> ScheduleCounts:
        """Of the schedules that the query matches on all its pages. `failing`: count those too,
        which takes longer than all the rest."""

    async def count_runs(
        self, window: Window, filter_: RunFilter = EVERY_RUN, *, step: timedelta | None = None
    ) -> tuple[Tally, ...]:
        """Runs planned in the window by status, one tally for each bucket, empty ones too; without
        a step the window is one bucket. Of one schedule: without those of `MADE_BEFORE`."""

    async def run_lags(
        self,
        window: Window,
        owner: Owner | None = None,
        *,
        step: timedelta | None = None,
        by_node: bool = False,
    ) -> tuple[LagBucket, ...]:
        """Of the runs planned in the window (`lag_of`), one for each bucket, empty ones too. By
        node: one for each node that began any in a bucket, by name; only of all owners
        (InvalidInput)."""

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        """Of each schedule its newest runs (created_at, id), newest first, all in one question;
        those without any are not there. `owner`: only runs of that owner. InvalidInput for more
        than `MOST_SCHEDULES`, `MOST_OF_ONE`, or `MOST_RESULTS` in all."""

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        """Those that a node has in hand and that have begun, the longest first (started_at, id)."""

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> Attentions:
        """Schedules with a reason to look at them (`Cause`), the gravest and newest first, at most
        `MOST_SCHEDULES`:

        STOPPED: `stopped_by_error`. FAILING: enabled, and `is_failing`. MISSED: slots that were
        found to be in the last 24 hours. LATE: enabled, and a slot of the last hour that began more
        than `late` after it was planned, or one of any age that waits for a node, or to be fired,
        for longer. PAUSE_OVER: paused, although `pause_until` has passed."""

    async def error_groups(
        self, window: Window, filter_: RunFilter = EVERY_RUN, *, limit: int
    ) -> ErrorGroups:
        """Runs planned in the window that ended badly (`BAD`), by the first `ERROR_ROOM` characters
        of what they say; of the newest `MOST_ERRORS` (created_at, id), and without those of
        `MADE_BEFORE`."""

    async def roll_up(self, *, limit: int) -> int:
        """Count up to `limit` ended runs into the sums from which windows are answered; how many.
        To be called again while it was as many. A store that needs no sums answers 0. Whether and
        when it is called changes no answer, only what it costs."""
