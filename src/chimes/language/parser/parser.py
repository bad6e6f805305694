"""Parses text into a trigger and a task. Ambiguous text raises a question; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from chimes.errors import InvalidInput, NeedsClarification
from chimes.i18n import Message, _, in_language, joined
from chimes.language.description import describe
from chimes.language.parser import parts
from chimes.language.parser.decision import decide
from chimes.language.parser.grammars import GRAMMARS, language_of
from chimes.language.parser.parts import Unclear
from chimes.language.parser.phrases import Meaning
from chimes.language.parser.recipients import NamedRecipient, recipients_in
from chimes.language.parser.recurrence import Guess, counts_business_days, find_recurrence
from chimes.language.parser.text import Text, fold
from chimes.language.parser.trigger_builder import build
from chimes.language.round_trip import has_limit, parse_description
from chimes.triggers import (
    AnyOf,
    Cron,
    Dialect,
    Every,
    RRule,
    Trigger,
    parse_zone,
    zone_names,
)
from chimes.triggers.text import is_expression, parse_trigger_text
from chimes.triggers.values import to_microseconds

# Suggested answers to a question: the same text made unambiguous.

#: Suggested time if the text has none.
_USUAL_TIMES = ("09:00", "12:00", "18:00")
#: Zones meant by ambiguous abbreviations.
_ZONES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("est", "edt", "eastern"), ("America/New_York",)),
    **dict.fromkeys(("cdt", "central"), ("America/Chicago",)),
    **dict.fromkeys(("mdt", "mountain"), ("America/Denver",)),
    **dict.fromkeys(("pst", "pdt", "pacific"), ("America/Los_Angeles",)),
    **dict.fromkeys(("cet", "cest"), ("Europe/Berlin", "Europe/Paris")),
    **dict.fromkeys(("aest", "aedt"), ("Australia/Sydney",)),
    **dict.fromkeys(("nzst", "nzdt"), ("Pacific/Auckland",)),
    "cst": ("America/Chicago", "Asia/Shanghai"),
    "mst": ("America/Denver", "America/Phoenix"),
    "ist": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "bst": ("Europe/London",),
    "eet": ("Europe/Athens",),
    "ict": ("Asia/Bangkok", "Asia/Ho_Chi_Minh"),
    "jst": ("Asia/Tokyo",),
    "kst": ("Asia/Seoul",),
    "hkt": ("Asia/Hong_Kong",),
    "sgt": ("Asia/Singapore",),
    "msk": ("Europe/Moscow",),
    "wib": ("Asia/Jakarta",),
}


def answers_to(unclear: Unclear, text: Text, reads: Callable[[str], bool]) -> tuple[str, ...]:
    """One text per possible time or zone; only texts that parse without another question."""
    if unclear.place is None:
        return ()
    start, end = (text.origin[each] for each in unclear.place)
    before, after = text.raw[:start].rstrip(), text.raw[end:].lstrip()
    meant = unclear.readings or _USUAL_TIMES
    if unclear.choice == "zone":
        meant = _zones(text.folded[unclear.place[0] : unclear.place[1]])
    found = (" ".join(part for part in (before, each, after) if part) for each in meant)
    return tuple(each for each in found if reads(each))


def _zones(text: str) -> tuple[str, ...]:
    return next((_ZONES[word] for word in re.findall("[a-z]+", text) if word in _ZONES), ())


# Stable names of recognised forms; the first four are Softnix's.

_GRAMMARS = {grammar.code: grammar for grammar in GRAMMARS}


def pattern_of(meaning: Meaning, language: str) -> str:
    return f"{_GRAMMARS[language].name}_{_form(meaning)}"


def _form(meaning: Meaning) -> str:
    match meaning.delay or meaning.interval or meaning.once:
        case parts.Delay():
            return "delay"
        case parts.Interval():
            return "interval"
        case parts.RelativeDay(days=days):
            return {0: "today_time", 1: "tomorrow_time"}.get(days, "later_day_time")
        case parts.RelativeWeekday():
            return "coming_weekday_time"
        case parts.Date() | parts.RelativeMonthDay():
            return "date_time"
    match meaning.recurring:
        case parts.Daily():
            return "daily_time"
        case parts.Weekdays():
            return "weekday_time"
        case parts.MonthDays():
            return "monthly_time"
        case _:
            return "yearly_time"


# Questions.

_LONGEST_SHOWN = 40

_MESSAGES: Mapping[str, Message] = {
    "time": _("At what time?"),
    "date": _("On which day?"),
    "past": _("That moment has passed already. When should it be?"),
    "ambiguous": _("This can be read in more than one way. Which is meant?"),
    "contradiction": _("These times or days do not go together. Which one is meant?"),
    "residue": _("Part of the time could not be read. How else can it be said?"),
    "interval": _("How often, exactly? This interval cannot be kept."),
    "unit": _("In which unit: seconds, minutes or hours?"),
}
_CHOICES: Mapping[parts.Choice, Message] = {
    "weekly": _("Only the coming one, or every week?"),
    "next": _("The one of this week, or of the next?"),
    "night": _("At the beginning of that day, or at its end?"),
    "zone": _("In which time zone? Name it as in Asia/Bangkok."),
    "date": _("Which date exactly? Write it as in 2027-02-10."),
    "end": _("Is the last time included? Write 9:00-17:00, or 9:00-16:45 if it is not."),
}


def _clarification(
    unclear: Unclear, language: str, answers: tuple[str, ...] = ()
) -> NeedsClarification:
    """The question in this language, else in English."""
    known = language.partition("-")[0].lower()
    known = known if known in _GRAMMARS else "en"
    texts = [_MESSAGES[each] for each in unclear.missing]
    if unclear.readings:
        one, other = unclear.readings
        texts.append(_("{one} or {other}?", one=one, other=other))
    if unclear.choice:
        texts.append(_CHOICES[unclear.choice])
    if unclear.words:
        texts.append(_("Not read: “{words}”.", words=unclear.words[:_LONGEST_SHOWN]))
    return NeedsClarification(
        in_language(joined(" ", texts), known),
        missing=unclear.missing,
        examples=_GRAMMARS[known].examples,
        answers=answers,
        language=known,
    )


LONGEST_TEXT = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """The result of parsing a text."""

    trigger: Trigger
    #: The text without its time words; may be empty.
    task: str
    #: The zone named in the text, else the given one.
    timezone: str
    #: th, en or zh, by the script.
    language: str
    #: Stable name of the recognised form, such as `thai_daily_time`.
    pattern: str
    #: Recipients named in the task.
    recipients: tuple[NamedRecipient, ...] = ()
    #: What the text leaves open and was guessed: `start`, the first of periods of which some are
    #: skipped, and `hour`, the half of the day.
    guesses: tuple[Guess, ...] = ()


def parse(text: str, *, now: datetime, timezone: str = "UTC", lang: str | None = None) -> Parsed:
    """Parses a sentence such as `every weekday at 9am summarise the news`.

    Raises NeedsClarification, in the language of the text or in `lang`, if the time is
    ambiguous; InvalidInput for invalid text or zone, or a naive `now`.
    """
    if not isinstance(text, str):
        raise InvalidInput(
            _("text must be text, not {type}", type=type(text).__name__),
            field="text",
            code="wrong_type",
        )
    if len(text) > LONGEST_TEXT:
        raise InvalidInput(
            _(
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
        if counts_business_days(folded):
            raise Unclear("interval")
        found = _read(folded, now, zone, language)
    except Unclear as unclear:
        return _read_otherwise(unclear, folded, now, zone, language, lang)
    # A sentence of `describe` always means the described trigger.
    if describe(found.trigger, language) == text.strip():
        return replace(found, task="", recipients=())
    known = parse_description(text, language)
    if known is not None:
        return _described(known, zone, language)
    if has_limit(text, language):
        # A shortened description (e.g. a long list of dates) is not a task.
        raise _clarification(Unclear("residue"), lang or language)
    return found


def _read(text: Text, now: datetime, home: str, language: str) -> Parsed:
    decided = decide(text)
    zone = decided.meaning.zone or home
    return Parsed(
        trigger=build(decided.meaning, now, zone, home),
        task=decided.task,
        timezone=zone,
        language=language,
        pattern=pattern_of(decided.meaning, language),
        recipients=recipients_in(decided.task),
    )


def _read_otherwise(
    unclear: Unclear, text: Text, now: datetime, zone: str, language: str, lang: str | None
) -> Parsed:
    """A text that is no plain phrase: one that skips periods, or a description."""
    question = unclear
    try:
        repeated = _read_recurrence(text, now, zone, language)
    except Unclear as within:
        repeated, question = None, within
    if repeated is not None:
        return repeated
    known = parse_description(text.raw, language) or _read_described_kind(text.raw, now, zone)
    if known is None:
        answers = answers_to(unclear, text, lambda each: _is_read(each, now, zone))
        raise _clarification(question, lang or language, answers) from None
    if known.next_after(now) is None:
        raise _clarification(Unclear("past"), lang or language) from None
    return _described(known, zone, language)


#: How descriptions of unions begin, and what is before their exceptions.
_ANY_OF = re.compile(
    r"(?:Any of: |เมื่อข้อใดข้อหนึ่งเป็นจริง: |以下任一: )(?P<of>.+?)"
    r"(?:(?:; but not when: |; แต่ไม่ใช่เมื่อ: |; 但不包括: )(?P<others>.+))?"
)


_BY_RULE = re.compile(
    r"(?:By the rule|ตามกฎ|按规则) (?P<rule>FREQ=\S+) (?:from|ตั้งแต่|自) (?P<start>[0-9T:Z-]+)"
    r"(?: on| 起)?[,，]? ?(?P<zone>.+)"
)
_ZONE_NAME = re.compile(r"[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)*")


def _read_described_kind(text: str, now: datetime, zone: str) -> Trigger | None:
    """The union or the recurrence rule that a description means, None for other texts."""
    text = text.strip()
    try:
        if found := _BY_RULE.fullmatch(text):
            names = [each for each in _ZONE_NAME.findall(found["zone"]) if each in zone_names()]
            where = names[0] if names else zone
            return RRule(found["rule"], dtstart=found["start"], timezone=where)
        if found := _ANY_OF.fullmatch(text):
            of, others = (
                [parse(each, now=now, timezone=zone).trigger for each in part.split(" / ") if each]
                for part in (found["of"], found["others"] or "")
            )
            return AnyOf(of, except_=others)
    except InvalidInput:
        pass
    return None


def _read_recurrence(text: Text, now: datetime, home: str, language: str) -> Parsed | None:
    """A phrase that skips periods or counts business days; None if there is none."""
    repeated = find_recurrence(text)
    if repeated is None:
        return None
    found = _read(fold(repeated.text), now, home, language)
    trigger = repeated.trigger(found.trigger, now)
    form = trigger.kind if not isinstance(trigger, Cron) else _pattern_end(found.pattern)
    pattern = f"{_GRAMMARS[language].name}_{form}"
    return replace(found, trigger=trigger, pattern=pattern, guesses=repeated.guesses)


def _pattern_end(pattern: str) -> str:
    return pattern.partition("_")[2]


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
    except Unclear:
        return False
    return len(text) <= LONGEST_TEXT


def read_trigger(
    text: str,
    *,
    now: datetime,
    timezone: str = "UTC",
    dialect: Dialect = "auto",
    lang: str | None = None,
) -> Parsed:
    """Parses an expression (`0 9 * * 1-5`, `@daily`, `every 5m`, a time) or a sentence.

    An expression has no task and the pattern `expression`; it is not checked against `now`.
    """
    if isinstance(text, str) and is_expression(text):
        trigger = parse_trigger_text(text, timezone, dialect)
        return Parsed(
            trigger=trigger, task="", timezone=trigger.zone, language="en", pattern="expression"
        )
    return parse(text, now=now, timezone=timezone, lang=lang)
