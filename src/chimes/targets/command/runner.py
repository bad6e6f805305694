"""The worker's side of a command: request, deadline, outcome."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from chimes.clock import Clock, SystemClock
from chimes.i18n import _
from chimes.model.run import AttemptEnd, Cause, Outcome
from chimes.model.target import CommandTarget, Target, command_requirements
from chimes.redaction import Redactor, is_secret_name
from chimes.targets.base import Call, fill_placeholders, run_facts, secret_facts
from chimes.targets.command.wire import LOG_LIMITS, Request, ResultMessage, message_of
from chimes.targets.process.channel import BoundedLog, LogLine
from chimes.targets.process.child import GRACE_SECONDS, Child, run_shielded
from chimes.targets.process.sanitize import (
    ERROR_LIMIT,
    describe_command_exit,
    describe_process_exit,
)
from chimes.triggers import format_moment
from chimes.triggers.values import format_duration_go

MODULE = "chimes.targets.command.supervisor"
SHELL = "/bin/sh"
#: Variables of the worker that commands see. No others: they may be secrets of the server.
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
#: What the interpreter of the supervisor may need besides them.
_INTERPRETER = ("LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
#: Programs with an option whose value a shell interprets: `-c`, or `-S` of env.
_SHELL_NAME = re.compile(
    r"(?:.*/)?(?:r?bash|sh|dash|ash|zsh|[lmo]?ksh|yash|fish|t?csh|env)[-.\d]*", re.DOTALL
)
_TEXT_OPTION = re.compile(r"-\w*[cCS]|--(?:init-)?command|--split-string")
#: `-o` and `-O` of shells, also in a combined option: the next argument is their value.
_VALUE_OPTION = re.compile(r"[-+]\w*[oO]")
#: Bytes of a message: log lines and the last lines of the output, with JSON escapes.
MAX_MESSAGE = 256 * 1024
_OUTPUT_LIMIT = 8 * 1024


class CommandRunner:
    kind = "command"
    resumable = False

    def __init__(
        self,
        labels: Mapping[str, str] | None = None,
        *,
        permits: int = 16,
        clock: Clock | None = None,
    ) -> None:
        """`labels`: of this node, which commands can require."""
        self._labels = dict(labels or {})
        self._permits = permits
        self._clock = clock or SystemClock()

    @property
    def permits(self) -> int:
        return self._permits

    @cached_property
    def capabilities(self) -> frozenset[str]:
        return frozenset(command_requirements(self._labels))

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def stop_seconds(self, target: Target) -> float:
        assert isinstance(target, CommandTarget)
        return target.kill_after.total_seconds()

    async def execute(self, call: Call) -> Outcome:
        deadline = self._clock.monotonic() + call.run.policy.timeout.total_seconds()
        target = call.run.target
        assert isinstance(target, CommandTarget)
        if sys.platform == "win32":
            return _failed("not_supported", _("commands are not supported on Windows"))
        hidden = [value for name, value in target.env.items() if is_secret_name(name)]
        log = BoundedLog(call.log, LOG_LIMITS, Redactor(hidden))
        attempt = _Attempt(call, target, log)
        try:
            return await attempt.execute(lambda: deadline - self._clock.monotonic())
        finally:
            log.close()


class _Attempt:
    def __init__(self, call: Call, target: CommandTarget, log: BoundedLog) -> None:
        self._call = call
        self._target = target
        self._log = log

    async def execute(self, remaining: Callable[[], float]) -> Outcome:
        request = _request(self._call, self._target)
        try:
            child = Child.start(
                MODULE, self._log, self._on_message, env=_variables(*_PASSED_ON, *_INTERPRETER)
            )
            canceled = await run_shielded(child.connect(request.to_line(), max_line=MAX_MESSAGE))
        except OSError as error:
            return _failed(
                "not_started",
                _("cannot start a process: {error}", error=str(error)),
                retryable=True,
            )
        try:
            if canceled:
                raise asyncio.CancelledError
            await child.wait(remaining())
        except asyncio.CancelledError:
            return await self._stop(child, overdue=remaining() <= 0)
        if child.running:
            self._log.system_line("warning", self._timeout_text)
            await run_shielded(child.end(grace=self._grace, whole_tree=True))
            return self._timed_out(child)
        await run_shielded(child.end(whole_tree=True))
        return self._outcome(child)

    async def _stop(self, child: Child[ResultMessage], *, overdue: bool) -> Outcome:
        """A run that another node has, or may soon have, is stopped without delay."""
        canceled = self._call.canceled()
        grace = self._grace if overdue or canceled else min(self._grace, GRACE_SECONDS)
        await run_shielded(child.end(grace=grace, whole_tree=True))
        if overdue:
            return self._timed_out(child)
        self._log.system_line("warning", _("canceled: the processes of the command were stopped"))
        if not canceled:
            raise asyncio.CancelledError
        return Outcome(end=AttemptEnd.CANCELED, result=self._result(child))

    @property
    def _grace(self) -> float:
        """The supervisor kills the command after `kill_after`; this is for a supervisor that does
        not."""
        return self._target.kill_after.total_seconds() + GRACE_SECONDS

    def _timed_out(self, child: Child[ResultMessage]) -> Outcome:
        return Outcome(
            end=AttemptEnd.TIMEOUT,
            retryable=True,
            result=self._result(child),
            error=self._timeout_text,
            code="timeout",
        )

    @property
    def _timeout_text(self) -> str:
        limit = format_duration_go(self._call.run.policy.timeout)
        return _("timed out after {limit}", limit=limit)

    def _outcome(self, child: Child[ResultMessage]) -> Outcome:
        if not child.result_message.done():
            return _failed("crashed", describe_process_exit(child.status), retryable=True)
        message, result = child.result_message.result(), self._result(child)
        if message.code:
            error = self._log.sanitize(message.error, ERROR_LIMIT)
            self._log.system_line("error", error)
            return _failed(message.code, error)
        if message.left_behind:
            self._log.system_line(
                "warning",
                _(
                    "the command ended and left processes behind ({count}), which were killed",
                    count=message.left_behind,
                ),
            )
        status = message.status
        assert status is not None
        if message.flooded:
            limit = self._target.output_limit
            error = _("the command wrote more than {limit} bytes and was stopped", limit=limit)
            return _failed("output_limit", error, result=result)
        if status in (self._target.success_codes or (0,)):
            return Outcome(end=AttemptEnd.SUCCEEDED, result=result)
        code = "exit_code" if status >= 0 else "killed"
        if status == -signal.SIGXCPU:
            code = "cpu_limit"
        return _failed(code, describe_command_exit(status), result=result, retryable=True)

    def _result(self, child: Child[ResultMessage]) -> dict[str, object]:
        if not child.result_message.done():
            return {"exit_code": None, "signal": None}
        message = child.result_message.result()
        status = message.status
        if status is None:
            return {}
        return {
            "exit_code": status if status >= 0 else None,
            "signal": _signal_name(-status) if status < 0 else None,
            "output": self._log.sanitize(message.output, _OUTPUT_LIMIT, keep_end=True),
        }

    def _on_message(self, line: bytes) -> ResultMessage | None:
        message = message_of(line)
        if isinstance(message, LogLine):
            self._log.line(message.level, message.message)
            return None
        return message


def _request(call: Call, target: CommandTarget) -> Request:
    run = call.run
    facts = run_facts(run, call.triggered_at)
    all_facts = facts | secret_facts(call.secrets)
    command = _fill_arguments(target.command, facts)
    cpu_limit = target.cpu_limit
    cause = run.definition.cause
    return Request(
        command=command or [SHELL, "-c", target.shell],
        cwd=target.cwd,
        inherited=_variables(*_PASSED_ON),
        variables={
            **{name: fill_placeholders(value, all_facts) for name, value in target.env.items()},
            "CHIMES_RUN_ID": run.id,
            "CHIMES_SLOT": "" if run.slot is None else format_moment(run.slot),
            "CHIMES_ATTEMPT": str(run.attempt),
            "CHIMES_SCHEDULE": run.schedule_name,
            "CHIMES_SCHEDULE_ID": run.schedule_id or "",
            **({} if cause is None else _event_variables(cause)),
        },
        stdin=fill_placeholders(target.stdin, all_facts)
        if target.stdin or cause is None
        else cause.payload,
        user=target.user,
        umask=target.umask,
        memory_limit=target.memory_limit,
        cpu_limit=None if cpu_limit is None else max(1, int(cpu_limit.total_seconds())),
        output_limit=target.output_limit,
        kill_after=target.kill_after.total_seconds(),
    )


def _event_variables(cause: Cause) -> dict[str, str]:
    """Without the payload, which is the standard input: variables are limited in size."""
    return {
        "CHIMES_EVENT": cause.kind,
        "CHIMES_EVENT_ID": cause.delivery_id,
        "CHIMES_EVENT_SOURCE": cause.source,
    }


def _fill_arguments(command: Sequence[str], facts: Mapping[str, str]) -> list[str]:
    """Fills placeholders, except in the text after `-c` of a shell, which would interpret the
    values. The shell may be started by another program, such as env, sudo or busybox. The option
    itself stays unchanged, too, because it can contain the text: `--command=…` of fish."""
    filled: list[str] = []
    in_options = text_follows = False
    previous = ""
    for each in command:
        unchanged = False
        if in_options and each.startswith(("-", "+")):
            unchanged = text_follows = text_follows or _TEXT_OPTION.match(each) is not None
        elif in_options and text_follows:
            unchanged = True
            text_follows = _VALUE_OPTION.match(previous) is not None
        elif not (in_options and previous.startswith(("-", "+"))):
            in_options = _SHELL_NAME.fullmatch(each) is not None
        filled.append(each if unchanged else fill_placeholders(each, facts))
        previous = each
    return filled


def _variables(*names: str) -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _failed(
    code: str, error: str, *, result: dict[str, object] | None = None, retryable: bool = False
) -> Outcome:
    return Outcome(
        end=AttemptEnd.FAILED, code=code, error=error, result=result, retryable=retryable
    )
