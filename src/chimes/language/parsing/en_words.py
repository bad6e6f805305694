"""English: all recognisers, and the words that hold a time phrase together."""

from __future__ import annotations

import re

from chimes.language.parsing import en_clock, en_days, en_spans

RULES = [*en_clock.RULES, *en_days.RULES, *en_spans.RULES]
#: Between parts, meaning nothing by themselves.
JOINING = r"(?:at|on|in|of|the|for|@|between)(?![a-z0-9])"
#: Between two of a kind: both are meant.
LISTING = r"and(?![a-z0-9])"
#: Asks for something; it may stand before, or in the middle of, the words of time.
REQUEST = re.compile(
    r"(?:please|pls|kindly|hey|hi|can you|could you|would you|will you|i want you to"
    r"|i'd like you to|remind me|reminder|remind us|notify me|alert me|tell me|ping me|wake me up"
    r"|set|schedule|run|an?|me|to)(?![a-z0-9])"
)
