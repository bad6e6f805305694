"""Thai numerals up to 99, in digits or words."""

from __future__ import annotations

_ONES = ("หนึ่ง", "สอง", "สาม", "สี่", "ห้า", "หก", "เจ็ด", "แปด", "เก้า")
_ONE = "|".join(_ONES)
WORD = rf"(?:(?:{_ONE}|ยี่)?สิบ(?:เอ็ด|{_ONE})?|{_ONE})"
NUMBER = rf"(?:[0-9]{{1,6}}|{WORD})"


def number(text: str) -> int:
    if text.isdigit():
        return int(text)
    tens, ten, ones = text.rpartition("สิบ")
    if not ten:
        return _one(text)
    return (_one(tens) if tens else 1) * 10 + (_one(ones) if ones else 0)


def _one(text: str) -> int:
    return {"เอ็ด": 1, "ยี่": 2}.get(text) or _ONES.index(text) + 1
