"""The verbs, as steps. Schedules are named by name within the namespace, or by id."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Unpack

from chimes.client.requests import (
    Duration,
    Moment,
    Options,
    RunOptions,
    TargetLike,
    check_options,
    delivery_json,
    duration_text,
    moment_text,
    owner_json,
    path_of,
    policy_json,
    target_json,
    trigger_json,
)
from chimes.client.transport import Call, Exchange, Json, Steps, Wait
from chimes.client.values import (
    LogLine,
    NodeInfo,
    RunInfo,
    ScheduleInfo,
    items_of,
    log_line,
    node_info,
    run_info,
    schedule_info,
)
from chimes.errors import (
    AlreadyExists,
    ChimesError,
    Conflict,
    NotFound,
    RunCanceled,
    RunFailed,
    RunLost,
    RunNotCarriedOut,
    RunTimedOut,
)
from chimes.i18n import _, joined
from chimes.model.ids import declared_id
from chimes.triggers import Trigger, parse_duration

_PAGE = "200"
#: How often others may get in between before an upsert gives up.
_ROUNDS = 20
#: Seconds between two looks at a run: soon at first, because most runs are short.
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
_ENDS: Mapping[str, type[RunFailed]] = {
    "timeout": RunTimedOut,
    "canceled": RunCanceled,
    "skipped": RunNotCarriedOut,
    "missed": RunNotCarriedOut,
    "unknown": RunLost,
}


class Verbs:
    def __init__(self, *, namespace: str, patience: float, monotonic: Callable[[], float]) -> None:
        self.namespace = namespace
        self._exchange = Exchange(patience=patience)
        self._monotonic = monotonic

    # --- schedules ----------------------------------------------------------------------------
    def list_schedules(self, *, everywhere: bool = False) -> Steps[list[ScheduleInfo]]:
        """Those of the namespace, or all that the key may see, by next_run_at; those
        without one come last."""
        query = {"sort": "next_run_at"}
        if not everywhere:
            query["namespace"] = self.namespace
        return [schedule_info(each) for each in (yield from self._pages("/schedules", query))]

    def get_schedule(self, name: str) -> Steps[ScheduleInfo]:
        return schedule_info((yield from self._schedule(name)))

    def schedule(
        self,
        name: str,
        trigger: Trigger | str | Mapping[str, object],
        target: TargetLike,
        **options: Unpack[Options],
    ) -> Steps[ScheduleInfo]:
        """Create it, or change it where it differs: the name is its identity. The same trigger
        keeps its next_run_at; `enabled` and `owner` only count for a new schedule."""
        check_options("schedule", options, Options.__optional_keys__)
        wanted: Json = {
            "trigger": trigger_json(trigger, options),
            "target": target_json(target, options.get("args"), options.get("input")),
        }
        if policy := policy_json(options):
            wanted["policy"] = policy
        if "priority" in options:
            wanted["priority"] = options["priority"]
        if "labels" in options:
            wanted["labels"] = dict(options["labels"])
        if "delivery" in options:
            wanted["delivery"] = delivery_json(options["delivery"])
        if "depends_on" in options:
            wanted["depends_on"] = yield from self._dependency(options)
        for _unused in range(_ROUNDS):
            found = yield from self._find(name)
            try:
                if found is None:
                    return schedule_info((yield from self._create(name, wanted, options)))
                path = path_of("schedules", str(found["id"]))
                return schedule_info((yield from self._answer("PATCH", path, wanted)))
            except (AlreadyExists, NotFound):
                # Somebody else created or deleted it since we looked.
                continue
        raise Conflict(_("schedule {name!r} changes too fast; try again", name=name))

    def delete_schedule(self, name: str) -> Steps[bool]:
        """Whether there was one."""
        try:
            path = yield from self._path(name)
            yield from self._answer("DELETE", path)
        except NotFound:
            return False
        return True

    def trigger_schedule(self, name: str) -> Steps[str]:
        """A run now; next_run_at stays, and a paused schedule may be run too."""
        path = yield from self._path(name)
        return run_info((yield from self._answer("POST", f"{path}/run"))).id

    def reschedule_for(self, name: str, time: Moment) -> Steps[ScheduleInfo]:
        """The next run is at `time`; the past means now. Conflict while paused."""
        body = {"to": moment_text(time, "time")}
        path = yield from self._path(name)
        return schedule_info((yield from self._answer("POST", f"{path}/reschedule", body)))

    def set_schedule_enabled(self, name: str, enabled: bool) -> Steps[ScheduleInfo]:
        """No runs until it is enabled again; then from the first slot after now on."""
        return (yield from (self.resume(name) if enabled else self.pause(name)))

    def pause(
        self, name: str, *, note: str = "", until: Moment | None = None
    ) -> Steps[ScheduleInfo]:
        body: Json = {"note": note}
        if until is not None:
            body["until"] = moment_text(until, "until")
        path = yield from self._path(name)
        return schedule_info((yield from self._answer("POST", f"{path}/pause", body)))

    def resume(self, name: str) -> Steps[ScheduleInfo]:
        path = yield from self._path(name)
        return schedule_info((yield from self._answer("POST", f"{path}/resume")))

    # --- runs ---------------------------------------------------------------------------------
    def enqueue(
        self,
        task: TargetLike,
        args: Mapping[str, object] | None = None,
        *,
        input: Mapping[str, object] | None = None,
        at: Moment | None = None,
        **options: Unpack[RunOptions],
    ) -> Steps[str]:
        """A run without a schedule, at once or `at` a moment: a task by its name, or anything
        that `schedule` takes as a target."""
        check_options("enqueue", options, RunOptions.__optional_keys__)
        body: Json = {
            "target": target_json(task, args, input),
            "namespace": self.namespace,
        }
        if policy := policy_json(options):
            body["policy"] = policy
        if "priority" in options:
            body["priority"] = options["priority"]
        if "owner" in options:
            body["owner"] = owner_json(options["owner"])
        if "delivery" in options:
            body["delivery"] = delivery_json(options["delivery"])
        if at is not None:
            body["at"] = moment_text(at, "at")
        if "timezone" in options:
            body["timezone"] = options["timezone"]
        return run_info((yield from self._answer("POST", "/runs", body))).id

    def runs(
        self,
        *,
        schedule: str | None = None,
        status: str | None = None,
        parent_id: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = 50,
    ) -> Steps[list[RunInfo]]:
        """Newest first; None as `limit`: all."""
        query: dict[str, str] = {}
        if schedule is not None:
            query["schedule_id"] = str((yield from self._schedule(schedule))["id"])
        if status is not None:
            query["status"] = status
        if parent_id is not None:
            query["parent_id"] = parent_id
        if since is not None:
            query["since"] = moment_text(since, "since")
        if until is not None:
            query["until"] = moment_text(until, "until")
        return [run_info(each) for each in (yield from self._pages("/runs", query, limit))]

    def run(self, run_id: str) -> Steps[RunInfo]:
        return run_info((yield from self._answer("GET", path_of("runs", run_id))))

    def logs(self, run_id: str) -> Steps[list[LogLine]]:
        """Everything it has logged so far, oldest first."""
        found: list[LogLine] = []
        after: object = 0
        while after is not None:
            query = {"after": str(after), "limit": "1000"}
            page = yield from self._answer("GET", path_of("runs", run_id, "logs"), query=query)
            found.extend(log_line(each) for each in items_of(page))
            after = page.get("next_after")
        return found

    def cancel(self, run_id: str) -> Steps[RunInfo]:
        """Conflict if it has ended already."""
        return run_info((yield from self._answer("POST", path_of("runs", run_id, "cancel"))))

    def retry(self, run_id: str) -> Steps[str]:
        """A new run that does the same again."""
        return run_info((yield from self._answer("POST", path_of("runs", run_id, "retry")))).id

    def result(self, run_id: str, within: Duration | None = None) -> Steps[object]:
        """What the run's task returned, once it has ended. RunFailed, or one of its kinds, if it
        did not succeed; TimeoutError if it has not ended `within` this time."""
        began = self._monotonic()
        limit = None
        if within is not None:
            limit = parse_duration(duration_text(within, "timeout"), allow_zero=True)
        pause = _FIRST_LOOK
        while True:
            run = yield from self.run(run_id)
            if run.ended:
                break
            left = pause
            if limit is not None:
                left = limit.total_seconds() - (self._monotonic() - began)
                if left <= 0:
                    raise TimeoutError(
                        _("run {id} has not ended within {limit}", id=run_id, limit=limit)
                    )
            yield Wait(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_LOOK)
        if run.status != "succeeded":
            raise _failure(run)
        return run.value

    # --- the system ---------------------------------------------------------------------------
    def nodes(self) -> Steps[list[NodeInfo]]:
        page = yield from self._answer("GET", "/nodes")
        return [node_info(each) for each in items_of(page)]

    # --- how ----------------------------------------------------------------------------------
    def _create(self, name: str, wanted: Json, options: Options) -> Steps[Json]:
        """Under an id that follows from the name, so that of two that create it one is told so."""
        body: Json = {**wanted, "name": name, "namespace": self.namespace}
        if "enabled" in options:
            body["enabled"] = options["enabled"]
        if "owner" in options:
            body["owner"] = owner_json(options["owner"])
        for generation in range(1, _ROUNDS + 1):
            body["id"] = declared_id(self.namespace, name, generation)
            try:
                return (yield from self._answer("POST", "/schedules", body))
            except AlreadyExists:
                # Created by somebody else, or deleted earlier: an id is never used twice.
                if (yield from self._find(name)) is not None:
                    raise
        # Deleted and created very often: no need to count on.
        body["id"] = str(uuid.uuid4())
        return (yield from self._answer("POST", "/schedules", body))

    def _dependency(self, options: Options) -> Steps[Json | None]:
        name = options.get("depends_on")
        if name is None:
            return None
        found: Json = {"schedule_id": str((yield from self._schedule(name))["id"])}
        if "depends_within" in options:
            found["within"] = duration_text(options["depends_within"], "depends_within")
        return found

    def _schedule(self, name: str) -> Steps[Json]:
        found = yield from self._find(name)
        if found is not None:
            return found
        try:
            return (yield from self._answer("GET", path_of("schedules", name)))
        except NotFound:
            raise NotFound(
                _(
                    "there is no schedule {name!r} in the namespace {namespace!r}",
                    name=name,
                    namespace=self.namespace,
                )
            ) from None

    def _path(self, name: str) -> Steps[str]:
        return path_of("schedules", str((yield from self._schedule(name))["id"]))

    def _find(self, name: str) -> Steps[Json | None]:
        """The oldest of this name, where another door made several."""
        query = {"namespace": self.namespace, "name": name, "limit": "1"}
        page = yield from self._answer("GET", "/schedules", query=query)
        items = items_of(page)
        return dict(items[0]) if items else None

    def _pages(
        self, path: str, query: Mapping[str, str], limit: int | None = None
    ) -> Steps[list[Mapping[str, object]]]:
        found: list[Mapping[str, object]] = []
        cursor: object = None
        while limit is None or len(found) < limit:
            asked = {**query, "limit": _PAGE}
            if isinstance(cursor, str):
                asked["cursor"] = cursor
            page = yield from self._answer("GET", path, query=asked)
            found.extend(items_of(page))
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        return found[:limit]

    def _answer(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Steps[Json]:
        call = Call(method=method, path=path, body=body, query=query or {})
        return (yield from self._exchange.answer(call))


def _failure(run: RunInfo) -> ChimesError:
    why = run.error or run.reason
    name = run.schedule_name or f"{run.kind}:{run.target}"
    ended = _("run {id} of {name} ended as {status}", id=run.id, name=name, status=run.status)
    return _ENDS.get(run.status, RunFailed)(
        joined(": ", [ended, why]) if why else ended,
        run_id=run.id,
        status=run.status,
        error=run.error,
        reason=run.reason,
    )
