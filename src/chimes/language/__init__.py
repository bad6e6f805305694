"""Words for triggers: what a schedule will do, told to a person."""

from chimes.language.describe import LANGUAGES, describe, note_in_words, warnings_in_words

__all__ = ["LANGUAGES", "describe", "note_in_words", "warnings_in_words"]
