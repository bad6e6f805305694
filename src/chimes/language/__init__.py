"""Words for triggers: what a schedule will do, told to a person."""

from chimes.language.choosing import LANGUAGES
from chimes.language.describe import (
    describe,
    note_in_words,
    remark,
    short_weekday,
    warnings_in_words,
)

__all__ = ["LANGUAGES", "describe", "note_in_words", "remark", "short_weekday", "warnings_in_words"]
