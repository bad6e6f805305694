"""What is asked, and examples of what can be read: the only texts of the parser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from chimes.language.parsing.asking import Ask
from chimes.language.parsing.parts import Choice
from chimes.wording import Wording, in_language, joined, say

_LONGEST_SHOWN = 40

_MESSAGES: Mapping[str, Wording] = {
    "time": say("At what time?"),
    "date": say("On which day?"),
    "past": say("That moment has passed already. When should it be?"),
    "ambiguous": say("This can be read in more than one way. Which is meant?"),
    "contradiction": say("These times or days do not go together. Which one is meant?"),
    "residue": say("Part of the time could not be read. How else can it be said?"),
    "interval": say("How often, exactly? This interval cannot be kept."),
    "unit": say("In which unit: seconds, minutes or hours?"),
}
_CHOICES: Mapping[Choice, Wording] = {
    "weekly": say("Only the coming one, or every week?"),
    "next": say("The one of this week, or of the next?"),
    "night": say("At the beginning of that day, or at its end?"),
    "zone": say("In which time zone? Name it as in Asia/Bangkok."),
    "date": say("Which date exactly? Write it as in 2027-02-10."),
}
#: Each of a grammar: they are read, not translated.
_EXAMPLES = {
    "en": (
        "every weekday at 9am summarise the news",
        "tomorrow at 14:30 call the supplier",
        "every 15 minutes check the site",
        "on the last day of every month at 18:00 send the report",
    ),
    "th": (
        "ทุกวัน 09:00 สรุปข่าว",
        "พรุ่งนี้ 14:30 โทรหาลูกค้า",
        "ทุกวันจันทร์ 08:30 ส่งรายงาน",
        "อีก 5 นาที เตือนประชุม",
    ),
    "zh": (
        "每天早上9点总结新闻",
        "明天下午3点开会",
        "每周一 08:30 发送报告",
        "每隔15分钟检查网站",
    ),
}


class Question(NamedTuple):
    message: str
    examples: tuple[str, ...]
    language: str


def question(ask: Ask, language: str) -> Question:
    """In English where there are no words in the language."""
    known = language.partition("-")[0].lower()
    known = known if known in _EXAMPLES else "en"
    parts = [_MESSAGES[each] for each in ask.missing]
    if ask.readings:
        one, other = ask.readings
        parts.append(say("{one} or {other}?", one=one, other=other))
    if ask.choice:
        parts.append(_CHOICES[ask.choice])
    if ask.words:
        parts.append(say("Not read: “{words}”.", words=ask.words[:_LONGEST_SHOWN]))
    return Question(in_language(joined(" ", parts), known), _EXAMPLES[known], known)
