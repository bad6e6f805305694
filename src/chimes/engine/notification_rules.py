"""Rules about notifications on a node: its copy of the routing rules, and which claimed deliveries
are not sent (silences, silent maintenance, escalations of failures that are no longer open)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from chimes.engine.poller import NextPoll, PollAfter
from chimes.i18n import _
from chimes.model.ids import DEFAULT_NAMESPACE, ScheduleId
from chimes.model.monitor import parse_event_reference
from chimes.model.notification import Delivery
from chimes.model.planning import MaintenanceWindow
from chimes.model.recipient import NotifyOn
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.model.silence import Silence
from chimes.notifications.base import Suppressed
from chimes.services.attention import KnownFailure, KnownFailures, covers_run, mark_key
from chimes.services.routing import refresh_routing
from chimes.services.silences import read_silences
from chimes.store.port import Store, read_maintenance
from chimes.triggers.values import format_moment

SILENCED, MAINTENANCE = "silenced", "maintenance"
ACKNOWLEDGED, RECOVERED = "acknowledged", "recovered"
#: A delivery with one of these codes that waits again was reopened by a user, and is sent.
CODES = frozenset({SILENCED, MAINTENANCE, ACKNOWLEDGED, RECOVERED})


#: Seconds until a change of the routing rules reaches every node.
ROUTING_INTERVAL = 5.0


class RoutingWatch:
    """A duty that keeps the copy of the routing rules current."""

    name = "routing watch"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> NextPoll:
        await refresh_routing(self._store)
        return PollAfter(ROUTING_INTERVAL)


class Suppressions:
    """Reads what it needs once, for one batch of deliveries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._silences: tuple[Silence, ...] | None = None
        self._windows: tuple[MaintenanceWindow, ...] = ()
        self._known: Mapping[ScheduleId, KnownFailure] | None = None
        self._schedules: dict[ScheduleId, Schedule | None] = {}

    async def check(self, delivery: Delivery, run: Run | None, now: datetime) -> Suppressed | None:
        if delivery.code in CODES or delivery.notify_on in (NotifyOn.TEST, NotifyOn.DIGEST):
            return None
        return await self._silence(delivery, now) or await self._escalation(delivery, run)

    async def _silence(self, delivery: Delivery, now: datetime) -> Suppressed | None:
        """Covers what happened within a silence, and what would be sent within it."""
        if self._silences is None:
            self._silences = await read_silences(self._store)
            maintenance = await read_maintenance(self._store)
            self._windows = tuple(each for each in maintenance if each.silence)
        moments = (delivery.created_at, now)
        silences = [e for e in self._silences if any(e.is_active(at) for at in moments)]
        windows = [e for e in self._windows if any(e.is_active(at) for at in moments)]
        decisions = (NotifyOn.PROPOSAL, NotifyOn.APPROVAL)
        if delivery.notify_on in decisions or parse_event_reference(delivery.run_id):
            # Maintenance does not apply to decisions and monitors.
            windows = []
        if not silences and not windows:
            return None
        schedule = await self._schedule(delivery.schedule_id)
        labels = {} if schedule is None else schedule.labels
        for silence in silences:
            if silence.covers(delivery.schedule_id, str(delivery.owner), labels):
                until, reason = format_moment(silence.until), silence.reason
                error = _("silenced until {until}: {reason}", until=until, reason=reason)
                if not reason:
                    error = _("silenced until {until}", until=until)
                return Suppressed(error=error, code=SILENCED)
        namespace = DEFAULT_NAMESPACE if schedule is None else schedule.namespace
        for window in windows:
            if any(window.covers(namespace, at) for at in moments):
                return Suppressed(error=_("maintenance without notifications"), code=MAINTENANCE)
        return None

    async def _escalation(self, delivery: Delivery, run: Run | None) -> Suppressed | None:
        if delivery.recipient.after is None or run is None:
            return None
        schedule = await self._schedule(run.schedule_id)
        failed_at = run.finished_at or run.created_at
        if (
            schedule is not None
            and schedule.last_success_at is not None
            and schedule.last_success_at > failed_at
        ):
            return Suppressed(
                error=_("not escalated: the schedule has succeeded since"), code=RECOVERED
            )
        if self._known is None:
            self._known = await KnownFailures(self._store).get_all()
        known = self._known.get(mark_key(run))
        if known is not None and covers_run(known, run):
            return Suppressed(
                error=_("not escalated: acknowledged by {user}", user=known.by), code=ACKNOWLEDGED
            )
        return None

    async def _schedule(self, schedule_id: ScheduleId | None) -> Schedule | None:
        if schedule_id is None:
            return None
        if schedule_id not in self._schedules:
            self._schedules[schedule_id] = await self._store.get_schedule(schedule_id)
        return self._schedules[schedule_id]
