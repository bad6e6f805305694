"""What is asked, and examples of what can be read: the only texts of the parser, by language."""

from __future__ import annotations

from typing import NamedTuple

from chimes.language.parsing.asking import Ask
from chimes.language.parsing.parts import Choice

_LONGEST_SHOWN = 40

_MESSAGES: dict[str, dict[str, str]] = {
    "en": {
        "time": "At what time?",
        "date": "On which day?",
        "past": "That moment has passed already. When should it be?",
        "ambiguous": "This can be read in more than one way. Which is meant?",
        "contradiction": "These times or days do not go together. Which one is meant?",
        "residue": "Part of the time could not be read. How else can it be said?",
        "interval": "How often, exactly? This interval cannot be kept.",
        "unit": "In which unit: seconds, minutes or hours?",
    },
    "th": {
        "time": "กี่โมง?",
        "date": "วันไหน?",
        "past": "เวลานั้นผ่านไปแล้ว ต้องการเวลาใด?",
        "ambiguous": "เวลานี้อ่านได้มากกว่าหนึ่งแบบ หมายถึงแบบไหน?",
        "contradiction": "วันหรือเวลาเหล่านี้ขัดกัน หมายถึงอันไหน?",
        "residue": "มีส่วนของเวลาที่อ่านไม่ออก ช่วยเขียนใหม่ได้ไหม?",
        "interval": "ต้องการให้ทำบ่อยแค่ไหนแน่? ช่วงเวลานี้ใช้ไม่ได้",
        "unit": "หน่วยเป็นวินาที นาที หรือชั่วโมง?",
    },
    "zh": {
        "time": "几点？",
        "date": "哪一天？",
        "past": "这个时间已经过去了。应该是什么时候？",
        "ambiguous": "这个时间有不止一种理解。是哪一种？",
        "contradiction": "这些日期或时间互相矛盾。是哪一个？",
        "residue": "时间里有读不懂的部分。能换一种说法吗？",
        "interval": "到底多久一次？这个间隔无法实现。",
        "unit": "单位是秒、分钟还是小时？",
    },
}
_UNREAD = {"en": "Not read: “{}”.", "th": "อ่านไม่ออก: “{}”", "zh": "未能读懂：“{}”。"}
_OR = {"en": "{} or {}?", "th": "{} หรือ {}?", "zh": "{} 还是 {}？"}
_CHOICES: dict[str, dict[Choice, str]] = {
    "en": {
        "weekly": "Only the coming one, or every week?",
        "next": "The one of this week, or of the next?",
        "night": "At the beginning of that day, or at its end?",
        "zone": "In which time zone? Name it as in Asia/Bangkok.",
        "date": "Which date exactly? Write it as in 2027-02-10.",
    },
    "th": {
        "weekly": "เฉพาะวันที่จะถึงนี้ หรือทุกสัปดาห์?",
        "next": "ของสัปดาห์นี้ หรือสัปดาห์หน้า?",
        "night": "ต้นวันนั้น หรือสิ้นวันนั้น?",
        "zone": "ตามเขตเวลาไหน? เขียนอย่างเช่น Asia/Bangkok",
        "date": "วันที่เท่าไรแน่? เขียนอย่างเช่น 2027-02-10",
    },
    "zh": {
        "weekly": "只是最近的那一天，还是每周？",
        "next": "是这一周的，还是下一周的？",
        "night": "是那天开始的时候，还是结束的时候？",
        "zone": "是哪个时区？请写成 Asia/Bangkok 这样的名称。",
        "date": "到底是哪一天？请写成 2027-02-10 这样的日期。",
    },
}
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
    known = known if known in _MESSAGES else "en"
    parts = [_MESSAGES[known][each] for each in ask.missing]
    if ask.readings:
        parts.append(_OR[known].format(*ask.readings))
    if ask.choice:
        parts.append(_CHOICES[known][ask.choice])
    if ask.words:
        parts.append(_UNREAD[known].format(ask.words[:_LONGEST_SHOWN]))
    return Question(" ".join(parts), _EXAMPLES[known], known)
