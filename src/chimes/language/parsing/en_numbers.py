"""English numerals: digits, and the words that times and counts are said with."""

from __future__ import annotations

_ONES = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90}
_ZERO = "zero"
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth"),
    *("seventeenth", "eighteenth", "nineteenth", "twentieth", "twenty-first", "twenty-second"),
    *("twenty-third", "twenty-fourth", "twenty-fifth", "twenty-sixth", "twenty-seventh"),
    *("twenty-eighth", "twenty-ninth", "thirtieth", "thirty-first"),
)
_BY_LENGTH = sorted(_ONES, key=len, reverse=True)
_ONE = "|".join(_BY_LENGTH)
WORD = rf"(?:{_ZERO}|(?:{'|'.join(_TENS)})(?:[- ](?:{_ONE}))?|{_ONE})(?![a-z])"
NUMBER = rf"(?:[0-9]{{1,6}}|{WORD})"
HOUR = rf"(?:[0-9]{{1,2}}|{WORD})"
ORDINAL_WORD = rf"(?:{'|'.join(sorted(_ORDINALS, key=len, reverse=True))})"
#: 1st, 2nd, fifteenth.
ORDINAL = rf"(?:[0-9]{{1,2}}(?:st|nd|rd|th)|{ORDINAL_WORD})(?![a-z0-9])"


def number(text: str) -> int:
    if text.isdigit():
        return int(text)
    total = 0
    for word in text.replace("-", " ").split():
        if word != _ZERO:
            total += _TENS[word] if word in _TENS else _ONES.index(word) + 1
    return total


def ordinal(text: str) -> int:
    """Of `1st` or `first`, or of a plain number."""
    digits = text.rstrip("dhnrst")
    if digits.isdigit():
        return int(digits)
    return _ORDINALS.index(text) + 1
