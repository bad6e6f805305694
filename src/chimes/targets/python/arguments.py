"""A task's arguments: JSON on the way in and in the store, typed Python values in the function.

Reading is strict: a number written as text is no number. What JSON has no form for (moments,
durations, UUIDs, decimals, enums, dataclasses, pydantic models) is written as pydantic writes it.
Nothing is ever pickled.
"""

from __future__ import annotations

import difflib
import inspect
import json
import types
import typing
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.redaction import HIDDEN, is_secret_name
from chimes.targets.process.sanitize import sanitize_json
from chimes.targets.python.context import Context

if TYPE_CHECKING:
    from chimes.targets.python.registry import Function, Task


CONTEXT_NAME = "context"
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    #: None: it has no annotation, or one that says nothing.
    adapter: TypeAdapter[object] | None
    #: The annotation as a person would write it.
    expected: str
    required: bool
    by_position: bool
    #: The type of values that are taken as they are; None: every value is read.
    as_it_is: type[object] | None = None


@dataclass(frozen=True, slots=True)
class Parameters:
    named: Mapping[str, Parameter]
    #: The parameter that the context is given to.
    context: str | None
    context_by_position: bool
    #: `**kwargs`: what its values must be; None if there is no such parameter.
    rest: Parameter | None
    #: Whether it takes nothing but arguments by their names.
    all_by_name: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """What the function is called with."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]


def check(task: Task, args: Mapping[str, object]) -> None:
    """Raises `InvalidInput` for JSON arguments that the task cannot be called with."""
    _loaded(task, parameters_of(task.function), args)


def dump(task: Task, args: Mapping[str, object]) -> dict[str, object]:
    """The arguments as they are stored: plain JSON values, checked."""
    dumped: dict[str, object] = {}
    for name, value in args.items():
        try:
            plain = to_jsonable_python(value)
            # A JSON number is finite; a database would refuse the row later.
            text = json.dumps(plain, allow_nan=False)
        except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                _(
                    "task {task!r}: argument {name!r} has no form in JSON: {error}",
                    task=task.name,
                    name=name,
                    error=str(error),
                ),
                field=name,
            ) from error
        loaded = json.loads(text)
        if sanitize_json(loaded) != loaded:
            raise InvalidInput(
                _(
                    "task {task!r}: argument {name!r} has a NUL or half a surrogate pair in it, "
                    "which no store takes",
                    task=task.name,
                    name=name,
                ),
                field=name,
            )
        dumped[name] = loaded
    check(task, dumped)
    return dumped


def bind(task: Task, args: Mapping[str, object], context: Context) -> Bound:
    """From stored arguments to a call; raises `InvalidInput` as `check` does."""
    parameters = parameters_of(task.function)
    values = _loaded(task, parameters, args)
    if parameters.all_by_name:
        return Bound((), values)
    positional: list[object] = []
    if parameters.context is not None and parameters.context_by_position:
        positional.append(context)
    elif parameters.context is not None:
        values[parameters.context] = context
    positional += [
        values.pop(name)
        for name, parameter in parameters.named.items()
        if parameter.by_position and name in values
    ]
    return Bound(tuple(positional), values)


def parameters_of(function: Function) -> Parameters:
    """Raises `InvalidInput` where arguments by name can never fit the signature."""
    # Asked for every run: what nearly all are is looked at first.
    known = isinstance(function, (types.FunctionType, Hashable))
    return _cached(function) if known else _read(function)


@cache
def _cached(function: Function) -> Parameters:
    return _read(function)


def _read(function: Function) -> Parameters:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            _("the signature of {function} cannot be read", function=_named(function))
        ) from error
    named: dict[str, Parameter] = {}
    context: inspect.Parameter | None = None
    rest: Parameter | None = None
    for each in signature.parameters.values():
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        if each.name == CONTEXT_NAME and each.kind is not inspect.Parameter.VAR_KEYWORD:
            context = each
            continue
        annotation = _resolved(function, each)
        if _is_context(annotation):
            context = each
        elif each.kind is inspect.Parameter.VAR_KEYWORD:
            rest = _parameter(function, each, annotation)
        else:
            named[each.name] = _parameter(function, each, annotation)
    only = inspect.Parameter.POSITIONAL_ONLY
    by_position = context is not None and context.kind is only
    if by_position and next(iter(signature.parameters.values())) is not context:
        raise InvalidInput(
            _("the context of {function} must come first or be named", function=_named(function))
        )
    return Parameters(
        named,
        None if context is None else context.name,
        by_position,
        rest,
        context is None and not any(each.by_position for each in named.values()),
    )


def _parameter(function: Function, parameter: inspect.Parameter, annotation: object) -> Parameter:
    adapter: TypeAdapter[object] | None = None
    if annotation not in (inspect.Parameter.empty, typing.Any, object):
        try:
            adapter = TypeAdapter(typing.cast("type[object]", annotation))
        except PydanticUserError as error:
            raise InvalidInput(
                _(
                    "parameter {parameter!r} of {function}: values of "
                    "{annotation} cannot come from JSON ({error})",
                    parameter=parameter.name,
                    function=_named(function),
                    annotation=_shown_type(annotation),
                    error=_first_line(error),
                ),
                field=parameter.name,
            ) from error
    return Parameter(
        name=parameter.name,
        adapter=adapter,
        expected=_shown_type(annotation) if adapter is not None else _("any value"),
        required=parameter.default is inspect.Parameter.empty,
        by_position=parameter.kind is inspect.Parameter.POSITIONAL_ONLY,
        as_it_is=next((each for each in (int, bool) if annotation is each), None),
    )


def _resolved(function: Function, parameter: inspect.Parameter) -> object:
    annotation: object = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return annotation
    inner = inspect.unwrap(function)
    inner = getattr(inner, "func", inner)
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    holder = types.SimpleNamespace(__annotations__={parameter.name: annotation})
    try:
        hints = typing.get_type_hints(
            holder,
            globalns=getattr(inner, "__globals__", {}),
            localns=_enclosed(inner),
            include_extras=True,
        )
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise InvalidInput(
            _(
                "parameter {parameter!r} of {function}: its type {annotation!r} cannot "
                "be found where the function is defined ({error})",
                parameter=parameter.name,
                function=_named(function),
                annotation=annotation,
                error=str(error),
            ),
            field=parameter.name,
        ) from error
    return hints[parameter.name]


def _enclosed(function: Function) -> dict[str, object]:
    """Names of the functions around it, as far as the function uses them."""
    code = getattr(function, "__code__", None)
    found: dict[str, object] = {}
    for name, cell in zip(
        code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=False
    ):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _is_context(annotation: object) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_context(each) for each in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, Context)


def _loaded(task: Task, parameters: Parameters, args: Mapping[str, object]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in args.items():
        parameter = parameters.named.get(name, parameters.rest)
        if parameter is None or name == parameters.context:
            raise _unknown(task, name, parameters)
        plain = parameter.adapter is None or type(value) is parameter.as_it_is
        values[name] = value if plain else _value(task, name, parameter, value)
    for name, parameter in parameters.named.items():
        if parameter.required and name not in values:
            raise InvalidInput(
                _(
                    "task {task!r}: argument {name!r} ({expected}) is missing",
                    task=task.name,
                    name=name,
                    expected=parameter.expected,
                ),
                field=name,
                code="missing",
            )
    return values


def _value(task: Task, name: str, parameter: Parameter, value: object) -> object:
    assert parameter.adapter is not None
    try:
        return parameter.adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = "".join(f"[{step!r}]" for step in first["loc"])
        # The value inside the argument that is wrong, by a name that may tell more.
        steps = [name, *(str(step) for step in first["loc"])]
        hidden = any(is_secret_name(step) for step in steps)
        given = HIDDEN if hidden else _shown_value(first["input"])
        raise InvalidInput(
            _(
                "task {task!r}: argument {name!r} must be {expected}, "
                "got {given} at {where}: {why}",
                task=task.name,
                name=name,
                expected=parameter.expected,
                given=given,
                where=where,
                why=_plain(first["msg"]),
            )
            if where
            else _(
                "task {task!r}: argument {name!r} must be {expected}, got {given}: {why}",
                task=task.name,
                name=name,
                expected=parameter.expected,
                given=given,
                why=_plain(first["msg"]),
            ),
            field=name,
            code="wrong_type",
        ) from error
    except (PydanticUserError, TypeError, ValueError, RecursionError) as error:
        why = _first_line(error)
        raise InvalidInput(
            _(
                "task {task!r}: argument {name!r} must be {expected}: {why}",
                task=task.name,
                name=name,
                expected=parameter.expected,
                why=why,
            ),
            field=name,
            code="wrong_type",
        ) from error


def _unknown(task: Task, name: str, parameters: Parameters) -> InvalidInput:
    near = difflib.get_close_matches(name, parameters.named, n=1)
    if near:
        hint = _("did you mean {name!r}?", name=near[0])
    elif parameters.named:
        hint = _("it takes {names}", names=", ".join(parameters.named))
    else:
        hint = _("it takes no arguments")
    return InvalidInput(
        _("task {task!r} has no argument {name!r}; {hint}", task=task.name, name=name, hint=hint),
        field=name,
        code="unknown",
        hint=hint,
    )


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _shown_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    short = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"{short} ({type(value).__name__})"


def _shown_type(annotation: object) -> str:
    return inspect.formatannotation(annotation)


def _named(function: Function) -> str:
    return f"{getattr(function, '__qualname__', type(function).__qualname__)}()"
