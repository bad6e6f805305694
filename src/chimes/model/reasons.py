"""Why a run is in its state."""

from __future__ import annotations


class Reason:
    """Stable codes that say why a run is in its state; wording is the catalogue's business."""

    OVERLAP = "overlap"
    DEPENDENCY = "dependency"
    MISFIRE = "misfire"
    SKIPPED_BY_HAND = "skipped_by_hand"
    PAUSED = "paused"
    CATCH_UP = "catch_up"
    CANCELED_BY_HAND = "canceled_by_hand"
    REPLACED = "replaced_by_newer_run"
    SCHEDULE_DELETED = "schedule_deleted"
    CRASH_LIMIT = "crash_limit"
    LOST_AFTER_START = "lost_after_start"
    UNREADABLE = "unreadable_row"
    #: A step whose flow has ended without it.
    FLOW_ENDED = "flow_ended"
