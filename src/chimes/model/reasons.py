"""Run reasons in words: why a run was skipped, missed, canceled or failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chimes.i18n import Message, _
from chimes.model.run import Reason

#: Fragments that complete a sentence such as "Skipped: …".
RUN_REASONS: Final[Mapping[str, Message]] = {
    Reason.OVERLAP: _("the previous run was still running"),
    Reason.DEPENDENCY: _("its dependency did not succeed in time"),
    Reason.MISFIRE: _("no node started it in time"),
    Reason.SKIPPED_BY_HAND: _("skipped by a user"),
    Reason.PAUSED: _("the schedule was paused"),
    Reason.CATCH_UP: _("catch-up of a missed slot"),
    Reason.CANCELED_BY_HAND: _("canceled by a user"),
    Reason.REPLACED: _("replaced by a newer run"),
    Reason.SCHEDULE_DELETED: _("the schedule was deleted"),
    Reason.CRASH_LIMIT: _("its nodes crashed too often"),
    Reason.LOST_AFTER_START: _("its node was lost after it had started"),
    Reason.UNREADABLE: _("its stored record is corrupt"),
    Reason.FLOW_ENDED: _("its flow ended"),
    # Reasons of flow steps.
    "condition": _("its condition was not met"),
    "upstream_failed": _("a previous step failed"),
    "upstream_skipped": _("a previous step was skipped"),
    "condition_error": _("its condition could not be evaluated"),
    "invalid_map": _("the value to map over is not a list"),
    "step_failed": _("a step failed"),
}


def describe_reason(code: str) -> str:
    """The words for a reason code; an unknown code, such as one of a target, is returned as is."""
    return RUN_REASONS.get(code, code)
