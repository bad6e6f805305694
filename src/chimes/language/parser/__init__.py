"""Parses natural-language text into a trigger and a task: English, Thai, Chinese."""

from chimes.language.parser.parser import LONGEST_TEXT, Parsed, parse, read_trigger
from chimes.language.parser.recipients import NamedRecipient

__all__ = ["LONGEST_TEXT", "NamedRecipient", "Parsed", "parse", "read_trigger"]
