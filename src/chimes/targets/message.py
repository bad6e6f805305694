"""A text that is told to people, and nothing else."""

from __future__ import annotations

from chimes.i18n import _
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import MessageTarget
from chimes.targets.base import Call

# @@ Runs of messages: the text is the result, and whoever the schedule tells is told of it as of
# any other run. Nothing is sent from here, so nothing can be sent twice from here.

#: Of the text, in the log; the whole of it is the result.
_SHOWN = 200


class MessageRunner:
    kind = "message"
    resumable = False
    #: It works for no time at all.
    places = None
    offers = frozenset({"message"})

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        target = call.run.target
        assert isinstance(target, MessageTarget)
        shown = target.text if len(target.text) <= _SHOWN else f"{target.text[:_SHOWN]}…"
        call.log("info", _("this text is told: {text}", text=shown))
        return Outcome(end=AttemptEnd.SUCCEEDED, result={"text": target.text})


__all__ = ["MessageRunner"]
