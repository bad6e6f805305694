"""Executes targets of connections: hands work over to an engine and follows it, or publishes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from msgspec import structs

from chimes.config.connections import Connection
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model.checkpoint import EngineCheckpoint, decode_engine_checkpoint
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import (
    CONNECTION_KINDS,
    AmqpTarget,
    EngineTarget,
    KafkaTarget,
    NatsTarget,
    PublishTarget,
    RedisStreamTarget,
    connection_name,
)
from chimes.redaction import Redactor
from chimes.targets.base import Call, TargetError, run_facts, secret_facts
from chimes.targets.engines.port import (
    Broker,
    Clients,
    Engine,
    Job,
    JobEnd,
    JobReport,
    Publication,
    Resolve,
    fill,
)
from chimes.targets.http.runner import outcome_of_timeout
from chimes.targets.remote import PollDelay, RemoteAttempt, RemoteExecutor

#: Jobs in flight per node and kind, in a pool of their own: they mostly wait.
PERMITS = 100
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.1, 5.0, 1.5
#: Characters of JSON; a longer return value is cut.
MAX_VALUE = 64 * 1024


def capabilities_of(connections: Sequence[Connection]) -> frozenset[str]:
    return frozenset(each.capability for each in connections if each.kind in CONNECTION_KINDS)


# --- engines --------------------------------------------------------------------------------------
class EngineRunner:
    resumable = False
    permits = PERMITS

    def __init__(
        self,
        kind: str,
        connections: Sequence[Connection],
        build: Callable[[Connection], Engine],
        resolve: Resolve,
    ) -> None:
        self.kind = kind
        self.capabilities = capabilities_of(connections)
        self._clients = Clients(connections, build, resolve)
        self._executor = RemoteExecutor()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        await self._executor.close()
        await self._clients.close()

    async def execute(self, call: Call) -> Outcome:
        attempt = EngineAttempt(call, self._clients)
        outcome = await self._executor.execute(attempt)
        if outcome.end is not AttemptEnd.SUCCEEDED:
            attempt.log("error", outcome.error)
        return outcome

    async def release(self, connection: str, job_id: str) -> None:
        """Called once the end of the run is stored."""
        if (engine := self._clients.opened(connection)) is not None:
            await engine.release(job_id)


class EngineAttempt(RemoteAttempt):
    """One attempt: store the id, hand over, store that it was confirmed, follow to the end.

    The id is chosen here and stored before the hand-over. A node that takes over finds one of two
    states: `sent` is stored, then it only follows; or not, then the other node died while handing
    over, and the job is handed over again under the same id. Dask and Kubernetes accept an id once.
    Celery does not de-duplicate: in that window of milliseconds a task can be sent twice, with one
    id, by which a worker can tell."""

    def __init__(self, call: Call, clients: Clients[Engine]) -> None:
        super().__init__(call, Redactor())
        self._clients = clients
        self._engine: Engine | None = None
        self._job: Job | None = None
        self._sent = False
        self._report = JobReport(status="")

    @property
    def accepted(self) -> bool:
        return self._sent

    @property
    def cancelable(self) -> bool:
        return self._sent

    def result(self) -> dict[str, object]:
        target = cast(EngineTarget, self.call.run.target)
        found: dict[str, object] = {"connection": target.connection}
        if self._job is not None:
            found["id"] = self._job.id
        if self._report.status:
            found["status"] = self._report.status
        if self._report.end is JobEnd.SUCCEEDED:
            found["value"] = _cut(self.redactor.value(self._report.value))
        return found

    async def execute(self) -> None:
        target = cast(EngineTarget, self.call.run.target)
        self._engine = engine = await self._clients.get(target, connection_name(target))
        self.redactor = Redactor(engine.connection.secrets)
        stored = await self._stored()
        self._job = job = self._build_job(target, stored.id)
        self._sent = stored.sent
        if stored.sent:
            self.log("info", _("Following {kind} job {id}", kind=target.kind, id=job.id))
        else:
            await self._hand_over(engine, job, stored)
        await self._follow(engine, job)

    async def cancel(self) -> None:
        assert self._engine is not None
        assert self._job is not None
        await self._engine.cancel(self._job)

    def _build_job(self, target: EngineTarget, job_id: str) -> Job:
        call = self.call
        facts = run_facts(call.run, call.triggered_at) | secret_facts(call.secrets)
        names = [
            name
            for name in ("args", "kwargs", "command", "env", "manifest")
            if hasattr(target, name)
        ]
        filled = {name: fill(getattr(target, name), facts) for name in names}
        return Job(
            id=job_id,
            target=structs.replace(target, **filled),
            seconds=call.run.policy.timeout.total_seconds(),
        )

    async def _stored(self) -> EngineCheckpoint:
        """Where the run stands. A job whose end is recorded, and that is to be tried again, gets a
        new id; a job that was not confirmed keeps its id."""
        run, state = self.call.run, self.call.state
        found = decode_engine_checkpoint(await state.read() if state is not None else None)
        if found is None:
            return EngineCheckpoint(id=run.id, failures=run.failures)
        if found.sent and run.failures > found.failures:
            return EngineCheckpoint(id=f"{run.id}-{run.attempt}", failures=run.failures)
        return found

    async def _save(self, checkpoint: EngineCheckpoint) -> None:
        state = self.call.state
        if state is not None and not await state.save(checkpoint.to_text()):
            # Another node has claimed the run and follows the job, so it is not canceled.
            raise TargetError("lost", _("the run belongs to another node"))

    async def _hand_over(self, engine: Engine, job: Job, stored: EngineCheckpoint) -> None:
        await self._save(stored)
        new = await engine.submit(job)
        self._sent = True
        hit("engine.submitted")
        await self._save(structs.replace(stored, sent=True, failures=self.call.run.failures))
        kind = job.target.kind
        self.log(
            "info",
            _("Handed over as {kind} job {id}", kind=kind, id=job.id)
            if new
            else _("Found {kind} job {id}, handed over before", kind=kind, id=job.id),
        )

    async def _follow(self, engine: Engine, job: Job) -> None:
        delay = PollDelay(seconds=FIRST_PAUSE, longest=LONGEST_PAUSE, growth=GROWTH)
        while True:
            try:
                report = await engine.poll(job)
            except TargetError as error:
                if not error.retryable:
                    raise
                # The job continues despite a failed poll.
                self.log("warning", error.text)
            else:
                if report.status != self._report.status:
                    self.log(
                        "info", _("Job {id}: {status}", id=job.id, status=report.status or "-")
                    )
                self._report = report
                if report.end is not None:
                    break
            await asyncio.sleep(delay.next())
        for line in self._report.output:
            self.log("info", line)
        match self._report.end:
            case JobEnd.FAILED:
                why = self._report.error or self._report.status
                raise TargetError("job_failed", _("the job failed: {why}", why=why), retryable=True)
            case JobEnd.CANCELED:
                raise TargetError("job_canceled", _("the job was canceled in the engine"))


def _cut(value: object) -> object:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return value if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


# --- brokers --------------------------------------------------------------------------------------
class PublishRunner:
    resumable = False
    permits = None

    def __init__(
        self,
        kind: str,
        connections: Sequence[Connection],
        build: Callable[[Connection], Broker],
        resolve: Resolve,
        source: str,
    ) -> None:
        """`source`: of CloudEvents, the URL of this installation."""
        self.kind = kind
        self.capabilities = capabilities_of(connections)
        self._clients = Clients(connections, build, resolve)
        self._source = source

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        await self._clients.close()

    async def execute(self, call: Call) -> Outcome:
        target = cast(PublishTarget, call.run.target)
        timeout = call.run.policy.timeout
        result: dict[str, object] = {"connection": target.connection, "message_id": call.run.id}
        redactor = Redactor()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                publication = build_publication(call, self._source)
                used = connection_name(publication.target)
                broker = await self._clients.get(target, used)
                redactor = Redactor(broker.connection.secrets)
                receipt = await broker.publish(publication)
        except TargetError as error:
            call.log("error", redactor.text(error.text))
            return error.outcome(result, redactor)
        except TimeoutError:
            return outcome_of_timeout(timeout, result)
        result |= receipt.facts
        if receipt.duplicate:
            result["duplicate"] = True
        call.log("info", _("Published to {name}", name=used))
        return Outcome(end=AttemptEnd.SUCCEEDED, result=result)


#: The type of CloudEvents that Chimes sends.
EVENT_TYPE = "chimes.run"


def build_publication(call: Call, source: str) -> Publication:
    """The message of an attempt: the same for each attempt of a run, except what the placeholders
    `attempt`, `fence` and `triggered_at` say."""
    run = call.run
    facts = run_facts(run, call.triggered_at)
    everything = facts | secret_facts(call.secrets)
    target = cast(PublishTarget, run.target)
    target = _fill_publication(target, facts, everything)
    if isinstance(target, RedisStreamTarget):
        data: object = dict(target.fields)
        body = json.dumps(data, ensure_ascii=False).encode()
        content_type = "application/json"
    else:
        body, content_type = target.body.encode(), _content_type(target.body)
        data = json.loads(target.body) if content_type == "application/json" else target.body
    if target.cloudevents:
        event = {
            "specversion": "1.0",
            "id": run.id,
            "source": source,
            "type": EVENT_TYPE,
            "subject": run.schedule_name or run.id,
            "time": facts["slot"],
            "datacontenttype": content_type,
            "data": data,
        }
        body = json.dumps(event, ensure_ascii=False).encode()
        content_type = "application/cloudevents+json"
    headers = {
        "chimes-run-id": run.id,
        "chimes-schedule-id": facts["schedule_id"],
        "chimes-slot": facts["slot"],
        "chimes-attempt": facts["attempt"],
    }
    return Publication(
        id=run.id,
        target=target,
        body=body,
        content_type=content_type,
        headers={name: value for name, value in headers.items() if value},
    )


def _fill_publication(
    target: PublishTarget, facts: Mapping[str, str], everything: Mapping[str, str]
) -> PublishTarget:
    """Secrets are filled in messages only: the names of exchanges and streams are logged."""
    match target:
        case AmqpTarget():
            names = ("exchange", "routing_key")
        case NatsTarget():
            names = ("subject",)  # type: ignore[assignment]
        case KafkaTarget():
            names = ("topic", "key")
        case RedisStreamTarget():
            names = ("stream",)  # type: ignore[assignment]
    filled = {name: fill(getattr(target, name), facts) for name in names}
    payload = "fields" if isinstance(target, RedisStreamTarget) else "body"
    filled[payload] = fill(getattr(target, payload), everything)
    return structs.replace(target, **filled)


def _content_type(body: str) -> str:
    if body.lstrip()[:1] in ("{", "["):
        try:
            json.loads(body)
        except ValueError:
            return "text/plain"
        return "application/json"
    return "text/plain"
