"""Computes the next steps of a flow: a pure function of its child runs.

Every decision is a row: a condition is evaluated once, and a skipped step has its record. Row ids
derive from the flow's run, so deciding again on any node changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cache

from chimes.errors import InvalidInput
from chimes.i18n import Message, _, counted, freeze
from chimes.model import replace
from chimes.model.ids import RunId, step_run_id
from chimes.model.planning import end_immediately
from chimes.model.run import (
    SUSPENDED_PREFIX,
    AttemptEnd,
    Origin,
    Outcome,
    Run,
    RunDefinition,
    RunStatus,
)
from chimes.model.target import FlowTarget, TaskTarget
from chimes.model.wait import (
    MAX_KEY,
    MAX_PROMPT,
    MAX_WAIT,
    WaitKind,
    WaitReason,
    expire_wait,
    suspended_until,
    wait_target,
)
from chimes.targets.base import EVENT, event_value
from chimes.targets.flow.definition import (
    INDEX,
    INPUT,
    ITEM,
    MOST_ELEMENTS,
    OUTPUTS,
    Flow,
    RunIf,
    Step,
    wait_deadline,
)
from chimes.telemetry import current_traceparent

#: Rows added per batch.
BATCH = 500


class SkipReason:
    CONDITION = "condition"
    UPSTREAM_FAILED = "upstream_failed"
    UPSTREAM_SKIPPED = "upstream_skipped"


class FailReason:
    CONDITION = "condition_error"
    MAP = "invalid_map"
    STEP = "step_failed"


class Stand(Enum):
    PENDING = "pending"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    FAILED = "failed"
    #: Skipped because an earlier step failed.
    CUT_OFF = "cut_off"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of one step."""

    stand: Stand
    output: object = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Advance:
    """One of four: rows to add, waits whose deadline has passed, runs to wait for, or the end."""

    add: tuple[Run, ...] = ()
    #: Waits whose deadline has passed.
    expired: tuple[RunId, ...] = ()
    waiting: tuple[RunId, ...] = ()
    #: The next deadline of a wait.
    until: datetime | None = None
    #: The end, or that the flow only waits.
    outcome: Outcome | None = None


#: The row id of a step, or of one element with an index.
Ids = Callable[[str, int | None], RunId]


def ids_of(flow_run: RunId) -> Ids:
    """Caches ids, because a long list is visited repeatedly."""
    return cache(lambda step, index: step_run_id(flow_run, step, index))


@dataclass(slots=True)
class Elements:
    """Progress of a mapped step at the last pass. Rows appear in list order and end, so only rows
    that can have changed are visited again."""

    #: The first element without a row.
    next: int = 0
    under_way: list[int] = field(default_factory=list)
    failed: bool = False
    ended: Progress | None = None


def input_of(run: Run) -> Mapping[str, object]:
    """The input of the flow; that of an event has its payload as `event`."""
    assert isinstance(run.target, FlowTarget)
    given = run.target.input
    if run.definition.cause is None or EVENT in given:
        return given
    return {**given, EVENT: event_value(run)}


def advance(
    flow: Flow,
    run: Run,
    children: Mapping[RunId, Run],
    now: datetime,
    ids: Ids,
    mapped: dict[str, Elements] | None = None,
) -> Advance:
    """`mapped` caches progress between passes over the same `children`."""
    assert isinstance(run.target, FlowTarget)
    state = _State(
        run=run,
        input=input_of(run),
        children=children,
        now=now,
        ids=ids,
        mapped={} if mapped is None else mapped,
    )
    for step in flow.ordered:
        state.progress[step.name] = state.of(step)
    if state.new:
        return Advance(add=tuple(state.new[:BATCH]))
    expired = [row.id for row in state.waits if expire_wait(row, now) is not row]
    if expired:
        return Advance(expired=tuple(expired))
    if state.waiting:
        until = min((row.available_at for row in state.waits), default=None)
        suspended = _suspension(state) if len(state.waits) == len(state.waiting) else None
        return Advance(waiting=tuple(state.waiting), until=until, outcome=suspended)
    return Advance(outcome=_outcome(flow, state))


def kept_steps(
    flow: Flow, run: Run, before: Mapping[RunId, Run], earlier: RunId, ids: Ids
) -> tuple[Run, ...]:
    """The rows that the retry of a flow begins with: those of the earlier run, without the step
    that it begins with, steps that did not succeed, and the steps after these."""
    again, earlier_ids = {run.step}, ids_of(earlier)
    kept: list[Run] = []
    for step in flow.ordered:
        rows = _rows_of(step, before, earlier_ids)
        repeated = step.name in again or not again.isdisjoint(step.after)
        if repeated or not rows or not all(_is_kept(row) for _index, row in rows):
            again.add(step.name)
        else:
            kept += [
                replace(row, id=ids(step.name, index), parent_id=run.id, retry_of=row.id)
                for index, row in rows
            ]
    return tuple(kept)


def _rows_of(step: Step, rows: Mapping[RunId, Run], ids: Ids) -> list[tuple[int | None, Run]]:
    row = rows.get(ids(step.name, None))
    if row is not None:
        return [(None, row)]
    found: list[tuple[int | None, Run]] = []
    while step.map is not None and (row := rows.get(ids(step.name, len(found)))) is not None:
        found.append((len(found), row))
    return found


def _is_kept(row: Run) -> bool:
    if row.status is RunStatus.SKIPPED:
        return row.reason in (SkipReason.CONDITION, SkipReason.UPSTREAM_SKIPPED)
    return row.status is RunStatus.SUCCEEDED


@dataclass(kw_only=True, slots=True)
class _State:
    run: Run
    input: Mapping[str, object]
    children: Mapping[RunId, Run]
    now: datetime
    ids: Ids
    mapped: dict[str, Elements]
    progress: dict[str, Progress] = field(default_factory=dict)
    new: list[Run] = field(default_factory=list)
    waiting: list[RunId] = field(default_factory=list)
    #: Of these, the ones that need no node.
    waits: list[Run] = field(default_factory=list)

    def of(self, step: Step) -> Progress:
        row = self.children.get(self.ids(step.name, None))
        if row is not None:
            if step.wait is not None and not row.status.terminal:
                self.waits.append(row)
            return self._of_row(row)
        if any(self.progress[name].stand is Stand.PENDING for name in step.after):
            return Progress(Stand.PENDING)
        if step.map is not None and self.ids(step.name, 0) in self.children:
            return self._of_elements(step, self._items(step))
        return self._begin(step)

    def _of_row(self, row: Run) -> Progress:
        if not row.status.terminal:
            self.waiting.append(row.id)
            return Progress(Stand.PENDING)
        if row.status is RunStatus.SUCCEEDED:
            return Progress(Stand.SUCCEEDED, _value(row))
        if row.status is RunStatus.SKIPPED:
            failed = row.reason == SkipReason.UPSTREAM_FAILED
            return Progress(Stand.CUT_OFF if failed else Stand.SKIPPED)
        return Progress(Stand.FAILED)

    def _of_elements(self, step: Step, items: list[object]) -> Progress:
        known = self.mapped.setdefault(step.name, Elements())
        if known.ended is not None:
            return known.ended
        while known.next < len(items) and self.ids(step.name, known.next) in self.children:
            known.under_way.append(known.next)
            known.next += 1
        under_way: list[int] = []
        for index in known.under_way:
            row = self.children[self.ids(step.name, index)]
            if not row.status.terminal:
                under_way.append(index)
                self.waiting.append(row.id)
            elif row.status is not RunStatus.SUCCEEDED:
                known.failed = True
        known.under_way = under_way
        if known.next < len(items):
            room = min(step.concurrency - len(under_way), BATCH - len(self.new))
            for index in range(known.next, min(known.next + room, len(items))):
                self.new.append(self._child(step, index, items[index]))
            return Progress(Stand.PENDING)
        if under_way:
            return Progress(Stand.PENDING)
        known.ended = Progress(Stand.FAILED)
        if not known.failed:
            rows = (self.children[self.ids(step.name, index)] for index in range(len(items)))
            known.ended = Progress(Stand.SUCCEEDED, [_value(row) for row in rows])
        return known.ended

    def _begin(self, step: Step) -> Progress:
        """All dependencies have ended and nothing has been decided yet."""
        skip = self._skip_reason(step)
        if skip is not None:
            return self._decided(step, RunStatus.SKIPPED, reason=skip)
        if step.when is not None:
            try:
                wanted = bool(step.when(**self._values(step, step.when_wants)))
            except (Exception, SystemExit) as error:
                said = _(
                    "its condition raised {type}: {message}",
                    type=type(error).__name__,
                    message=str(error),
                )
                return self._decided(
                    step, RunStatus.FAILED, reason=FailReason.CONDITION, error=said
                )
            if not wanted:
                return self._decided(step, RunStatus.SKIPPED, reason=SkipReason.CONDITION)
        if step.map is not None:
            return self._begin_map(step)
        if step.wait is not None:
            return self._begin_wait(step)
        self.new.append(self._child(step))
        return Progress(Stand.PENDING)

    def _begin_wait(self, step: Step) -> Progress:
        assert step.wait is not None
        wait = replace(step.wait.wait, flow=step.task.partition("/")[0])
        deadline = self.now + step.wait.expires_in
        try:
            subject = step.function(**self._values(step, step.wants))
            match wait.kind:
                case WaitKind.APPROVAL:
                    wait = replace(wait, prompt=_text(subject, "prompt", MAX_PROMPT))
                case WaitKind.EVENT:
                    wait = replace(wait, key=_text(subject, "key", MAX_KEY))
                case WaitKind.TIME:
                    deadline = _deadline(subject, self.now)
        except (Exception, SystemExit) as error:
            said = _(
                "what it waits for raised {type}: {message}",
                type=type(error).__name__,
                message=str(error),
            )
            return self._decided(step, RunStatus.FAILED, reason=WaitReason.INVALID, error=said)
        row = self._row(step, None, {})
        definition = replace(row.definition, target=wait_target(wait))
        self.new.append(replace(row, definition=definition, available_at=deadline))
        return Progress(Stand.PENDING)

    def _skip_reason(self, step: Step) -> str | None:
        before = [self.progress[name].stand for name in step.after]
        if not before or step.run_if is RunIf.ALWAYS:
            return None
        failed = Stand.FAILED in before or Stand.CUT_OFF in before
        if failed and (step.run_if is RunIf.ALL or Stand.SUCCEEDED not in before):
            return SkipReason.UPSTREAM_FAILED
        return None if Stand.SUCCEEDED in before else SkipReason.UPSTREAM_SKIPPED

    def _begin_map(self, step: Step) -> Progress:
        assert step.map is not None
        source = self.progress.get(step.map)
        if source is not None and source.stand is not Stand.SUCCEEDED:
            return self._decided(step, RunStatus.SKIPPED, reason=SkipReason.UPSTREAM_SKIPPED)
        wrong = self._unfit_for_map(step)
        if wrong:
            return self._decided(step, RunStatus.FAILED, reason=FailReason.MAP, error=wrong)
        items = self._items(step)
        if not items:
            return self._decided(step, RunStatus.SUCCEEDED, result={"value": []})
        return self._of_elements(step, items)

    def _unfit_for_map(self, step: Step) -> str:
        if step.map not in step.after and step.map not in self.input:
            return _("{name!r}, which it is mapped over, is not in the flow's input", name=step.map)
        items = self._source(step)
        if not isinstance(items, list):
            return _(
                "{name!r}, which it is mapped over, is not a list but {kind}",
                name=step.map,
                kind=_kind(items),
            )
        if len(items) > MOST_ELEMENTS:
            return _(
                "{name!r}, which it is mapped over, has {count} elements; "
                "at most {most} are carried out",
                name=step.map,
                count=len(items),
                most=MOST_ELEMENTS,
            )
        return ""

    def _source(self, step: Step) -> object:
        assert step.map is not None
        if step.map in step.after:
            return self.progress[step.map].output
        return self.input.get(step.map)

    def _items(self, step: Step) -> list[object]:
        items = self._source(step)
        assert isinstance(items, list)
        return items

    def _values(self, step: Step, wants: tuple[str, ...]) -> dict[str, object]:
        """Values by name; unknown names keep their default."""
        outputs = {name: self.progress[name].output for name in step.after}
        known = {**self.input, INPUT: dict(self.input), OUTPUTS: outputs, **outputs}
        return {name: known[name] for name in wants if name in known}

    def _child(self, step: Step, index: int | None = None, item: object = None) -> Run:
        args = self._values(step, step.wants)
        if index is not None:
            element = {ITEM: item, INDEX: index}
            args |= {name: value for name, value in element.items() if name in step.wants}
        return self._row(step, index, args)

    def _row(self, step: Step, index: int | None, args: Mapping[str, object]) -> Run:
        run = self.run
        return Run(
            id=self.ids(step.name, index),
            # Not a run of the schedule, whose history and last result are those of the flow.
            definition=RunDefinition(
                schedule_name=run.schedule_name,
                schedule_version=run.schedule_version,
                namespace=run.namespace,
                owner=run.owner,
                target=TaskTarget(name=step.task, args=args),
                policy=step.policy,
                trace=current_traceparent(),
            ),
            origin=Origin.CHILD,
            parent_id=run.id,
            step=step.name if index is None else f"{step.name}[{index}]",
            priority=run.priority,
            catch_up=run.catch_up,
            created_at=self.now,
            planned_at=self.now,
            # Flows that have begun go before later ones.
            available_at=min(run.available_at, self.now),
        )

    def _decided(
        self,
        step: Step,
        status: RunStatus,
        *,
        reason: str = "",
        error: str = "",
        result: Mapping[str, object] | None = None,
    ) -> Progress:
        row = end_immediately(self._row(step, None, {}), status, reason, self.now)
        self.new.append(replace(row, error=freeze(error), result=result))
        return Progress(Stand.PENDING)


def _text(value: object, name: str, most: int) -> str:
    text = "" if value is None else str(value)
    if len(text) > most:
        raise InvalidInput(_("{field} has at most {most} characters", field=name, most=most))
    return text


def _deadline(value: object, now: datetime) -> datetime:
    found = wait_deadline(value, now)
    if found > now + MAX_WAIT:
        raise InvalidInput(_("a wait lasts {days} days at most", days=MAX_WAIT.days))
    return found


def _suspension(state: _State) -> Outcome:
    """The flow only waits, and goes back to the queue."""
    first = min(state.waits, key=lambda row: (row.available_at, row.id))
    return Outcome(
        end=AttemptEnd.CANCELED,
        code=f"{SUSPENDED_PREFIX}{first.step}",
        suspended_until=suspended_until(state.waits, state.now),
    )


def _outcome(flow: Flow, state: _State) -> Outcome:
    failed = [
        row
        for row in state.children.values()
        if row.status not in (RunStatus.SUCCEEDED, RunStatus.SKIPPED)
    ]
    if failed:
        first = min(failed, key=lambda row: (row.finished_at or state.now, row.id))
        error = _ended(first)
        if len(failed) > 1:
            error = counted(
                "{problem} (and {count} more step)",
                "{problem} (and {count} more steps)",
                len(failed) - 1,
                problem=error,
            )
        return Outcome(end=AttemptEnd.FAILED, error=error, code=FailReason.STEP)
    value = {step.name: state.progress[step.name].output for step in flow.leaves}
    return Outcome(end=AttemptEnd.SUCCEEDED, result={"value": value})


def _ended(step: Run) -> Message:
    name, why = step.step, step.error or step.reason
    match step.status:
        case RunStatus.FAILED:
            if why:
                return _("step {step!r} failed: {why}", step=name, why=why)
            return _("step {step!r} failed", step=name)
        case RunStatus.TIMEOUT:
            if why:
                return _("step {step!r} timed out: {why}", step=name, why=why)
            return _("step {step!r} timed out", step=name)
        case RunStatus.CANCELED:
            if why:
                return _("step {step!r} was canceled: {why}", step=name, why=why)
            return _("step {step!r} was canceled", step=name)
        case status:
            if why:
                return _("step {step!r} ended {status}: {why}", step=name, status=status, why=why)
            return _("step {step!r} ended {status}", step=name, status=status)


def _value(row: Run) -> object:
    return (row.result or {}).get("value")


def _kind(value: object) -> str:
    match value:
        case None:
            return _("nothing")
        case bool():
            return _("a boolean")
        case int() | float():
            return _("a number")
        case str():
            return _("text")
        case dict():
            return _("an object")
        case _:
            return type(value).__name__
