"""Words to triggers: what a person says, read as a time to act and something to do."""

from chimes.language.parser.parser import LONGEST_TEXT, Parsed, parse, read_trigger
from chimes.language.parser.recipients import Told

__all__ = ["LONGEST_TEXT", "Parsed", "Told", "parse", "read_trigger"]
