"""Words of the API that people have words of their own for; pipes and programs get the API's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chimes.wording import Wording, say

Words = Mapping[str, Wording]

RUN_STATUSES: Final[Words] = {
    "queued": say("queued"),
    "running": say("running"),
    "succeeded": say("succeeded"),
    "failed": say("failed"),
    "timeout": say("timeout"),
    "canceled": say("canceled"),
    "skipped": say("skipped"),
    "missed": say("missed"),
    "unknown": say("unknown"),
}
RUN_ORIGINS: Final[Words] = {
    "schedule": say("schedule"),
    "manual": say("manual"),
    "backfill": say("backfill"),
    "child": say("child"),
}
#: Why a run is in its state. Targets have codes of their own, which are shown as they are.
RUN_REASONS: Final[Words] = {
    "overlap": say("the run before it was still under way"),
    "dependency": say("what it depends on has not succeeded"),
    "misfire": say("its time had passed"),
    "skipped_by_hand": say("skipped by hand"),
    "paused": say("its schedule was paused"),
    "catch_up": say("a slot made up for"),
    "canceled_by_hand": say("canceled by hand"),
    "replaced_by_newer_run": say("a newer run took its place"),
    "schedule_deleted": say("its schedule was deleted"),
    "crash_limit": say("its nodes crashed too often"),
    "lost_after_start": say("its node was lost after it had begun"),
    "unreadable_row": say("what is stored of it cannot be read"),
    "flow_ended": say("its flow ended without it"),
    "condition": say("its condition was not met"),
    "upstream_failed": say("a step before it failed"),
    "upstream_skipped": say("a step before it was skipped"),
    "condition_error": say("its condition cannot be worked out"),
    "invalid_map": say("what it is to be mapped over is no list"),
    "step_failed": say("one of its steps failed"),
}
SCHEDULE_STATES: Final[Words] = {
    "active": say("active"),
    "paused": say("paused"),
    "done": say("done"),
}
DELIVERY_STATES: Final[Words] = {
    "pending": say("pending"),
    "delivered": say("delivered"),
    "dead": say("dead"),
}
CHAT_STATES: Final[Words] = {"linked": say("linked"), "waiting": say("waiting")}
CHANGES: Final[Words] = {
    "created": say("created"),
    "kept": say("kept"),
    "unchanged": say("unchanged"),
    "updated": say("updated"),
    "deleted": say("deleted"),
    "new": say("new"),
    "exists": say("exists"),
}
