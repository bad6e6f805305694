"""Zones named in a text: `Asia/Bangkok`, `Bangkok time`, `เวลากรุงเทพ`, `北京时间`."""

from __future__ import annotations

import re
from functools import lru_cache

from chimes.language.parsing.parts import Found, InZone, Problem
from chimes.triggers import zone_names

_PLACES = {
    "Asia/Bangkok": "bangkok thailand thai กรุงเทพมหานคร กรุงเทพฯ กรุงเทพ ไทย ประเทศไทย 曼谷 泰国",
    "Asia/Shanghai": "beijing china shanghai ปักกิ่ง จีน เซี่ยงไฮ้ 北京 中国 上海",
    "Asia/Hong_Kong": "ฮ่องกง 香港",
    "Asia/Taipei": "ไทเป ไต้หวัน taiwan 台北 台湾",
    "Asia/Tokyo": "japan โตเกียว ญี่ปุ่น 东京 日本",
    "Asia/Seoul": "korea โซล เกาหลี 首尔 韩国",
    "Asia/Singapore": "สิงคโปร์ 新加坡",
    "Asia/Kolkata": "india อินเดีย 印度",
    "Asia/Dubai": "ดูไบ 迪拜",
    "Asia/Ho_Chi_Minh": "vietnam เวียดนาม 越南",
    "America/New_York": "นิวยอร์ก 纽约",
    "America/Los_Angeles": "ลอสแอนเจลิส 洛杉矶",
    "Europe/London": "uk ลอนดอน อังกฤษ 伦敦 英国",
    "Europe/Paris": "ปารีส 巴黎",
    "Europe/Berlin": "germany เบอร์ลิน เยอรมนี 柏林 德国",
    "Europe/Moscow": "มอสโก 莫斯科",
    "Australia/Sydney": "ซิดนีย์ 悉尼",
    "UTC": "utc",
}
_WHICH = Problem(("ambiguous",), choice="zone")
_NAME = re.compile(r"[a-z]{2,16}(?:/[a-z_+\-0-9]{1,20}){1,2}")
_OFFSET = re.compile(r"(?:utc|gmt) ?[+-] ?[0-9]{1,2}(?::?[0-9]{2})?(?![0-9a-z])")
# Abbreviations that several places share, or that say nothing about summer time.
_VAGUE = re.compile(
    r"(?:est|edt|pst|pdt|cst|cdt|mst|mdt|ist|bst|cet|cest|eet|jst|ict"
    r"|hkt|sgt|kst|aest|aedt|acst|awst|msk|wib|nzst|nzdt|akst|akdt|pht|myt|pkt|brt"
    r"|(?:eastern|central|pacific|mountain)(?: (?:standard|daylight))? time"
    r")(?![a-z0-9])"
)
#: The zone that the caller gives.
_GIVEN = re.compile(r"(?:local|my) time(?![a-z0-9])|(?:ตาม)?เวลาท้องถิ่น|(?:本地|当地)时间")
_UTC = re.compile(r"(?:utc|gmt)(?: time)?(?![a-z0-9+/-]| ?时间)")
_THAI = re.compile("[ก-๛]")
_ENGLISH = re.compile(
    r"(?:in )?(?P<place>[a-z][a-z.]{0,15}(?: [a-z.]{1,16}){0,2}?)(?:'s)?"
    r" (?:local |standard )?time(?![a-z0-9])"
)


@lru_cache(maxsize=1)
def _by_folded() -> dict[str, str]:
    return {name.lower(): name for name in zone_names()}


@lru_cache(maxsize=1)
def _places() -> dict[str, str]:
    known: dict[str, str] = {}
    for name in sorted(zone_names()):
        if "/" in name and not name.startswith("Etc/"):
            known.setdefault(name.rpartition("/")[2].replace("_", " ").lower(), name)
    return known | {word: zone for zone, words in _PLACES.items() for word in words.split()}


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    words = sorted((word for words in _PLACES.values() for word in words.split()), key=len)
    other = [re.escape(word) for word in reversed(words) if not word.isascii()]
    thai = "|".join(word for word in other if _THAI.search(word))
    chinese = "|".join(word for word in other if not _THAI.search(word))
    return (
        _ENGLISH,
        re.compile(
            rf"(?:ตาม)?เวลา(?:ท้องถิ่น)?(?:ใน|ของ|ที่)? ?(?:ประเทศ|เมือง|นคร)?(?P<place>{thai}|utc)"
        ),
        re.compile(rf"(?P<place>{chinese}|utc) ?(?:当地)?时间"),
    )


def zone_at(text: str, at: int) -> Found | None:
    """A zone that is named here."""
    for vague in (_OFFSET, _VAGUE):
        if found := vague.match(text, at):
            return Found((_WHICH,), found.end())
    if found := _GIVEN.match(text, at):
        return Found((InZone(""),), found.end())
    if found := _UTC.match(text, at):
        return Found((InZone("UTC"),), found.end())
    if found := _NAME.match(text, at):
        name = _by_folded().get(found[0])
        if name is not None:
            end = found.end() + (5 if text.startswith(" time", found.end()) else 0)
            return Found((InZone(name),), end)
    for pattern in _patterns():
        if (found := pattern.match(text, at)) and (name := _places().get(found["place"])):
            return Found((InZone(name),), found.end())
    return None
