"""Sentences of the describer, read back exactly (TIME "Words").

What people write is the business of `parsing`. Here a sentence is taken apart with little care and
the trigger that results is described again: only if that gives the very same sentence was it one
of ours, so nothing can be misread.
"""

from __future__ import annotations

from chimes.errors import InvalidTrigger
from chimes.language.describing import describe
from chimes.language.rereading.building import Draft, triggers
from chimes.language.rereading.en import GRAMMAR as ENGLISH
from chimes.language.rereading.th import GRAMMAR as THAI
from chimes.language.rereading.zh import GRAMMAR as CHINESE
from chimes.triggers import Trigger

_GRAMMARS = {"en": ENGLISH, "th": THAI, "zh": CHINESE}
# A sentence of ours is not longer, and taking one apart should cost nothing to speak of.
_LONGEST = 1000


def reread(text: str, lang: str) -> Trigger | None:
    """The trigger of which `describe` says just this; None: there is none that we know of."""
    sentence = text.strip()
    if lang not in _GRAMMARS or len(sentence) > _LONGEST:
        return None
    try:
        drafts = list(_GRAMMARS[lang].drafts(sentence))
    except (ValueError, OverflowError):
        # Numbers that nothing has.
        return None
    return next((found for draft in drafts if (found := _confirmed(draft, sentence, lang))), None)


def bounded(text: str, lang: str) -> bool:
    """Whether a clause says, as the describer does, until when, how often or when not to fire."""
    try:
        return lang in _GRAMMARS and _GRAMMARS[lang].bounded(text.strip())
    except ValueError:
        return True


def _confirmed(draft: Draft, sentence: str, lang: str) -> Trigger | None:
    try:
        for trigger in triggers(draft):
            if describe(trigger, lang) == sentence:
                return trigger
    except (InvalidTrigger, ValueError):
        return None
    return None
