"""Words directly before or behind a phrase of time that change what it says: asked about."""

from __future__ import annotations

import re

from chimes.language.parsing import en_numbers, en_spans, th_numbers, th_spans, zh_numbers, zh_spans
from chimes.language.parsing.asking import Ask
from chimes.language.parsing.parts import Clock, Date, Delay, Interval, RelativeDay
from chimes.language.parsing.scan import Phrase
from chimes.language.parsing.text import is_chinese

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
#: `two or |three minutes`, `1天|2小时后`, `一百|二十分钟后`: the number began before the phrase.
_NUMBER_BEFORE = re.compile(rf"(?:{_NUMERAL}|{_UNIT}){_LINK}$|负$|-$")
_NUMBER_LINKED = re.compile(rf"{_NUMERAL} ?(?:[-/⁄到至]|to |or |ถึง|หรือ) ?$")
#: What no phrase follows without being changed by it.
_CHANGED = re.compile(
    r"(?:(?<![a-z])(?:not|never|don't|do not|doesn't|no longer"
    r"|(?:second|third|2nd|3rd|next)[ -]to|last but|penultimate|stop|cancel|than|at most|at least"
    r"|within|before|after|until|till|except|unless|almost|nearly|minus|plus|any time)"
    r"|ไม่ใช่|ไม่ต้อง|ไม่|อย่า|ห้าม|เลิก|ยกเลิก|อย่างน้อย|อย่างมาก|มากสุด|น้อยกว่า|มากกว่า|เกือบ|ไม่ถึง"
    r"|农历|阴历|旧历|(?<!要)不|不是|不要|不用|不必|别|勿|至少|最多|少于|多于|不到|不超过|超过|将近|接近|取消|停止"
    r"|(?<![a-z])[0-9]+ (?:days?|weeks?) (?:before|after))[ ,]*$"
)
#: A phrase may begin with these.
_JOINERS = re.compile(
    r"(?:[ ,、&/+()]|(?:and|the|of|in|on|at|for)(?![a-z0-9])|และ|กับ|ที่|ใน|[和及与的])+"
)
#: What is farther away does not touch the phrase.
_FAR = 80
_HALF_RANGE = re.compile(r"[^\s]-$")
#: `明|后天`, `大|明天`: two days, or none.
_DAY_BEFORE = re.compile(r"[今明昨前大后]$")
_DAY = re.compile(r"大?[今明后昨]天")
_DOTTED = re.compile(r"[ ,]*[0-9]{1,2}\.[0-9]{2}(?! ?(?:น|[ap]\.?m))")
#: What no task begins with: the rest of a time that was not read.
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
#: Glued to a Thai hour, neither half past nor quite the task's.
_GLUED_HALF = re.compile("ครึ่ง")
_TOKEN = re.compile(r"[a-z0-9:.ก-๛]{0,20}")
_ZONE_NAME = re.compile(
    r"[ ,(]*(?:in )?(?:(?:africa|america|asia|europe|australia|pacific|atlantic|indian|etc)/"
    r"|(?:et|pt|ct|mt)(?![a-z0-9'])"
    r"|(?:us|usa|eu|american?|california|texas|florida|brazil|canada|russian?|french|european)"
    r" (?:local |standard )?time(?![a-z]))"
)
#: "Story time", "log time" are tasks; `Mars time` is a zone that nobody knows.
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
    """`lead`: what stands before the phrase, without a request. Raises Ask."""
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
        # Five minutes after something else.
        raise Ask("ambiguous")
    if _DOTTED.match(folded, chosen.start) and lead.strip():
        # The price of milk, or a version.
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
    """Up to the next space: `:30`, not `:3`."""
    more = _TOKEN.match(folded, found.end())
    return folded[found.start() : more.end() if more else found.end()].strip()


def _check_zone(folded: str, chosen: Phrase, end: int) -> None:
    """`9am |California time`, of which nothing is known."""
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
        # "Every hour walk for 5 minutes" is how long to walk.
        if limit and (length(limit["d"]) > step or not folded[end : limit.start()].strip(" ,")):
            raise Ask("residue", words=limit[0])
