"""Chinese numerals up to 99, in digits or characters."""

from __future__ import annotations

_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6}
_DIGITS |= {"七": 7, "八": 8, "九": 9}
_ONE = "[一二两三四五六七八九]"
WORD = rf"(?:{_ONE}?十{_ONE}?|廿{_ONE}?|卅{_ONE}?|[零〇]?{_ONE}|[零〇])"
NUMBER = rf"(?:[0-9]{{1,6}}|{WORD})"


def number(text: str) -> int:
    if text.isdigit() and text.isascii():
        return int(text)
    said = text.replace("廿", "二十").replace("卅", "三十")
    tens, ten, ones = said.rpartition("十")
    if not ten:
        return _DIGITS[said[-1]]
    return (_DIGITS[tens] if tens else 1) * 10 + (_DIGITS[ones] if ones else 0)
