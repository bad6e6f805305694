"""Text to trigger, in Thai, English and Chinese (TIME "Words"); never a guess (R1.29)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from chimes.errors import InvalidInput, NeedsClarification
from chimes.language.describing import describe
from chimes.language.parsing.answers import answers_to
from chimes.language.parsing.asking import Ask
from chimes.language.parsing.build import build
from chimes.language.parsing.decide import decide
from chimes.language.parsing.patterns import pattern_of
from chimes.language.parsing.questions import question
from chimes.language.parsing.telling import Told, told_in
from chimes.language.parsing.text import Text, fold, language_of
from chimes.language.rereading import bounded, reread
from chimes.triggers import Dialect, Every, Trigger, parse_zone
from chimes.triggers.expression import trigger_from_text
from chimes.triggers.moment import to_microseconds
from chimes.wording import say

LONGEST_TEXT = 4096
_EXPRESSION = re.compile(
    r"@[a-z]+\b.*|(?:CRON_)?TZ=.*|(?:[0-9*?][0-9*,/?-]*\s+){2}[0-9*?][0-9*,/?-]*\s+\S+\s+\S.*"
    r"|every\s+[0-9.]+(?:h|m|s|ms|us)[0-9hms.]*|every\s+P\S+"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]+(?:Z|[+-][0-9:]+)?(?:\[\S+\])?"
    r"|(?=.*\*)(?:[0-9*][0-9*,/-]*\s+){2}[0-9a-z*?,/#\s-]+",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """What a text was understood to say."""

    trigger: Trigger
    #: The text without its words of time; may be empty.
    task: str
    #: The zone named in the text, or the one that was given.
    timezone: str
    #: th, en or zh, by the script.
    language: str
    #: A stable name of the form that was recognised, such as `thai_daily_time`.
    pattern: str
    #: Whom the task says to tell.
    told: tuple[Told, ...] = ()


def parse(text: str, *, now: datetime, timezone: str = "UTC", lang: str | None = None) -> Parsed:
    """Read a sentence such as `every weekday at 9am summarise the news`.

    Raises NeedsClarification, in the language of the text or in `lang`, for anything that does not
    say exactly when; InvalidInput for what is no text, no zone, or not an aware `now`.
    """
    if not isinstance(text, str):
        raise InvalidInput(
            say("text must be text, not {type}", type=type(text).__name__),
            field="text",
            code="wrong_type",
        )
    if len(text) > LONGEST_TEXT:
        raise InvalidInput(
            say(
                "text may have up to {most} characters, not {count}",
                most=LONGEST_TEXT,
                count=len(text),
            ),
            field="text",
            code="too_long",
        )
    to_microseconds(now, "now")
    zone = parse_zone(timezone).name
    folded = fold(text)
    language = language_of(folded.folded)
    try:
        found = _read(folded, now, zone, language)
    except Ask as ask:
        known = reread(text, language)
        if known is None:
            answers = answers_to(ask, folded, lambda each: _is_read(each, now, zone))
            raise _clarification(ask, lang or language, answers) from None
        if known.next_after(now) is None:
            raise _clarification(Ask("past"), lang or language) from None
        return _described(known, zone, language)
    # What `describe` says means what it was said of, whatever else it might mean (TIME "Words").
    if describe(found.trigger, language) == text.strip():
        return replace(found, task="", told=())
    known = reread(text, language)
    if known is not None:
        return _described(known, zone, language)
    if bounded(text, language):
        # A long list of dates, say, is not told in full; the task it is surely not.
        raise _clarification(Ask("residue"), lang or language)
    return found


def _read(text: Text, now: datetime, home: str, language: str) -> Parsed:
    decided = decide(text)
    zone = decided.said.zone or home
    return Parsed(
        trigger=build(decided.said, now, zone, home),
        task=decided.task,
        timezone=zone,
        language=language,
        pattern=pattern_of(decided.said, language),
        told=told_in(decided.task),
    )


def _described(trigger: Trigger, zone: str, language: str) -> Parsed:
    return Parsed(
        trigger=trigger,
        task="",
        timezone=zone if isinstance(trigger, Every) else trigger.zone,
        language=language,
        pattern="described",
    )


def _is_read(text: str, now: datetime, home: str) -> bool:
    try:
        _read(fold(text), now, home, "en")
    except Ask:
        return False
    return len(text) <= LONGEST_TEXT


def _clarification(ask: Ask, language: str, answers: tuple[str, ...] = ()) -> NeedsClarification:
    found = question(ask, language)
    return NeedsClarification(
        found.message,
        missing=ask.missing,
        examples=found.examples,
        answers=answers,
        language=found.language,
    )


def read_trigger(
    text: str,
    *,
    now: datetime,
    timezone: str = "UTC",
    dialect: Dialect = "auto",
    lang: str | None = None,
) -> Parsed:
    """What a person types as a time: an expression (`0 9 * * 1-5`, `@daily`, `every 5m`, a moment)
    or words.

    An expression has no task, and `expression` as its pattern; it is not checked against `now`.
    """
    if isinstance(text, str) and _EXPRESSION.fullmatch(text.strip()):
        trigger = trigger_from_text(text, timezone, dialect)
        return Parsed(
            trigger=trigger, task="", timezone=trigger.zone, language="en", pattern="expression"
        )
    return parse(text, now=now, timezone=timezone, lang=lang)
