"""Recipients as the native API takes them."""

from __future__ import annotations

from datetime import time
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from chimes.doors.api.fields import Body, DurationField
from chimes.doors.validation import refused
from chimes.model.recipient import ASKED_FOR, LATE_AFTER, Channel, Occasion
from chimes.model.telling_times import WEEKDAYS, Period
from chimes.wording import say

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
ZoneField = Annotated[
    str, Field(max_length=64, description="Left out: that of the schedule, else the owner's.")
]


def _clock(value: object) -> time:
    if isinstance(value, str):
        hour, colon, minute = value.partition(":")
        if colon and len(minute) == 2 and (hour + minute).isdecimal() and len(hour) <= 2:
            try:
                return time(int(hour), int(minute))
            except ValueError:
                pass
    raise refused("bad_clock", say("a time of day such as 07:30"))


def _occasion(value: object) -> Occasion:
    for each in ASKED_FOR:
        if value == each.value:
            return each
    raise refused("unknown_occasion", say("success, failure, recovery, late or always"))


ClockField = Annotated[
    time,
    PlainValidator(_clock),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,2}:[0-9]{2}$", "example": "07:30"}),
]
OccasionField = Annotated[
    Occasion,
    PlainValidator(_occasion),
    WithJsonSchema({"type": "string", "enum": [each.value for each in ASKED_FOR]}),
]
Occasions = Annotated[list[OccasionField], Field(max_length=len(ASKED_FOR))]


class QuietIn(Body):
    """Hours in which nothing is sent there: it waits for their end. Over midnight if need be."""

    start: ClockField = Field(alias="from")
    end: ClockField = Field(alias="to")
    zone: ZoneField = ""
    but: Occasions = Field(
        default_factory=list, alias="except", description="Sent all the same, such as failure."
    )


class DigestIn(Body):
    """One message for each period instead of one for each run. The word alone will do."""

    every: Annotated[Period, Field(strict=False)]
    at: ClockField = Field(default=time(8), description="Of an hourly one only the minute counts.")
    on: Weekday = Field(default="monday", description="Of a weekly one.")
    zone: ZoneField = ""
    but: Occasions = Field(
        default_factory=list, alias="except", description="Told by themselves, at once."
    )

    @model_validator(mode="before")
    @classmethod
    def _by_its_word(cls, data: Any) -> Any:
        return {"every": data, "at": _usual_at(data)} if isinstance(data, str) else data

    @property
    def weekday(self) -> int:
        return WEEKDAYS.index(self.on)


def _usual_at(every: str) -> str:
    return "00:00" if every == Period.HOUR else "08:00"


class RecipientIn(Body):
    """Somebody who is told how a run ended. `signing_secrets`, of a webhook, are answered as `***`
    and kept where `***` comes back."""

    channel: Annotated[Channel, Field(strict=False)]
    to: str | int = Field(
        default="",
        description="A chat id or @name, a URL, an address; empty for the inbox of the owner.",
    )
    on: Occasions = Field(default_factory=lambda: [Occasion.ALWAYS])
    language: Literal["", "en", "th", "zh"] = Field(
        default="", description="Empty: as the owner likes it."
    )
    signing_secrets: list[str] = Field(default_factory=list, max_length=10)
    late_after: DurationField = Field(
        default=LATE_AFTER,
        description="A run that begins later than that behind its time is `late`.",
    )
    quiet: QuietIn | None = None
    digest: DigestIn | None = None
