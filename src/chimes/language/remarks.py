"""Notes and cautions in words; the catalogues have them in every language."""

from __future__ import annotations

from collections.abc import Mapping

from chimes.language.cautions import Caution
from chimes.triggers import Note
from chimes.wording import Wording, counted, say

_NOTES: Mapping[Note, Wording] = {
    "moved_by_gap": say("its time is skipped when the clocks go forward; it runs at the change"),
    "repeated_hour_first": say("this hour comes twice when the clocks go back; first time"),
    "repeated_hour_second": say("this hour comes twice when the clocks go back; second time"),
    "repeated_hour_once": say(
        "this hour comes twice when the clocks go back; it runs the first time only"
    ),
    "moved_by_calendar": say("its day is excluded; it runs on another one"),
}


def of_note(note: Note) -> Wording:
    """What is special about one fire."""
    return _NOTES[note]


def of_caution(caution: Caution) -> Wording:
    """What the author of a trigger may not have meant."""
    match caution.code:
        case "either_day":
            return say(
                "A day counts if its date or its weekday matches, not only if both do; "
                "start one of the two fields with * to ask for both"
            )
        case "both_days":
            return say("A day counts only if both its date and its weekday match")
        case "uneven_step":
            return _uneven(caution)
        case "uneven_months":
            return say(
                "The step of {step} days starts anew with each month, "
                "so the gap at its end is another",
                step=caution.step,
            )
        case "every_minute":
            return say(
                "Runs in every minute of these hours, {count} times a day; "
                "put 0 into the minute field for once an hour",
                count=caution.count,
            )
        case "often":
            return say("Runs {count} times a day", count=caution.count)
        case "leap_years":
            return say("Runs in leap years only")
        case "short_months":
            return say("Does not run in months without a day {count}", count=caution.count)


def _uneven(caution: Caution) -> Wording:
    match caution.unit:
        case "second":
            return counted(
                "The step of {step} seconds starts anew with each minute; "
                "the gap there is {count} second",
                "The step of {step} seconds starts anew with each minute; "
                "the gap there is {count} seconds",
                caution.gap,
                step=caution.step,
            )
        case "minute":
            return counted(
                "The step of {step} minutes starts anew with each hour; "
                "the gap there is {count} minute",
                "The step of {step} minutes starts anew with each hour; "
                "the gap there is {count} minutes",
                caution.gap,
                step=caution.step,
            )
        case "hour":
            return counted(
                "The step of {step} hours starts anew with each day; the gap there is {count} hour",
                "The step of {step} hours starts anew with each day; "
                "the gap there is {count} hours",
                caution.gap,
                step=caution.step,
            )
        case _:
            return counted(
                "The step of {step} months starts anew with each year; "
                "the gap there is {count} month",
                "The step of {step} months starts anew with each year; "
                "the gap there is {count} months",
                caution.gap,
                step=caution.step,
            )
