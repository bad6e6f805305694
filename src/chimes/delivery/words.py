"""What messages say: sentences for codes, which the catalogues have in every language."""

from __future__ import annotations

from collections.abc import Mapping

from chimes.model.recipient import Channel
from chimes.model.run import Reason, RunStatus
from chimes.wording import ENGLISH, LANGUAGES, Wording, say

USUAL = ENGLISH
CUT = say("… the rest is with the run")

CHANNELS: Mapping[Channel, Wording] = {
    Channel.INBOX: say("inbox"),
    Channel.TELEGRAM: say("Telegram"),
    Channel.WEBHOOK: say("webhook"),
    Channel.EMAIL: say("e-mail"),
}
_REASONS: Mapping[str, Wording] = {
    Reason.OVERLAP: say("the run before it was still under way"),
    Reason.DEPENDENCY: say("what it depends on did not succeed in time"),
    Reason.MISFIRE: say("its time was too long ago"),
    Reason.SKIPPED_BY_HAND: say("somebody left it out"),
    Reason.PAUSED: say("it was paused"),
    Reason.CATCH_UP: say("it makes up for a time that was missed"),
    Reason.CANCELED_BY_HAND: say("somebody canceled it"),
    Reason.REPLACED: say("a newer run took its place"),
    Reason.SCHEDULE_DELETED: say("its schedule was deleted"),
    Reason.CRASH_LIMIT: say("the nodes that carried it out stopped again and again"),
    Reason.LOST_AFTER_START: say("the node that carried it out stopped"),
    Reason.UNREADABLE: say("its record in the store is damaged"),
    Reason.FLOW_ENDED: say("the flow that it is a step of has ended"),
}


def language_of(tag: str) -> str:
    """The language that is spoken here for a tag such as `zh-CN`."""
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else USUAL


def headline(name: str, status: RunStatus | None, *, recovered: bool) -> Wording:
    """How a run of this name ended; None: nobody knows any more."""
    if recovered:
        return say("{name}: works again", name=name)
    match status:
        case RunStatus.SUCCEEDED:
            return say("{name}: succeeded", name=name)
        case RunStatus.FAILED:
            return say("{name}: failed", name=name)
        case RunStatus.TIMEOUT:
            return say("{name}: took too long", name=name)
        case RunStatus.CANCELED:
            return say("{name}: was canceled", name=name)
        case RunStatus.SKIPPED:
            return say("{name}: was skipped", name=name)
        case RunStatus.MISSED:
            return say("{name}: was missed", name=name)
        case RunStatus.UNKNOWN:
            return say("{name}: ended in a way that nobody knows", name=name)
        case _:
            return say("{name}: has ended", name=name)


def reason(code: str) -> str:
    """The words for a stable code; a code that has none is its own."""
    return _REASONS.get(code, code)
