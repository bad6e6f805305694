"""Message target: the text is the result, and the schedule's notifications deliver it."""

from __future__ import annotations

from chimes.i18n import _
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import MessageTarget
from chimes.targets.base import Call, fill_event

#: Characters of the text in the log; the result has all of it.
_SHOWN = 200


class MessageRunner:
    kind = "message"
    resumable = False
    permits = None
    capabilities = frozenset({"message"})

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        target = call.run.target
        assert isinstance(target, MessageTarget)
        text = fill_event(target.text, call.run)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        call.log("info", _("Message: {text}", text=shown))
        return Outcome(end=AttemptEnd.SUCCEEDED, result={"text": text})


__all__ = ["MessageRunner"]
