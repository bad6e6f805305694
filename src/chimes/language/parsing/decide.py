"""Which of the phrases says when, and what is left as the task (ADR 23)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chimes.language.parsing import en_words, th_words, zh_words
from chimes.language.parsing.asking import Ask
from chimes.language.parsing.combine import Meaning, meaning
from chimes.language.parsing.parts import (
    Clock,
    Date,
    Delay,
    InZone,
    PartOfDay,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
)
from chimes.language.parsing.scan import Phrase, phrases
from chimes.language.parsing.text import Text, is_chinese

_REQUESTS = (en_words.REQUEST, th_words.REQUEST, zh_words.REQUEST)
_BEFORE = " \t\n,;:-–—(、，；：（/|·"
_AFTER = " \t\n,;:-–—)、，；：）/|·。"
#: What no task begins with: the rest of a time that was not read.
_LEFT_OVER = re.compile(
    r" ?,? ?(?:[:.-] ?[0-9]|[0-9]+ ?(?:$|:)"
    r"|(?:and|or|to|และ|กับ|หรือ|ถึง|和|及|或|到|至) ?(?:at )?[0-9]"
    r"|(?:except|excluding|but|unless|until|till|starting|beginning|during"
    r"|only (?:on|in|if|when))(?![a-z])"
    r"|(?:นี้|หน้า(?!ที่)|ถัดไป|ที่แล้ว)|ยกเว้น|เว้นแต่|จนกว่า|จนถึง|เฉพาะ|[0-9]+ ?ครั้ง|除了|除非|直到|仅限|左右"
    r"|[0-9]* ?(?:[ap]\.?m\.?|o'?clock|hours?|hrs?|minutes?|mins?|seconds?)(?![a-z])"
    r"|[0-9]+ ?(?:days?|weeks?|months?|times)(?![a-z])"
    r"|[0-9]* ?(?:โมง|ทุ่ม(?!เท)|นาที|ชั่วโมง|นาฬิกา|น\.)"
    r"|[0-9一二两三四五六七八九十]+ ?(?:点|分(?!析|享|配|类)|小时|秒|号|刻|天|周))"
)
#: Between a day and its time, these may say that the time is that of something else.
_ABOUT = re.compile(
    r"(?<![a-z])(?:about|of|for|regarding|before|after)(?![a-z])|เรื่อง|เกี่ยวกับ|สำหรับ|ก่อน|关于|的"
)
_AGAIN = re.compile(r"(?<![a-z])(?:every|each)|ทุก|แต่ละ|每|逢")
_THEN = re.compile(r"(?<![a-z])(?:and|then)(?![a-z])|แล้ว|และ|จากนั้น|然后|再|并")
#: What says when so plainly that it cannot be left to the task at the beginning of a text.
_DAYS = (Clock, Date, Delay, RelativeDay, RelativeWeekday, RelativeMonthDay)
#: "Every", with nothing behind it that could be read, or that a task is about.
_UNREAD_EVERY = re.compile(
    r"[ ,]*(?:(?:every|each)(?![a-z])|ทุก(?!คน|ท่าน|ฝ่าย|ทีม|อย่าง|เรื่อง)|每(?!个?人|位|家|名))"
    r"[ ]?[^ ,]*"
)
#: "This", "next", directly at a phrase that does not know it: another week is meant, or one only.
_WHICH_BEFORE = re.compile(r"(?:(?<![a-z])(?:this|next|last|past|coming) |[这本下上]个?)$")
_YEAR_BEFORE = re.compile(r"(?:[0-9]{2,4}|年|ปี)[ ,]*$")
_ONLY_SIGNS = re.compile(r"[\W_]*")


@dataclass(frozen=True, slots=True)
class Decision:
    """What the time phrase says, and the words around it."""

    said: Meaning
    task: str


def decide(text: Text) -> Decision:
    """Raises Ask."""
    folded = text.folded
    found = _through_requests(folded, phrases(folded))
    if not found:
        raise Ask("date", "time")
    whole = [phrase for phrase in found if _asked(phrase) is None]
    if len(whole) > 1:
        raise Ask("contradiction")
    chosen = whole[0] if whole else _split(folded, found)
    said = meaning(chosen)
    if zone := _zone_at_end(folded, found, chosen):
        chosen = chosen.joined(zone)
        said = meaning(chosen)
    _check_around(folded, chosen, [each for each in found if not _within(each, chosen)])
    return Decision(said, _task(text, chosen))


def _asked(phrase: Phrase) -> Ask | None:
    """What would be asked if this phrase were the one."""
    try:
        meaning(phrase)
    except Ask as ask:
        return ask
    return None


def _within(phrase: Phrase, chosen: Phrase) -> bool:
    return phrase.stretches[0] in chosen.stretches


def _through_requests(text: str, found: list[Phrase]) -> list[Phrase]:
    """Phrases with nothing but "remind me" between them are one."""
    merged: list[Phrase] = []
    for phrase in found:
        between = text[merged[-1].end : phrase.start] if merged else ""
        # At 3pm, of what is tomorrow; or tomorrow at 3pm?
        apart = merged and _is_clock(merged[-1]) and not _AGAIN.match(text, phrase.start)
        if merged and not apart and _is_request(between):
            merged[-1] = merged[-1].joined(phrase)
        else:
            merged.append(phrase)
    return merged


def _is_request(between: str) -> bool:
    at = 0
    while at < len(between):
        if between[at] in " ,":
            at += 1
            continue
        ends = [hit.end() for each in _REQUESTS if (hit := each.match(between, at))]
        if not ends:
            return False
        at = max(ends)
    return True


def _split(text: str, found: list[Phrase]) -> Phrase:
    """No phrase says it all: a day, and at the very end "at" a time; or the best question."""
    first, last = found[0], found[-1]
    if len(found) == 2 and _is_end(text, last) and _belong(text, first, last):
        return first.joined(last)
    # The question about the phrase that says most is the one to ask.
    return max(found, key=lambda each: (_weight(each), -each.start))


def _belong(text: str, first: Phrase, last: Phrase) -> bool:
    """`every day … at 9am`, `tomorrow … at 9am`; `at 9am … every day`."""
    if _ABOUT.search(text[first.end : last.start]):
        return False
    if _is_clock(last):
        asked = _asked(first)
        return _is_marked(last) and asked is not None and asked.missing == ("time",)
    asked = _asked(last)
    again = _AGAIN.match(text, last.start) is not None
    return _is_clock(first) and again and asked is not None and asked.missing == ("time",)


def _is_clock(phrase: Phrase) -> bool:
    return any(isinstance(part, Clock) for part in phrase.parts) and all(
        isinstance(part, Clock | InZone | PartOfDay) for part in phrase.parts
    )


def _is_marked(phrase: Phrase) -> bool:
    return any(isinstance(part, Clock) and part.marked for part in phrase.parts)


def _weight(phrase: Phrase) -> int:
    return sum(not isinstance(part, PartOfDay | Problem) for part in phrase.parts)


def _is_end(text: str, phrase: Phrase) -> bool:
    return _ONLY_SIGNS.fullmatch(text, phrase.end) is not None


def _zone_at_end(text: str, found: list[Phrase], chosen: Phrase) -> Phrase | None:
    last = found[-1]
    if last is chosen or not _is_end(text, last):
        return None
    return last if all(isinstance(part, InZone) for part in last.parts) else None


def _check_around(text: str, chosen: Phrase, others: list[Phrase]) -> None:
    """Words of time that the chosen phrase left out, and that may bear on it."""
    first = chosen.parts[0]
    year = _YEAR_BEFORE.search(text, 0, chosen.start)
    if year and isinstance(first, Date) and first.year is None:
        raise Ask("residue", words=year[0].strip())
    which = _WHICH_BEFORE.search(text, 0, chosen.start)
    if which:
        raise Ask("residue", words=which[0].strip())
    for start in (0, *(end for _, end in chosen.stretches)):
        unread = _UNREAD_EVERY.match(text, start)
        if unread and start != chosen.start:
            raise Ask("residue", words=unread[0].strip(" ,"))
    for _, end in chosen.stretches:
        left = _LEFT_OVER.match(text, end)
        if left:
            raise Ask("residue", words=left[0].strip())
    for other in others:
        said = text[other.start : other.end]
        ahead = other.start < chosen.start and _is_request(text[: other.start])
        if _AGAIN.search(said) or (ahead and any(isinstance(part, _DAYS) for part in other.parts)):
            raise Ask("contradiction")
        between = text[chosen.end : other.start]
        second = _is_clock(other) and _is_marked(other) and _THEN.search(between)
        if second and not _ABOUT.search(between):
            # At 9am this, and at 5pm that.
            raise Ask("contradiction", words=said)
        limited = any(
            isinstance(part, Problem) and part.missing == ("residue",) for part in other.parts
        )
        if limited and _is_end(text, other):
            raise Ask("residue", words=said)


def _task(text: Text, chosen: Phrase) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in (*chosen.stretches, (len(text.folded), len(text.folded))):
        piece = text.between(at, start)
        if at:
            piece = piece.lstrip(_AFTER)
        if start < len(text.folded):
            piece = piece.rstrip(_BEFORE)
        if not _ONLY_SIGNS.fullmatch(piece):
            pieces.append(piece.strip())
        at = end
    task = ""
    for piece in pieces:
        close = not task or (is_chinese(task[-1]) and is_chinese(piece[0]))
        task += piece if close else f" {piece}"
    return task
