"""What pydantic finds wrong, as sentences that can be said in every language.

The English ones are pydantic's own, so that nothing changes for those who know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic_core import PydanticCustomError

from chimes.wording import Wording, counted, say

Given = Mapping[str, object]


def refused(code: str, detail: str, **context: object) -> PydanticCustomError:
    """An error of our own; pydantic knows its place. `field` and `hint` are told beside it."""
    return PydanticCustomError(code, "{detail}", {"detail": detail, **context})


def sentence(kind: str, given: Given) -> str:
    """For an error of this type and context."""
    if isinstance(detail := given.get("detail"), str):
        return detail
    told = _SENTENCES.get(kind)
    return say("The value is not valid") if told is None else told(given)


def _choice(given: Given) -> Wording:
    """`'a', 'b' or 'c'`, as pydantic lists them."""
    expected = str(given["expected"])
    others, _, last = expected.rpartition(" or ")
    if not others:
        return say("Input should be {expected}", expected=expected)
    shown = say("{others} or {last}", others=others, last=last)
    return say("Input should be {expected}", expected=shown)


def _number(given: Given, name: str) -> int:
    value = given[name]
    return value if isinstance(value, int) else 0


_COLLECTIONS: Mapping[object, Wording] = {
    "List": say("List"),
    "Dictionary": say("Dictionary"),
    "Tuple": say("Tuple"),
    "Set": say("Set"),
}


def _too_short(given: Given) -> Wording:
    kind = given["field_type"]
    return counted(
        "{kind} should have at least {count} item after validation, not {actual}",
        "{kind} should have at least {count} items after validation, not {actual}",
        _number(given, "min_length"),
        kind=_COLLECTIONS.get(kind, kind),
        actual=given["actual_length"],
    )


def _too_long(given: Given) -> Wording:
    kind = given["field_type"]
    actual = given["actual_length"]
    return counted(
        "{kind} should have at most {count} item after validation, not {actual}",
        "{kind} should have at most {count} items after validation, not {actual}",
        _number(given, "max_length"),
        kind=_COLLECTIONS.get(kind, kind),
        actual=say("more") if actual is None else actual,
    )


def _short_string(given: Given) -> Wording:
    return counted(
        "String should have at least {count} character",
        "String should have at least {count} characters",
        _number(given, "min_length"),
    )


def _long_string(given: Given) -> Wording:
    return counted(
        "String should have at most {count} character",
        "String should have at most {count} characters",
        _number(given, "max_length"),
    )


#: By type of error: all that our bodies and queries can come to.
_SENTENCES: Mapping[str, Callable[[Given], Wording]] = {
    "missing": lambda _: say("Field required"),
    "extra_forbidden": lambda _: say("Extra inputs are not permitted"),
    "invalid_key": lambda _: say("Keys should be strings"),
    "model_type": lambda given: say(
        "Input should be a valid dictionary or instance of {name}", name=given["class_name"]
    ),
    "model_attributes_type": lambda _: say(
        "Input should be a valid dictionary or object to extract fields from"
    ),
    "dict_type": lambda _: say("Input should be a valid dictionary"),
    "list_type": lambda _: say("Input should be a valid list"),
    "tuple_type": lambda _: say("Input should be a valid tuple"),
    "set_type": lambda _: say("Input should be a valid set"),
    "none_required": lambda _: say("Input should be None"),
    "enum": _choice,
    "literal_error": _choice,
    "string_type": lambda _: say("Input should be a valid string"),
    "string_unicode": lambda _: say(
        "Input should be a valid string, unable to parse raw data as a unicode string"
    ),
    "string_too_short": _short_string,
    "string_too_long": _long_string,
    "string_pattern_mismatch": lambda given: say(
        "String should match pattern '{pattern}'", pattern=given["pattern"]
    ),
    "too_short": _too_short,
    "too_long": _too_long,
    "bool_type": lambda _: say("Input should be a valid boolean"),
    "bool_parsing": lambda _: say("Input should be a valid boolean, unable to interpret input"),
    "int_type": lambda _: say("Input should be a valid integer"),
    "int_parsing": lambda _: say(
        "Input should be a valid integer, unable to parse string as an integer"
    ),
    "int_parsing_size": lambda _: say(
        "Unable to parse input string as an integer, exceeded maximum size"
    ),
    "int_from_float": lambda _: say(
        "Input should be a valid integer, got a number with a fractional part"
    ),
    "float_type": lambda _: say("Input should be a valid number"),
    "float_parsing": lambda _: say(
        "Input should be a valid number, unable to parse string as a number"
    ),
    "finite_number": lambda _: say("Input should be a finite number"),
    "greater_than": lambda given: say("Input should be greater than {gt}", gt=given["gt"]),
    "greater_than_equal": lambda given: say(
        "Input should be greater than or equal to {ge}", ge=given["ge"]
    ),
    "less_than": lambda given: say("Input should be less than {lt}", lt=given["lt"]),
    "less_than_equal": lambda given: say(
        "Input should be less than or equal to {le}", le=given["le"]
    ),
    "multiple_of": lambda given: say(
        "Input should be a multiple of {number}", number=given["multiple_of"]
    ),
    "union_tag_invalid": lambda given: say(
        "Input tag '{tag}' found using {discriminator} does not match any of the expected tags:"
        " {expected}",
        tag=given["tag"],
        discriminator=given["discriminator"],
        expected=given["expected_tags"],
    ),
    "union_tag_not_found": lambda given: say(
        "Unable to extract tag using discriminator {discriminator}",
        discriminator=given["discriminator"],
    ),
}
