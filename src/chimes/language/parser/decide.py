"""Selects the phrase that states the time; the remaining text is the task (ADR 23)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from chimes.language.parser import en as en_numbers
from chimes.language.parser import en as en_spans
from chimes.language.parser import en as en_words
from chimes.language.parser import th as th_numbers
from chimes.language.parser import th as th_spans
from chimes.language.parser import th as th_words
from chimes.language.parser import zh as zh_numbers
from chimes.language.parser import zh as zh_spans
from chimes.language.parser import zh as zh_words
from chimes.language.parser.phrases import Meaning, Phrase, meaning, phrases
from chimes.language.parser.rules import (
    Ask,
    Clock,
    Date,
    Delay,
    Interval,
    InZone,
    PartOfDay,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
    Text,
    is_chinese,
    is_latin,
)

# Words next to a time phrase that change its meaning lead to a question.

_UNIT = (
    r"(?:(?:hours?|hrs?|minutes?|mins?|seconds?|days?|weeks?|months?|years?)(?![a-z])"
    r"|ชั่วโมง|วินาที|นาที|วัน|สัปดาห์|เดือน|ปี|小时|钟头|分钟|秒|天|周|星期|礼拜|月|年)"
)
_NUMERAL = (
    rf"(?:(?<![a-z0-9])[0-9]+|(?<![a-z]){en_numbers.WORD}|(?<![a-z])(?:hundred|thousand|dozen)"
    rf"|{th_numbers.WORD}|ร้อย|พัน|หมื่น|{zh_numbers.WORD}|[百千万几数])"
)
_LINK = (
    r" ?(?:(?:or|and|to|plus|point)(?![a-z])|หรือ|ถึง|และ|กับ|บวก|จุด|[或到至和又加零点]"
    r"|[-,.、/⁄+&])? ?"
)
_BEGINS_WITH_NUMBER = re.compile(
    rf"[0-9]|{en_numbers.WORD}|{th_numbers.WORD}|{zh_numbers.WORD}|วันที่ ?[0-9]"
)
#: `two or |three minutes`, `1天|2小时后`, `一百|二十分钟后`: the number starts before the phrase.
_NUMBER_BEFORE = re.compile(rf"(?:{_NUMERAL}|{_UNIT}){_LINK}$|负$|-$")
_NUMBER_LINKED = re.compile(rf"{_NUMERAL} ?(?:[-/⁄到至]|to |or |ถึง|หรือ) ?$")
#: Words that change the phrase after them.
_CHANGED = re.compile(
    r"(?:(?<![a-z])(?:not|never|don't|do not|doesn't|no longer"
    r"|(?:second|third|2nd|3rd|next)[ -]to|last but|penultimate|stop|cancel|than|at most|at least"
    r"|within|before|after|until|till|except|unless|almost|nearly|minus|plus|any time)"
    r"|ไม่ใช่|ไม่ต้อง|ไม่|อย่า|ห้าม|เลิก|ยกเลิก|อย่างน้อย|อย่างมาก|มากสุด|น้อยกว่า|มากกว่า|เกือบ|ไม่ถึง"
    r"|农历|阴历|旧历|(?<!要)不|不是|不要|不用|不必|别|勿|至少|最多|少于|多于|不到|不超过|超过|将近|接近|取消|停止"
    r"|(?<![a-z])[0-9]+ (?:days?|weeks?) (?:before|after))[ ,]*$"
)
#: Words that may precede a phrase.
_JOINERS = re.compile(
    r"(?:[ ,、&/+()]|(?:and|the|of|in|on|at|for)(?![a-z0-9])|และ|กับ|ที่|ใน|[和及与的])+"
)
#: Maximum distance of such words.
_FAR = 80
_HALF_RANGE = re.compile(r"[^\s]-$")
#: `明|后天`, `大|明天`: two days, or none.
_DAY_BEFORE = re.compile(r"[今明昨前大后]$")
_DAY = re.compile(r"大?[今明后昨]天")
_DOTTED = re.compile(r"[ ,]*[0-9]{1,2}\.[0-9]{2}(?! ?(?:น|[ap]\.?m))")
#: Remains of a time that was not parsed; no task begins with these.
_LEFT_OVER = re.compile(
    r" ?,? ?(?:[:.-]{1,3} ?[0-9]|(?!1:1(?![0-9]))[0-9]+ ?(?:$|:)|[+%]|-?ish(?![a-z])"
    r"|(?:and|to|และ|กับ|ถึง|和|及|到|至) ?(?:at )?[0-9]|(?:or|and a half|ago)(?![a-z])|หรือ|或"
    r"|(?:twice|thrice|three times)(?![a-z])|วันละ|(?:สอง|สาม|สี่) ?ครั้ง|[两二三四]次|แรก|สุดท้าย"
    r"|(?:except|excluding|but|unless|until|till|through|thru|starting|beginning|during"
    r"|minus|plus|give or take|not (?:on|in|at|before|after|during)"
    r"|only (?:on|in|if|when))(?![a-z])"
    r"|(?:นี้|หน้า(?!ที่)|ถัดไป|ที่แล้ว)|ยกเว้น|เว้นแต่|จนกว่า|จนถึง|เฉพาะ|[0-9]+ ?ครั้ง|ที่ ?[0-9]+ ?นาที"
    r"|บวก ?[0-9]|ลบ ?[0-9]"
    r"|除了|除去|除非|直到|仅限|左右|之间|期间|早晚|不到|刚过|差(?=[0-9一二两三四五六七八九十])"
    r"|[加减](?=[0-9一二两三四五六七八九十])|多钟|半(?!小时|个|天|年|价|程|马|场|夜|身|球)"
    r"|起(?![床飞草身来诉航跑步夜锅驾名重火])"
    r"|[0-9]* ?(?:[ap]\.?m\.?|o'?clock)(?![a-z])"
    r"|(?:[0-9]+ ?second|[0-9]* ?(?:hours?|hrs?|minutes?|mins?|seconds))(?![a-z]| of )"
    r"|(?:and )?[0-9]+ ?(?:hours?|hrs?|minutes?|mins?)(?= ?(?:$|,))"
    r"|[0-9]+ ?(?:days?|weeks?|months?|times)(?![a-z]| of )"
    r"|[0-9]* ?(?:โมง|ทุ่ม(?!เท)|นาที|ชั่วโมง|นาฬิกา|น\.(?![สศพ]\.))"
    r"|[0-9一二两三四五六七八九十]+ ?(?:点|分(?!析|享|配|类)|小时|秒|号|刻"
    r"|(?:天|周)(?=[后内之以, ]|一次|$)))"
)
#: Attached to a Thai hour; may be half past or part of the task.
_GLUED_HALF = re.compile("ครึ่ง")
_TOKEN = re.compile(r"[a-z0-9:.ก-๛]{0,20}")
_ZONE_NAME = re.compile(
    r"[ ,(]*(?:in )?(?:(?:africa|america|asia|europe|australia|pacific|atlantic|indian|etc)/"
    r"|(?:et|pt|ct|mt)(?![a-z0-9'])"
    r"|(?:us|usa|eu|american?|california|texas|florida|brazil|canada|russian?|french|european)"
    r" (?:local |standard )?time(?![a-z]))"
)
#: "Story time", "log time" are tasks; `Mars time` is an unknown zone.
_OTHER_TIME = re.compile(
    r"[ ,(]*(?:in )?(?!(?:story|quality|family|game|play|bed|lunch|dinner|tea|coffee|break|nap"
    r"|free|full|part|real|first|next|last|long|prime|show|reading|screen|meal|movie|prayer|bath"
    r"|meeting|study|quiet|bible|work|team|travel|response|run|load|build|log|track|book|find|save"
    r"|spend|make|take|check|report|enter|submit|block|sync|record|the|my|our|your|some|all) )"
    r"(?:(?:south|north|east|west|sri|costa|new|san|los|el|saudi) )?[a-z][a-z/_.]* time(?![a-z])"
)
_THAI_TIME = re.compile(
    r" ?(?:ตามเวลา|เวลา) ?(?!กิน|ทาน|เข้า|เลิก|พัก|นอน|ตื่น|ทำ|เรียน|ประชุม|ออก|อาหาร|งาน|ส่ง|เดิม)[ก-ฮเแโใไ]"
)
_CHINESE_TIME = re.compile(
    r"[ ,(]*(?!休息|吃|用|服|上[课班]|下[课班]|学习|阅读|睡|午|晚餐|早餐|亲子|自由|茶歇|会议|故事"
    r"|家庭|运动|锻炼|打卡|截止|开会|起床|检查|整理|发送)[\u4e00-\u9fff]{2,5}时间(?!表|管理|线|到|轴)"
)
_OF_EVENT = re.compile(r"[ ,]*(?:(?:before|after|while|when|as long as)(?![a-z])|ก่อน|หลัง)")
#: `1 hour |20`.
_HOURS_AND = re.compile(
    rf"(?:[0-9]|{en_numbers.WORD}|{th_numbers.WORD}|(?<![a-z])an?) ?(?:hours?|hrs?|ชั่วโมง|ชม\.?) "
    r"(?=[0-9]{1,2}(?![0-9:.]))"
)
_FOR_EN = re.compile(rf"(?<![a-z])for (?:about )?(?P<d>{en_spans.DURATION})")
_FOR_TH = re.compile(rf"(?:เป็นเวลา|นาน|ตลอด|ภายใน) ?{th_spans.DURATION}")
_FOR_ZH = re.compile(rf"(?:持续|连续|为期|共) ?{zh_spans.DURATION}")


def check_before(folded: str, chosen: Phrase, lead: str) -> None:
    """Checks the text before the phrase (`lead`, without the request). Raises Ask."""
    joined = _JOINERS.match(folded, chosen.start)
    start = joined.end() if joined else chosen.start
    first = chosen.parts[0]
    before = folded[max(0, start - _FAR) : start]
    counts = isinstance(first, Delay | RelativeDay | Date | Interval)
    if _BEGINS_WITH_NUMBER.match(folded, start):
        began = (_NUMBER_BEFORE if counts else _NUMBER_LINKED).search(before)
        if began and before.strip(" -,"):
            raise Ask("residue", words=began[0].strip())
        if isinstance(first, Delay) and before.endswith(("-", "负")):
            raise Ask("residue", words=before[-1])
    changed = _CHANGED.search(lead) or _CHANGED.search(before) or _HALF_RANGE.search(before)
    if changed:
        raise Ask("residue", words=changed[0].strip(" ,"))
    if _DAY.match(folded, start) and (other := _DAY_BEFORE.search(before)):
        raise Ask("residue", words=other[0])
    if (
        isinstance(first, Delay)
        and not joined
        and lead
        and is_chinese(lead[-1])
        and lead[-1] not in "在再"
    ):
        # "Five minutes after" something else.
        raise Ask("ambiguous")
    if _DOTTED.match(folded, chosen.start) and lead.strip():
        # May be a price or a version.
        raise Ask("ambiguous")


def check_behind(folded: str, chosen: Phrase) -> None:
    """Raises Ask."""
    for index, (_, end) in enumerate(chosen.stretches):
        left = _LEFT_OVER.match(folded, end) or _GLUED_HALF.match(folded, end)
        if left:
            raise Ask("residue", words=_whole_words(folded, left))
        if index == len(chosen.stretches) - 1:
            _check_zone(folded, chosen, end)
    if any(isinstance(part, Delay | Interval) for part in chosen.parts):
        _check_duration(folded, chosen)


def _whole_words(folded: str, found: re.Match[str]) -> str:
    """The text up to the next space: `:30`, not `:3`."""
    more = _TOKEN.match(folded, found.end())
    return folded[found.start() : more.end() if more else found.end()].strip()


def _check_zone(folded: str, chosen: Phrase, end: int) -> None:
    """`9am |California time`: an unknown zone."""
    if not any(isinstance(part, Clock) for part in chosen.parts):
        return
    found = (
        _ZONE_NAME.match(folded, end)
        or _OTHER_TIME.match(folded, end)
        or _THAI_TIME.match(folded, end)
        or _CHINESE_TIME.match(folded, end)
    )
    if found:
        raise Ask("residue", words=_whole_words(folded, found).strip(" ,("), choice="zone")


def _check_duration(folded: str, chosen: Phrase) -> None:
    end = chosen.end
    event = _OF_EVENT.match(folded, end)
    if event:
        raise Ask("residue", words=event[0].strip(" ,"))
    tail = folded[max(0, end - 24) : end + 3]
    if any(found.end() == min(24, end) + 1 for found in _HOURS_AND.finditer(tail)):
        raise Ask("residue", words=folded[end : end + 3].strip())
    step = next((part.step for part in chosen.parts if isinstance(part, Interval)), None)
    if step is None:
        return
    for pattern, length in (
        (_FOR_EN, en_spans.duration),
        (_FOR_TH, th_spans.duration),
        (_FOR_ZH, zh_spans.duration),
    ):
        limit = pattern.search(folded, end)
        # In "every hour walk for 5 minutes" the duration belongs to the task.
        if limit and (length(limit["d"]) > step or not folded[end : limit.start()].strip(" ,")):
            raise Ask("residue", words=limit[0])


_REQUESTS = (en_words.REQUEST, th_words.REQUEST, zh_words.REQUEST)
_UNSEEN = "\u200b\u200c\u200d\u2060\ufeff"
_BEFORE = f" \t\n,;:-–—([、，；：（【「『《“/|·{_UNSEEN}"
_AFTER = f" \t\n,;:-–—)]、，；：）】」』》”/|·。{_UNSEEN}"
#: Between a day and a time, these may attach the time to something else.
_ABOUT = re.compile(
    r"(?<![a-z])(?:about|of|for|regarding|before|after)(?![a-z])|เรื่อง|เกี่ยวกับ|สำหรับ|ก่อน|关于|的"
)
_AGAIN = re.compile(r"(?<![a-z])(?:every|each)|ทุก|แต่ละ|每|逢")
_THEN = re.compile(r"(?<![a-z])(?:and|then)(?![a-z])|แล้ว|และ|จากนั้น|然后|再|并")
#: Clear time words that cannot be part of the task at the beginning of a text.
_DAYS = (Clock, Date, Delay, RelativeDay, RelativeWeekday, RelativeMonthDay)
#: "Every" without a readable time or a task after it.
_UNREAD_EVERY = re.compile(
    r"[ ,]*(?:(?:every|each)(?![a-z])|ทุก(?!คน|ท่าน|ฝ่าย|ทีม|อย่าง|เรื่อง)|每(?!个?人|位|家|名))"
    r"[ ]?[^ ,]*"
)
#: Time words that name a task if another word follows.
_OF_TASK = re.compile(
    r"(?:(?P<adverb>hourly|daily|weekly|monthly|quarterly|yearly|nightly)"
    r"|(?:(?:early |late )?(?:morning|afternoon|evening|night)|business days?|weekdays?|weekends?"
    r"|(?:mon|tues?|weds?|wednes|thu|thurs?|fri|satur|sat|sun)(?:days?)?))"
    r"(?= (?!at|on|in|for|and|or|of|to|from|until|till|except|but|only|every|each)[a-z])"
    r"|(?:วัน ?)?(?:จันทร์|อังคาร|พุธ|พฤหัส(?:บดี)?|ศุกร์|เสาร์|อาทิตย์)(?=[ก-ฮเแโใไ])"
    r"|每[日天周月年](?=[\u4e00-\u9fff])"
)
#: "This", "next" directly before a phrase that does not include it change its meaning.
_WHICH_BEFORE = re.compile(r"(?:(?<![a-z])(?:this|next|last|past|coming) |[这本下上]个?)$")
_YEAR_BEFORE = re.compile(r"(?:[0-9]{2,4}|(?:年|月)(?:之?后|以后)?|ปี|years?|years? on)[ ,]*$")
#: A time this close to a day belongs to it.
_NEAR = 12
#: Maximum length of a request.
_LEAD = 80
_ONLY_SIGNS = re.compile(r"[\W_]*")


@dataclass(frozen=True, slots=True)
class Decision:
    """The meaning of the time phrase and the text around it."""

    said: Meaning
    task: str


def decide(text: Text) -> Decision:
    """Raises Ask."""
    folded = text.folded
    found = _through_requests(folded, [_trimmed(folded, each) for each in phrases(folded)])
    if not found:
        raise Ask("date", "time")
    whole = [phrase for phrase in found if _asked(phrase) is None]
    if len(whole) > 1:
        raise Ask("contradiction")
    chosen = whole[0] if whole else _split(folded, found)
    try:
        said = meaning(chosen)
    except Ask as ask:
        sharper = _sharper(folded, ask, chosen, found)
        sharper.place = _place_of_answer(sharper, chosen)
        raise sharper from None
    if zone := _zone_at_end(folded, found, chosen):
        chosen = chosen.joined(zone)
        said = meaning(chosen)
    _check_around(folded, chosen, [each for each in found if not _within(each, chosen)])
    return Decision(said, _task(text, chosen))


def _sharper(text: str, ask: Ask, chosen: Phrase, found: list[Phrase]) -> Ask:
    """The question without the parts that the text already answers."""
    if ask.missing == ("residue",):
        return Ask("residue", words=ask.words or text[chosen.start : chosen.end])
    if ask.missing not in (("time",), ("date", "time")):
        return ask
    given = [each for each in found if each.start > chosen.start and _is_clock(each)]
    between = text[chosen.end : given[0].start].strip(" ,") if given else ""
    if not between or len(between) > _NEAR or _ABOUT.search(between):
        return ask
    return Ask("date") if ask.missing[0] == "date" else Ask("residue", words=between)


def _place_of_answer(ask: Ask, chosen: Phrase) -> tuple[int, int] | None:
    """Position of the ambiguous hour or zone; after the days if there is no time."""
    if ask.readings:
        open_ = (
            place
            for part, place in zip(chosen.parts, chosen.places, strict=False)
            if isinstance(part, Clock) and part.sure == "open"
        )
        return next(open_, None)
    if ask.choice == "zone":
        unsure = (
            place
            for part, place in zip(chosen.parts, chosen.places, strict=False)
            if isinstance(part, Problem) and part.choice == "zone"
        )
        return next(unsure, None)
    return (chosen.end, chosen.end) if ask.missing == ("time",) else None


def _trimmed(text: str, phrase: Phrase) -> Phrase:
    """The phrase without trailing task names: `every day at 9am |daily report`."""
    for count in range(1, len(phrase.parts)):
        start = phrase.places[count][0]
        named = _OF_TASK.match(text, start)
        if named is None or named.end() != phrase.end or start == phrase.places[count - 1][0]:
            continue
        less = phrase.first(count)
        if any(isinstance(part, Clock) for part in less.parts) and _asked(less) is None:
            if named["adverb"]:
                return less
            if _asked(phrase) is None and replace(meaning(phrase), weekday=None) == meaning(less):
                # Still parsed, so that a weekday that contradicts the date leads to a question.
                return replace(phrase, stretches=less.stretches, trimmed=True)
    return phrase


def _asked(phrase: Phrase) -> Ask | None:
    """The question that this phrase would lead to."""
    try:
        meaning(phrase)
    except Ask as ask:
        return ask
    return None


def _within(phrase: Phrase, chosen: Phrase) -> bool:
    return phrase.stretches[0] in chosen.stretches


def _through_requests(text: str, found: list[Phrase]) -> list[Phrase]:
    """Joins phrases that only a request such as "remind me" separates."""
    merged: list[Phrase] = []
    for phrase in found:
        between = text[merged[-1].end : phrase.start] if merged else ""
        # "At 3pm remind me of tomorrow" or "tomorrow at 3pm"?
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


def _without_request(lead: str) -> str:
    """The text before a phrase, without the request that introduces it."""
    lead = lead[-_LEAD:]
    for at in range(len(lead)):
        inside = at and is_latin(lead[at]) and is_latin(lead[at - 1])
        if not inside and lead[at] not in " ," and _is_request(lead[at:]):
            return lead[:at]
    return lead


def _split(text: str, found: list[Phrase]) -> Phrase:
    """Combines a day with a time at the very end of the text, or asks the best question."""
    first, last = found[0], found[-1]
    if len(found) == 2 and _is_end(text, last) and _belong(text, first, last):
        return first.joined(last)
    # Ask about the phrase with the most content.
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
    """Checks time words outside the chosen phrase that may affect it."""
    first = chosen.parts[0]
    year = _YEAR_BEFORE.search(text, 0, chosen.start)
    if year and isinstance(first, Date) and first.year is None:
        raise Ask("residue", words=year[0].strip())
    which = _WHICH_BEFORE.search(text, 0, chosen.start)
    if which:
        raise Ask("residue", words=which[0].strip())
    for start in (0, *(end for _, end in chosen.stretches)):
        unread = _UNREAD_EVERY.match(text, start)
        trimmed = chosen.trimmed and start == chosen.end
        if unread and start != chosen.start and not trimmed:
            raise Ask("residue", words=unread[0].strip(" ,"))
    check_before(text, chosen, _without_request(text[: chosen.start]))
    check_behind(text, chosen)
    for other in others:
        said = text[other.start : other.end]
        ahead = other.start < chosen.start and _is_request(text[: other.start])
        if _AGAIN.search(said) or (ahead and any(isinstance(part, _DAYS) for part in other.parts)):
            raise Ask("contradiction")
        between = text[chosen.end : other.start]
        second = _is_clock(other) and _is_marked(other) and _THEN.search(between)
        if second and not _ABOUT.search(between):
            # "At 9am do this, and at 5pm do that."
            raise Ask("contradiction", words=said)
        limited = any(
            isinstance(part, Problem) and part.missing == ("residue",) for part in other.parts
        )
        if limited and (_is_end(text, other) or other.start < chosen.start):
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
        if at and piece.startswith('"') and piece.count('"') % 2:
            # The quotation mark was opened before the phrase.
            piece = piece[1:]
        if not _ONLY_SIGNS.fullmatch(piece):
            pieces.append(piece.strip())
        at = end
    task = ""
    for piece in pieces:
        close = not task or (is_chinese(task[-1]) and is_chinese(piece[0]))
        task += piece if close else f" {piece}"
    return task
