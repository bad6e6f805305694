"""Words to triggers: what a person says, read as a time to act and something to do."""

from chimes.language.parsing.reading import LONGEST_TEXT, Parsed, parse, read_trigger
from chimes.language.parsing.telling import Told

__all__ = ["LONGEST_TEXT", "Parsed", "Told", "parse", "read_trigger"]
