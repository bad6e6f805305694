"""Whether processes are alive, as the kernel sees them (Linux; elsewhere nothing is known)."""

from __future__ import annotations

from pathlib import Path

from chimes.targets.processes.descent import descendants

#: Stopped by a signal, or by a debugger.
_STOPPED = ("T", "t")


def any_stopped(pid: int) -> bool:
    """Whether the process, or one that it has started, stands still because it was stopped: then
    what they do together cannot go on either."""
    return any(state_of(each) in _STOPPED for each in (pid, *descendants(pid)))


def state_of(pid: int) -> str:
    """R, S, D, T, …; empty where that is not known."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def processor_time(pid: int) -> int | None:
    """How long it has been at work so far, in ticks; None where that is not known."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name stands in brackets and may hold anything.
    return text.rpartition(")")[2].split()
