"""Why somebody is told of a run."""

from __future__ import annotations

from enum import StrEnum


class Occasion(StrEnum):
    SUCCESS = "success"
    #: Also a slot that was missed, and a run of which nobody knows how it ended.
    FAILURE = "failure"
    #: The first success after a failure.
    RECOVERY = "recovery"
    #: It began later than `late_after` behind its time, or was missed; told when it ends.
    LATE = "late"
    #: Every end but a slot that was skipped on purpose.
    ALWAYS = "always"
    #: Why a message is there that collects others; nobody asks for it by name.
    DIGEST = "digest"
    #: Why a message is there that somebody has asked for to see it arrive; likewise.
    TEST = "test"


#: Those that a recipient can ask for.
ASKED_FOR = (
    Occasion.SUCCESS,
    Occasion.FAILURE,
    Occasion.RECOVERY,
    Occasion.LATE,
    Occasion.ALWAYS,
)
