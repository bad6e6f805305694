"""Recipients named in a task: `…ส่งเข้าเทเลแกรม`, `email me …`, `发到 Telegram`.

Only the author or a full address counts: `email the customers` is part of the task. The words
stay in the task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from chimes.language.parser.rules import fold

ToldChannel = Literal["inbox", "telegram", "email"]
NotifyWord = Literal["always", "failure"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedRecipient:
    channel: ToldChannel
    #: A full address; empty: the author's own.
    to: str = ""
    on: NotifyWord = "always"


_URL = re.compile(r"https?://[^\s,;\"'<>，。ก-๛一-鿿]+")
_ADDRESS = r"[a-z0-9._%+-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}"
#: Not followed by more words about the channel: `to telegram`, not `to telegram users`.
_END_EN = r"(?=$| ?[,.;:!?)]| (?:and|if|when|then|please|only|too|as|with|at|about)(?![a-z]))"
_END_TH = r"(?=$|[ ,.;!)]|แล้ว|และ|ถ้า|หาก|เมื่อ|หน่อย|ด้วย|นะ|ครับ|ค่ะ|คะ|ให้|ว่า)"
_END_ZH = r"(?=$|[ ,.;!),。;!)、]|如果|若|一旦|并|然后|吧)"

_SENDS_EN = (
    r"(?<![a-z])(?:send|sends|post|notify|tell|message|report|deliver|push|ping|alert|remind"
    r"|forward|share|write|put|drop|let me know|inform|e-?mail)(?![a-z])"
)
#: `ที่ส่ง` means "that was sent", not a request to send.
_SENDS_TH = r"(?<!ที่)(?<!ถูก)(?:ส่ง|แจ้งเตือน|แจ้ง|เตือน|โพสต์|รายงาน|บอก|ทัก|ฝาก)"
_SENDS_ZH = r"(?:发送|发布|发(?![现生展票])|推送|转发|通知|提醒|告诉|报告)"

_TELEGRAM = r"(?:telegram|เทเลแกรม|เทเลแกรม์|电报|tg)"
_MAIL_TH = r"(?:อีเมล์?|เมล์?|e-?mail)"
_MAIL_ZH = r"(?:电子邮件|电邮|邮件|e-?mail)"
_INBOX_TH = r"(?:กล่องข้อความ|กล่องขาเข้า|อินบ็อกซ์|inbox)"
_ME_TH = r"(?:ฉัน|ผม|เรา|ดิฉัน|หนู)"
_INTO_TH = r"(?:เข้า|ไปที่|ไปยัง|ไปทาง|ทาง|ผ่าน|มาที่|มาทาง|ลง|ไป|มา|ใน|ที่)"

_PATTERNS: tuple[tuple[ToldChannel, str], ...] = (
    # English
    (
        "telegram",
        rf"{_SENDS_EN}.*(?<![a-z])(?:to|on|via|by|through|in|over|into) (?:my |our |the )?"
        rf"telegram(?: (?:chat|channel|group))?{_END_EN}",
    ),
    (
        "telegram",
        r"(?<![a-z])telegram me(?![a-z])|(?<![a-z])(?:tell|notify|message|alert|remind|ping) me"
        r" (?:on|via|by|through|over) telegram(?![a-z])",
    ),
    ("email", r"(?<![a-z])e-?mail me(?![a-z])|(?<![a-z])send me an? e-?mail(?![a-z])"),
    (
        "email",
        rf"(?<![a-z])(?:send|notify|tell|alert|remind|inform|let) me(?![a-z]).*"
        rf"(?<![a-z])(?:by|via|through|over) e-?mail{_END_EN}",
    ),
    ("email", rf"{_SENDS_EN}.*(?<![a-z])to my e-?mail(?: address)?{_END_EN}"),
    ("inbox", rf"{_SENDS_EN}.*(?<![a-z])(?:to|in|into) (?:my |the )?inbox{_END_EN}"),
    # Thai
    (
        "telegram",
        rf"{_SENDS_TH}.*{_INTO_TH} ?(?:กลุ่ม|ห้อง|แชท)? ?{_TELEGRAM}"
        rf"(?:ของ ?{_ME_TH}|{_ME_TH})?{_END_TH}",
    ),
    ("email", rf"{_SENDS_TH}.*{_INTO_TH} ?{_MAIL_TH} ?(?:ของ ?)?{_ME_TH}?{_END_TH}"),
    ("email", rf"(?:ส่ง|เขียน) ?{_MAIL_TH} ?(?:มา)?(?:หา|ถึง|ให้) ?{_ME_TH}"),
    ("inbox", rf"{_SENDS_TH}.*{_INTO_TH} ?{_INBOX_TH}(?:ของ ?{_ME_TH})?{_END_TH}"),
    # Chinese
    (
        "telegram",
        rf"{_SENDS_ZH}.*?(?:到|至|给|去) ?(?:我的?)? ?{_TELEGRAM}"
        rf" ?(?:群组?|频道|上|里)?{_END_ZH}",
    ),
    (
        "telegram",
        rf"(?:通过|用|在|走) ?(?:我的)? ?{_TELEGRAM} ?上? ?{_SENDS_ZH}(?:给)? ?(?:我|$|[,。,])",
    ),
    (
        "email",
        rf"(?:发送?|推送|转发).*?(?:到|至) ?我?的? ?(?:电子)?(?:邮箱|{_MAIL_ZH}){_END_ZH}"
        rf"|发送?(?:一?封)? ?{_MAIL_ZH} ?给 ?我|给我发送?(?:一?封)? ?{_MAIL_ZH}",
    ),
    ("email", rf"(?:通过|用|以) ?{_MAIL_ZH} ?(?:的?方式)? ?{_SENDS_ZH}(?:给)? ?我"),
    ("inbox", rf"(?:{_SENDS_ZH}|放).*?(?:到|进|至|入) ?我?的? ?收件箱{_END_ZH}"),
)
_RULES = tuple((channel, re.compile(pattern)) for channel, pattern in _PATTERNS)
_TO_ADDRESS = re.compile(
    rf"(?:(?<![a-z])(?:send|e-?mail|mail|forward|deliver|report|notify)(?![a-z])(?:.* to|) "
    rf"|{_SENDS_TH}.*?(?:ไปที่|ไปยัง|ถึง|เข้า|หา|ให้|ที่|ไป|{_MAIL_TH}) ?"
    rf"|{_SENDS_ZH}.*?(?:到|给|至) ?|给 ?(?={_ADDRESS} ?发))({_ADDRESS})"
)
_NOT = re.compile(
    r"(?<![a-z])(?:not|don't|never|without|instead of|rather than|stop)(?![a-z])"
    r"|ไม่ต้อง|อย่า|ห้าม|เลิก|不要|不用|别(?!的)|无需|停止"
)
_IF_IT_FAILS = re.compile(
    r"(?<![a-z])(?:if|when|whenever|in case)(?: it| that| this| one| anything| something)?"
    r"(?: ever)? (?:fails?|failed|breaks?|goes wrong|went wrong|is down|is broken|errors?)(?![a-z])"
    r"|(?<![a-z])on (?:failure|errors?)(?![a-z])|(?:ถ้า|หาก|เมื่อ|ตอน|กรณี)(?:ที่|มัน|เว็บ|ระบบ)* ?"
    r"(?:ล้มเหลว|พัง|ผิดพลาด|ล่ม|ไม่สำเร็จ|มีปัญหา|error)"
    r"|(?:如果|若是?|一旦|要是)?(?:失败|出错|出问题|报错|挂了)(?:时|了|的话|就|则|的时候|才)"
    r"|(?:如果|若是?|一旦|要是)(?:失败|出错|出问题|报错|挂)"
)
#: Maximum distance within one request.
_LONGEST = 600


def recipients_in(task: str) -> tuple[NamedRecipient, ...]:
    """Each channel once, in the order above."""
    text = _URL.sub(lambda url: " " * len(url[0]), fold(task[:_LONGEST]).folded)
    if _NOT.search(text):
        return ()
    on: NotifyWord = "failure" if _IF_IT_FAILS.search(text) else "always"
    found = [
        NamedRecipient(channel="email", to=hit[1], on=on) for hit in _TO_ADDRESS.finditer(text)
    ]
    known = {each.channel for each in found}
    for channel, pattern in _RULES:
        if channel not in known and pattern.search(text):
            known.add(channel)
            found.append(NamedRecipient(channel=channel, on=on))
    return tuple(found)
