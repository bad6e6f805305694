"""Chinese: all recognisers, and the words that hold a time phrase together."""

from __future__ import annotations

import re

from chimes.language.parsing import zh_clock, zh_days, zh_spans

RULES = [*zh_clock.RULES, *zh_days.RULES, *zh_spans.RULES]
#: Between parts, meaning nothing by themselves.
JOINING = r"在|于|的|之间"
#: Between two of a kind: both are meant.
LISTING = r"和|及|与|以及|还有"
#: Asks for something; it may stand before, or in the middle of, the words of time.
REQUEST = re.compile(
    r"(?:请你?|麻烦你?|帮我|提醒我|叫我|通知我|告诉我|给我|我要|我想要?|让我|记得|设置|定时)"
)
