"""What a change of the clocks does to a schedule, in words."""

from __future__ import annotations

from datetime import datetime

from chimes.doors.dashboard import times
from chimes.doors.dashboard.look import Look
from chimes.triggers.clock_changes import Effect, Touched
from chimes.wording import Wording, say


def touched_in_words(touched: Touched, look: Look, now: datetime) -> Wording:
    zone = touched.change.zone
    on = times.day(touched.change.at, zone, look, now=now)
    clock = f"{touched.meant:%H:%M}"
    match touched.effect:
        case Effect.MOVED:
            return say(
                "{day}: {time} does not exist in {zone}; it fires at {fires}.",
                day=on,
                time=clock,
                zone=zone,
                fires=f"{touched.fires:%H:%M}",
            )
        case Effect.ONCE:
            return say(
                "{day}: {time} comes twice in {zone}; it fires once, the first time.",
                day=on,
                time=clock,
                zone=zone,
            )
        case Effect.TWICE:
            return say(
                "{day}: {time} comes twice in {zone}; it fires both times.",
                day=on,
                time=clock,
                zone=zone,
            )
