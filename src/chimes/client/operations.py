"""Operations of the clients, as generators of requests. Schedules are found by name within the
namespace, or by id."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

from chimes.client.requests import (
    Duration,
    Moment,
    Options,
    RecipientLike,
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
    ApprovalInfo,
    BulkResult,
    ConnectionInfo,
    FeedInfo,
    LimitInfo,
    LogLine,
    MinuteInfo,
    MonitorInfo,
    NodeInfo,
    PingInfo,
    PlanInfo,
    ProposalInfo,
    RunInfo,
    ScheduleInfo,
    SecretInfo,
    SilenceInfo,
    approval_info,
    bulk_result,
    connection_info,
    feed_info,
    items_of,
    limit_info,
    log_line,
    minute_info,
    monitor_info,
    node_info,
    ping_info,
    plan_info,
    proposal_info,
    run_info,
    schedule_info,
    secret_info,
    silence_info,
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
from chimes.model.ids import declared_id, declared_ids
from chimes.triggers import Trigger, parse_duration

_PAGE = "200"
#: Rounds of an upsert that competes with other clients.
_MAX_ROUNDS = 20
#: Poll interval in seconds: short at first, because most runs are short.
_FIRST_POLL, _MAX_POLL = 0.05, 1.0
_ERRORS: Mapping[str, type[RunFailed]] = {
    "timeout": RunTimedOut,
    "canceled": RunCanceled,
    "skipped": RunNotCarriedOut,
    "missed": RunNotCarriedOut,
    "unknown": RunLost,
}


class Operations:
    def __init__(self, *, namespace: str, patience: float, monotonic: Callable[[], float]) -> None:
        self.namespace = namespace
        self._exchange = Exchange(patience=patience)
        self._monotonic = monotonic

    def list_schedules(
        self, *, everywhere: bool = False, filter: str | None = None
    ) -> Steps[list[ScheduleInfo]]:
        """Schedules of the namespace, or all that the key may see, by next_run_at; those without
        one come last. `filter` as in the dashboard: `status:failed label:billing`."""
        query = {"sort": "next_run_at"}
        if filter:
            query["q"] = filter
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
        """Creates or updates the schedule of this name. An unchanged trigger keeps its next_run_at;
        `enabled` and `owner` apply to a new schedule only."""
        check_options("schedule", options, Options.__optional_keys__)
        fields: Json = {
            "trigger": trigger_json(trigger, options),
            "target": target_json(target, options.get("args"), options.get("input")),
        }
        if policy := policy_json(options):
            fields["policy"] = policy
        if "priority" in options:
            fields["priority"] = options["priority"]
        if "labels" in options:
            fields["labels"] = dict(options["labels"])
        if "delivery" in options:
            fields["delivery"] = delivery_json(options["delivery"])
        if "depends_on" in options:
            fields["depends_on"] = yield from self._dependency(options)
        for _unused in range(_MAX_ROUNDS):
            found = yield from self._find(name)
            try:
                if found is None:
                    return schedule_info((yield from self._create(name, fields, options)))
                path = path_of("schedules", str(found["id"]))
                return schedule_info((yield from self._send("PATCH", path, fields)))
            except (AlreadyExists, NotFound):
                # Another client created or deleted it in the meantime.
                continue
        raise Conflict(
            _(
                "schedule {name!r} is changed by other clients at the same time; try again",
                name=name,
            )
        )

    def delete_schedule(self, name: str) -> Steps[bool]:
        """Deletes a schedule; False if there was none."""
        try:
            path = yield from self._path(name)
            yield from self._send("DELETE", path)
        except NotFound:
            return False
        return True

    def trigger_schedule(self, name: str) -> Steps[str]:
        """Starts a run now. next_run_at does not change; the schedule may be paused."""
        path = yield from self._path(name)
        return run_info((yield from self._send("POST", f"{path}/run"))).id

    def reschedule_for(self, name: str, time: Moment) -> Steps[ScheduleInfo]:
        """Sets the time of the next run; the past means now. Raises Conflict if it is paused."""
        body = {"to": moment_text(time, "time")}
        path = yield from self._path(name)
        return schedule_info((yield from self._send("POST", f"{path}/reschedule", body)))

    def set_schedule_enabled(self, name: str, enabled: bool) -> Steps[ScheduleInfo]:
        """Pauses or resumes a schedule; it resumes with the first slot after now."""
        return (yield from (self.resume(name) if enabled else self.pause(name)))

    def pause(
        self, name: str, *, note: str = "", until: Moment | None = None
    ) -> Steps[ScheduleInfo]:
        body: Json = {"note": note}
        if until is not None:
            body["until"] = moment_text(until, "until")
        path = yield from self._path(name)
        return schedule_info((yield from self._send("POST", f"{path}/pause", body)))

    def resume(self, name: str) -> Steps[ScheduleInfo]:
        path = yield from self._path(name)
        return schedule_info((yield from self._send("POST", f"{path}/resume")))

    def bulk(
        self,
        action: str,
        *,
        ids: Sequence[str] | None = None,
        filter: str | None = None,
        reason: str = "",
        until: Moment | None = None,
        dry_run: bool = False,
    ) -> Steps[list[BulkResult]]:
        """Pauses, resumes, deletes or runs many schedules (`action`: pause, resume, delete, run):
        those with these ids, or all that match a filter such as `label:billing`. An error for one
        does not stop the others; each has its result."""
        body: Json = {"action": action, "dry_run": dry_run}
        if ids is not None:
            body["ids"] = list(ids)
        if filter is not None:
            body["q"] = filter
        if reason:
            body["reason"] = reason
        if until is not None:
            body["until"] = moment_text(until, "until")
        found: list[BulkResult] = []
        while True:
            page = yield from self._send("POST", "/schedules/bulk", body)
            found.extend(bulk_result(each) for each in items_of(page))
            if page.get("next_cursor") is None:
                return found
            body["cursor"] = page["next_cursor"]

    def enqueue(
        self,
        task: TargetLike,
        args: Mapping[str, object] | None = None,
        *,
        input: Mapping[str, object] | None = None,
        at: Moment | None = None,
        **options: Unpack[RunOptions],
    ) -> Steps[str]:
        """Starts a run without a schedule, now or `at` a time: a task by name, or any target that
        `schedule` accepts."""
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
        return run_info((yield from self._send("POST", "/runs", body))).id

    def runs(
        self,
        *,
        schedule: str | None = None,
        status: str | None = None,
        parent_id: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        filter: str | None = None,
        limit: int | None = 50,
    ) -> Steps[list[RunInfo]]:
        """Runs, newest first; `limit` None for all. `filter` as in the dashboard:
        `status:failed since:24h`."""
        query: dict[str, str] = {}
        if filter:
            query["q"] = filter
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
        return run_info((yield from self._send("GET", path_of("runs", run_id))))

    def logs(self, run_id: str) -> Steps[list[LogLine]]:
        """The log so far, oldest first."""
        found: list[LogLine] = []
        after: object = 0
        while after is not None:
            query = {"after": str(after), "limit": "1000"}
            page = yield from self._send("GET", path_of("runs", run_id, "logs"), query=query)
            found.extend(log_line(each) for each in items_of(page))
            after = page.get("next_after")
        return found

    def cancel(self, run_id: str) -> Steps[RunInfo]:
        """Cancels a run. Raises Conflict if it has ended."""
        return run_info((yield from self._send("POST", path_of("runs", run_id, "cancel"))))

    def retry(self, run_id: str) -> Steps[str]:
        """Starts a new run with the same target."""
        return run_info((yield from self._send("POST", path_of("runs", run_id, "retry")))).id

    def acknowledge(self, run_id: str, *, reason: str = "") -> Steps[None]:
        """Acknowledges a failure: it is marked as known and not escalated. Raises Conflict if the
        run has not failed."""
        yield from self._send("POST", path_of("runs", run_id, "acknowledge"), {"reason": reason})

    def add_silence(
        self,
        *,
        until: Moment,
        labels: Mapping[str, str | None] | None = None,
        schedule: str | None = None,
        since: Moment | None = None,
        reason: str = "",
    ) -> Steps[SilenceInfo]:
        """Sends no notifications of a schedule (name or id), of those with these labels, or, with
        neither, of all."""
        body: Json = {"until": moment_text(until, "until"), "reason": reason}
        if schedule is not None:
            body["schedule"] = (yield from self.get_schedule(schedule)).id
        elif labels is not None:
            body["labels"] = dict(labels)
        else:
            body["all"] = True
        if since is not None:
            body["from"] = moment_text(since, "since")
        return silence_info((yield from self._send("POST", path_of("silences"), body)))

    def silences(self) -> Steps[list[SilenceInfo]]:
        """Active and planned silences."""
        found = yield from self._send("GET", path_of("silences"))
        return [silence_info(each) for each in items_of(found)]

    def end_silence(self, silence_id: str) -> Steps[bool]:
        """Ends a silence; False if there is none."""
        try:
            yield from self._send("DELETE", path_of("silences", silence_id))
        except NotFound:
            return False
        return True

    def result(self, run_id: str, within: Duration | None = None) -> Steps[object]:
        """Waits for the end of a run and returns its value. Raises RunFailed or a subclass if it
        failed, TimeoutError if it has not ended `within` this time."""
        started = self._monotonic()
        limit = None
        if within is not None:
            limit = parse_duration(duration_text(within, "timeout"), allow_zero=True)
        pause = _FIRST_POLL
        while True:
            run = yield from self.run(run_id)
            if run.ended:
                break
            remaining = pause
            if limit is not None:
                remaining = limit.total_seconds() - (self._monotonic() - started)
                if remaining <= 0:
                    raise TimeoutError(
                        _("run {id} has not ended within {limit}", id=run_id, limit=limit)
                    )
            yield Wait(min(pause, remaining))
            pause = min(pause * 1.5, _MAX_POLL)
        if run.status != "succeeded":
            raise _failure(run)
        return run.value

    def nodes(self) -> Steps[list[NodeInfo]]:
        page = yield from self._send("GET", "/nodes")
        return [node_info(each) for each in items_of(page)]

    def list_connections(self) -> Steps[list[ConnectionInfo]]:
        """Engines, brokers and databases of the server and of the live nodes, by kind and name;
        without their URLs."""
        page = yield from self._send("GET", "/connections")
        return [connection_info(each) for each in items_of(page)]

    def list_secrets(self, *, owner: str | None = None) -> Steps[list[SecretInfo]]:
        """Secrets of the caller, or of an owner, by name; without their values."""
        page = yield from self._send("GET", "/secrets", query=_owner_query(owner))
        return [secret_info(each) for each in items_of(page)]

    def set_secret(self, name: str, value: str, *, owner: str | None = None) -> Steps[SecretInfo]:
        """Stores a secret, or replaces its value. Schedules use it as `{{secret.NAME}}`."""
        path, query = path_of("secrets", name), _owner_query(owner)
        return secret_info((yield from self._send("PUT", path, {"value": value}, query=query)))

    def delete_secret(
        self,
        name: str,
        *,
        force: bool = False,
        owner: str | None = None,
    ) -> Steps[bool]:
        """Deletes a secret; False if there was none. Raises Conflict if schedules use it, unless
        `force`."""
        query = _owner_query(owner) | ({"force": "true"} if force else {})
        try:
            yield from self._send("DELETE", path_of("secrets", name), query=query)
        except NotFound:
            return False
        return True

    def list_limits(self, *, owner: str | None = None) -> Steps[list[LimitInfo]]:
        """Limits of the caller, or of an owner, and shared ones, with their current use."""
        page = yield from self._send("GET", "/limits", query=_owner_query(owner))
        return [limit_info(each) for each in items_of(page)]

    def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        breaker: tuple[int, Duration] | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Steps[LimitInfo]:
        """Creates a limit, or replaces all its values. `breaker`: failures in a row, and the pause
        after them. `shared`: a limit of all owners, which only admins may set."""
        given: Json = {"concurrency": concurrency, "rate": rate, "burst": burst}
        if breaker is not None:
            failures, pause = breaker
            given["breaker"] = {"failures": failures, "pause": duration_text(pause, "breaker")}
        body = {key: value for key, value in given.items() if value is not None}
        path, query = path_of("limits", name), _limit_query(owner, shared)
        return limit_info((yield from self._send("PUT", path, body, query=query)))

    def delete_limit(
        self, name: str, *, owner: str | None = None, shared: bool = False
    ) -> Steps[bool]:
        """Deletes a limit; False if there was none. Raises Conflict while schedules name it."""
        query = _limit_query(owner, shared)
        try:
            yield from self._send("DELETE", path_of("limits", name), query=query)
        except NotFound:
            return False
        return True

    def list_monitors(self, *, status: str | None = None) -> Steps[list[MonitorInfo]]:
        """Monitors that the key may see, by name; with this status, or all."""
        query = {} if status is None else {"status": status}
        return [monitor_info(each) for each in (yield from self._pages("/monitors", query))]

    def get_monitor(self, monitor_id: str) -> Steps[MonitorInfo]:
        return monitor_info((yield from self._send("GET", path_of("monitors", monitor_id))))

    def create_monitor(
        self,
        name: str,
        trigger: Trigger | str | Mapping[str, object],
        *,
        grace: Duration | None = None,
        timezone: str | None = None,
        tags: Sequence[str] = (),
        delivery: Sequence[RecipientLike] = (),
        owner: str | None = None,
    ) -> Steps[MonitorInfo]:
        """Creates a monitor. Its job calls `ping_url` when it has ended."""
        options: Options = {} if timezone is None else {"timezone": timezone}
        body: Json = {"name": name, "trigger": trigger_json(trigger, options), "tags": list(tags)}
        if grace is not None:
            body["grace"] = duration_text(grace, "grace")
        if delivery:
            body["delivery"] = delivery_json(delivery)
        if owner is not None:
            body["owner"] = owner_json(owner)
        return monitor_info((yield from self._send("POST", "/monitors", body)))

    def pause_monitor(self, monitor_id: str) -> Steps[MonitorInfo]:
        return monitor_info((yield from self._act_on_monitor(monitor_id, "pause")))

    def resume_monitor(self, monitor_id: str) -> Steps[MonitorInfo]:
        """Expects pings from now on."""
        return monitor_info((yield from self._act_on_monitor(monitor_id, "resume")))

    def rotate_monitor(self, monitor_id: str) -> Steps[MonitorInfo]:
        """Replaces the URLs of ping and badge; the old ones are unknown at once."""
        return monitor_info((yield from self._act_on_monitor(monitor_id, "rotate")))

    def delete_monitor(self, monitor_id: str) -> Steps[bool]:
        """Deletes a monitor; False if there was none."""
        try:
            yield from self._send("DELETE", path_of("monitors", monitor_id))
        except NotFound:
            return False
        return True

    def monitor_pings(self, monitor_id: str) -> Steps[list[PingInfo]]:
        """The last pings, newest first."""
        page = yield from self._send("GET", path_of("monitors", monitor_id, "pings"))
        return [ping_info(each) for each in items_of(page)]

    def _act_on_monitor(self, monitor_id: str, verb: str) -> Steps[Json]:
        return (yield from self._send("POST", path_of("monitors", monitor_id, verb)))

    def propose(
        self,
        *,
        reason: str,
        schedules: Mapping[str, Mapping[str, object]] | None = None,
        delete: Sequence[str] = (),
        pause: Sequence[str] = (),
        resume: Sequence[str] = (),
        run: Sequence[str] = (),
        asker: str = "",
        expires_in: Duration | None = None,
    ) -> Steps[ProposalInfo]:
        """Proposes changes that another caller approves or rejects. `schedules`: definitions to
        create or update by name, as in `POST /api/v1/apply`; the other arguments are ids."""
        body: Json = {
            "reason": reason,
            "namespace": self.namespace,
            "schedules": {name: dict(each) for name, each in (schedules or {}).items()},
            "delete": list(delete),
            "pause": list(pause),
            "resume": list(resume),
            "run": list(run),
            "asker": asker,
        }
        if expires_in is not None:
            body["expires_in"] = duration_text(expires_in, "expires_in")
        return proposal_info((yield from self._send("POST", "/proposals", body)))

    def list_proposals(self, *, status: str | None = None) -> Steps[list[ProposalInfo]]:
        """The newest 200 proposals, the newest first. `status`: only those that are open, approved,
        rejected, expired or failed."""
        query = {"limit": _PAGE} | ({} if status is None else {"status": status})
        page = yield from self._send("GET", "/proposals", query=query)
        return [proposal_info(each) for each in items_of(page)]

    def get_proposal(self, proposal_id: str) -> Steps[ProposalInfo]:
        return proposal_info((yield from self._send("GET", path_of("proposals", proposal_id))))

    def approve_proposal(
        self, proposal_id: str, *, digest: str = "", reason: str = ""
    ) -> Steps[ProposalInfo]:
        """Makes the changes of a proposal. `digest`: of the plan that was looked at. Raises
        Conflict if the schedules changed since; the proposal then has the new plan."""
        body = {"digest": digest, "reason": reason}
        path = path_of("proposals", proposal_id, "approve")
        return proposal_info((yield from self._send("POST", path, body)))

    def reject_proposal(self, proposal_id: str, *, reason: str = "") -> Steps[ProposalInfo]:
        path = path_of("proposals", proposal_id, "reject")
        return proposal_info((yield from self._send("POST", path, {"reason": reason})))

    def list_approvals(self, *, status: str | None = None) -> Steps[list[ApprovalInfo]]:
        """The newest 200 approvals of flows, the newest first. `status`: only those that are open,
        approved, rejected, expired or canceled."""
        query = {"limit": _PAGE} | ({} if status is None else {"status": status})
        page = yield from self._send("GET", "/approvals", query=query)
        return [approval_info(each) for each in items_of(page)]

    def get_approval(self, approval_id: str) -> Steps[ApprovalInfo]:
        return approval_info((yield from self._send("GET", path_of("approvals", approval_id))))

    def approve(self, approval_id: str, *, reason: str = "") -> Steps[ApprovalInfo]:
        """Lets a waiting flow go on. Raises Conflict if the approval was decided or has expired."""
        path = path_of("approvals", approval_id, "approve")
        return approval_info((yield from self._send("POST", path, {"reason": reason})))

    def reject(self, approval_id: str, *, reason: str = "") -> Steps[ApprovalInfo]:
        """Rejects the step of a waiting flow. Raises Conflict likewise."""
        path = path_of("approvals", approval_id, "reject")
        return approval_info((yield from self._send("POST", path, {"reason": reason})))

    def send_event(
        self, name: str, data: object = None, *, key: str = ""
    ) -> Steps[tuple[str, ...]]:
        """Sends an event to flows that wait for it, or were started and come to their wait within a
        day. Returns the ids of the runs of the steps that received it now."""
        sent = yield from self._send("POST", path_of("events", name), {"key": key, "data": data})
        run_ids = sent.get("run_ids")
        return tuple(str(each) for each in run_ids) if isinstance(run_ids, list) else ()

    def plan(self, changes: Sequence[Mapping[str, object]], *, days: int = 7) -> Steps[PlanInfo]:
        """What changes would do to the fires of the next days; saves nothing. Each change is
        `{"schedule": ID, "patch": {…}}`, `{"create": {…}}` or `{"delete": ID}`."""
        body: Json = {"changes": [dict(each) for each in changes], "days": days}
        return plan_info((yield from self._send("POST", path_of("plan"), body)))

    def forecast(self, *, days: int = 7) -> Steps[list[MinuteInfo]]:
        """The minutes of the next days in which runs start, with their expected time."""
        found = yield from self._send("GET", path_of("forecast"), query={"days": str(days)})
        return [minute_info(each) for each in items_of({"items": found.get("minutes")})]

    def create_feed(
        self,
        *,
        label: str | None = None,
        schedule: str | None = None,
        owner: str | None = None,
    ) -> Steps[FeedInfo]:
        """An address for calendar applications: of the schedules with a label (`name` or
        `name=value`), of a schedule (name or id), or of those of an owner (`user:alice`). The
        answer has the address, which is shown once."""
        body: Json = {"label": label, "owner": owner}
        if schedule is not None:
            body["schedule"] = str((yield from self._schedule(schedule))["id"])
        given = {name: value for name, value in body.items() if value is not None}
        return feed_info((yield from self._send("POST", path_of("feeds"), given)))

    def list_feeds(self) -> Steps[list[FeedInfo]]:
        """Feeds, without their addresses."""
        found = yield from self._send("GET", path_of("feeds"))
        return [feed_info(each) for each in items_of(found)]

    def delete_feed(self, feed_id: str) -> Steps[bool]:
        """Revokes a feed; False if there is none."""
        try:
            yield from self._send("DELETE", path_of("feeds", feed_id))
        except NotFound:
            return False
        return True

    def _create(self, name: str, fields: Json, options: Options) -> Steps[Json]:
        """Creates a schedule with an id derived from its name, so that only one of two concurrent
        requests succeeds."""
        body: Json = {**fields, "name": name, "namespace": self.namespace}
        if "enabled" in options:
            body["enabled"] = options["enabled"]
        if "owner" in options:
            body["owner"] = owner_json(options["owner"])
        for generation in range(1, _MAX_ROUNDS + 1):
            body["id"] = declared_id(self.namespace, name, generation)
            try:
                return (yield from self._send("POST", "/schedules", body))
            except AlreadyExists:
                # Created by another client, or deleted earlier: an id is never reused.
                if (yield from self._find(name)) is not None:
                    raise
        # Deleted and created often: use a random id.
        body["id"] = str(uuid.uuid4())
        return (yield from self._send("POST", "/schedules", body))

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
            return (yield from self._send("GET", path_of("schedules", name)))
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
        """By name. If there are several, the one declared by code, else the oldest."""
        query = {"namespace": self.namespace, "name": name, "limit": _PAGE}
        page = yield from self._send("GET", "/schedules", query=query)
        declared = declared_ids(self.namespace, name)
        found = min(items_of(page), key=lambda each: each.get("id") not in declared, default=None)
        return None if found is None else dict(found)

    def _pages(
        self, path: str, query: Mapping[str, str], limit: int | None = None
    ) -> Steps[list[Mapping[str, object]]]:
        found: list[Mapping[str, object]] = []
        cursor: object = None
        while limit is None or len(found) < limit:
            page_query = {**query, "limit": _PAGE}
            if isinstance(cursor, str):
                page_query["cursor"] = cursor
            page = yield from self._send("GET", path, query=page_query)
            found.extend(items_of(page))
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        return found[:limit]

    def _send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Steps[Json]:
        call = Call(method=method, path=path, body=body, query=query or {})
        return (yield from self._exchange.send(call))


def _limit_query(owner: str | None, shared: bool) -> dict[str, str]:
    return _owner_query(owner) | ({"shared": "true"} if shared else {})


def _owner_query(owner: str | None) -> dict[str, str]:
    return {} if owner is None else {"owner": owner}


def _failure(run: RunInfo) -> ChimesError:
    cause = run.error or run.reason
    name = run.schedule_name or f"{run.kind}:{run.target}"
    ended = _("run {id} of {name} ended as {status}", id=run.id, name=name, status=run.status)
    return _ERRORS.get(run.status, RunFailed)(
        joined(": ", [ended, cause]) if cause else ended,
        run_id=run.id,
        status=run.status,
        error=run.error,
        reason=run.reason,
    )
