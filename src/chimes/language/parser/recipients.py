"""Recipients named in a task: `…ส่งเข้าเทเลแกรม`, `email me …`, `发到 Telegram`.

Only the author or a full address counts: `email the customers` is part of the task. The words
stay in the task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from chimes.language.parser.grammars import GRAMMARS, any_of
from chimes.language.parser.rules import ADDRESS, RecipientChannel
from chimes.language.parser.text import fold

NotifyWord = Literal["always", "failure"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedRecipient:
    channel: RecipientChannel
    #: A full address; empty: the author's own.
    to: str = ""
    on: NotifyWord = "always"


_URL = re.compile(r"https?://[^\s,;\"'<>，。ก-๛一-鿿]+")
_RULES = tuple(
    (channel, re.compile(pattern))
    for grammar in GRAMMARS
    for channel, pattern in grammar.recipients
)
_TO_ADDRESS = re.compile(rf"(?:{any_of(lambda words: words.to_address)})({ADDRESS})")
_NO_RECIPIENT = re.compile(any_of(lambda words: words.no_recipient))
_ON_FAILURE = re.compile(any_of(lambda words: words.on_failure))
#: Maximum distance within one request.
_LONGEST = 600


def recipients_in(task: str) -> tuple[NamedRecipient, ...]:
    """Each channel once, in the order of the grammars."""
    text = _URL.sub(lambda url: " " * len(url[0]), fold(task[:_LONGEST]).folded)
    if _NO_RECIPIENT.search(text):
        return ()
    on: NotifyWord = "failure" if _ON_FAILURE.search(text) else "always"
    found = [
        NamedRecipient(channel="email", to=hit[1], on=on) for hit in _TO_ADDRESS.finditer(text)
    ]
    known = {each.channel for each in found}
    for channel, pattern in _RULES:
        if channel not in known and pattern.search(text):
            known.add(channel)
            found.append(NamedRecipient(channel=channel, on=on))
    return tuple(found)
