"""Watches monitors: notices late and missing pings, and completes what an interrupted node left.

Every scheduler node watches all monitors. It keeps in memory when to check each of them
(`next_check`), and reads a monitor only then; pings change no deadline before that. Which monitors
exist and have changed is in the index, which is read when its revision has changed. Of several
nodes that find a monitor down, the compare-and-set of its document lets one write the event, and
the ids of its deliveries are derived from the event (ADR 75).
"""

from __future__ import annotations

import heapq
import math
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.engine.membership import StoreClock
from chimes.engine.poller import NextPoll, PollAfter, PollNow
from chimes.model.ids import MonitorId
from chimes.model.monitor import MonitorStatus, next_check
from chimes.services.monitors import MonitorDocuments
from chimes.store.port import Store

#: Monitors checked in one pass.
BATCH = 100
#: Seconds between two reads of the revision while there is no monitor.
IDLE_SECONDS = 2.0
#: Seconds after which the index is read even if its revision has not changed: a node may have been
#: killed before it raised the revision.
REREAD_SECONDS = 60.0
#: Seconds after which an entry of the index without a monitor is removed.
FORGET_SECONDS = 60.0
#: The longest time between two checks of a monitor.
MAX_WAIT = timedelta(hours=1)


class MonitorWatch:
    name = "monitors"

    def __init__(self, store: Store, *, clock: Clock, time: StoreClock, poll: timedelta) -> None:
        self._documents = MonitorDocuments(store)
        self._clock = clock
        self._time = time
        self._poll = poll
        self._revision = -1
        self._next_read = -math.inf
        #: Version and status in the index of each known monitor, and when it is checked.
        self._versions: dict[MonitorId, tuple[int, MonitorStatus]] = {}
        self._due: dict[MonitorId, datetime] = {}
        #: (time, monitor); entries that `_due` does not have are outdated.
        self._queue: list[tuple[datetime, MonitorId]] = []
        #: Entries without a monitor, and since when.
        self._missing: dict[MonitorId, float] = {}

    async def run_once(self) -> NextPoll:
        await self._read_index()
        now = await self._time.recent()
        due = self._take_due(now)
        if due:
            now = await self._time.fetch_now()
        for place, monitor_id in enumerate(due):
            try:
                await self._check(monitor_id, now)
            except BaseException:
                # The store does not answer: these are checked again.
                for each in due[place:]:
                    self._check_at(each, now)
                raise
        if len(due) == BATCH:
            return PollNow()
        return PollAfter(self._seconds(now))

    async def _read_index(self) -> None:
        revision = await self._documents.read_revision()
        moment = self._clock.monotonic()
        if revision == self._revision and moment < self._next_read:
            return
        now = await self._time.fetch_now()
        entries = {each.id: each for each in await self._documents.read_index()}
        for monitor_id in self._versions.keys() - entries.keys():
            self._forget(monitor_id)
        for monitor_id, entry in entries.items():
            known = entry.version, entry.status
            if self._versions.get(monitor_id) != known:
                self._versions[monitor_id] = known
                self._check_at(monitor_id, now)
        self._revision, self._next_read = revision, moment + REREAD_SECONDS

    def _take_due(self, now: datetime) -> list[MonitorId]:
        found: list[MonitorId] = []
        while self._queue and self._queue[0][0] <= now and len(found) < BATCH:
            at, monitor_id = heapq.heappop(self._queue)
            if self._due.get(monitor_id) == at:
                del self._due[monitor_id]
                found.append(monitor_id)
        return found

    async def _check(self, monitor_id: MonitorId, now: datetime) -> None:
        monitor = await self._documents.check(monitor_id)
        if monitor is not None:
            self._missing.pop(monitor_id, None)
            at = next_check(monitor, now)
            if at is not None:
                self._check_at(monitor_id, min(at, now + MAX_WAIT))
            return
        # Created by a node that was killed meanwhile, or being created.
        moment = self._clock.monotonic()
        since = self._missing.setdefault(monitor_id, moment)
        if moment - since >= FORGET_SECONDS:
            await self._documents.forget(monitor_id)
            self._forget(monitor_id)
        else:
            self._check_at(monitor_id, now + timedelta(seconds=FORGET_SECONDS / 4))

    def _check_at(self, monitor_id: MonitorId, at: datetime) -> None:
        self._due[monitor_id] = at
        heapq.heappush(self._queue, (at, monitor_id))

    def _forget(self, monitor_id: MonitorId) -> None:
        self._versions.pop(monitor_id, None)
        self._due.pop(monitor_id, None)
        self._missing.pop(monitor_id, None)

    def _seconds(self, now: datetime) -> float:
        """Until the next check, at most until the revision is read again."""
        poll = self._time.seconds_to_tick(self._poll)
        if not self._versions:
            return max(poll, IDLE_SECONDS)
        if not self._queue:
            return poll
        return max(0.01, min(poll, (self._queue[0][0] - now).total_seconds()))
