"""Converts task arguments between stored JSON and typed Python values.

Validation is strict: the text "1" is not a number. Types without a JSON form (datetimes, UUIDs,
decimals, enums, dataclasses, pydantic models) are serialized by pydantic. Nothing is pickled.

pydantic takes 8 MB of memory. It is imported when a task is declared whose parameters have other
types than `bool`, `int`, `float` and `str`, else when a value has to be validated or serialized.
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

from msgspec import Struct

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.redaction import HIDDEN, is_secret_name
from chimes.targets.process.sanitize import sanitize_json
from chimes.targets.python.context import Context
from chimes.targets.python.outcomes import to_json_value

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from chimes.targets.python.registry import Function, Task


CONTEXT_NAME = "context"
MAX_VALUE_LENGTH = 100
_SCALARS: tuple[type[object], ...] = (bool, int, float, str)


class Adapter:
    """Builds the pydantic adapter of a type at first use."""

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation
        self._built: TypeAdapter[object] | None = None

    def built(self) -> TypeAdapter[object]:
        if self._built is None:
            from pydantic import TypeAdapter

            self._built = TypeAdapter(typing.cast("type[object]", self.annotation))
        return self._built


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    #: None: not annotated, or annotated with Any or object.
    adapter: Adapter | None
    #: The annotation as source text.
    expected: str
    required: bool
    by_position: bool
    #: The annotation, if it is `bool`, `int`, `float` or `str`.
    scalar: type[object] | None = None
    #: Values of exactly this type skip validation; None: every value is validated.
    exact_type: type[object] | None = None


@dataclass(frozen=True, slots=True)
class Parameters:
    named: Mapping[str, Parameter]
    #: Name of the parameter that receives the context.
    context: str | None
    context_by_position: bool
    #: The type of `**kwargs` values; None if there is no such parameter.
    var_keyword: Parameter | None
    #: Whether all parameters are passed by name and none is the context.
    all_by_name: bool = False


class BoundArguments(Struct, frozen=True):
    """Positional and keyword arguments of one call."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]


def check(task: Task, args: Mapping[str, object]) -> None:
    """Raises `InvalidInput` for JSON arguments that the task cannot be called with."""
    _load_arguments(task, parameters_of(task.function), args)


def dump(task: Task, args: Mapping[str, object]) -> dict[str, object]:
    """Serializes and checks arguments for the store."""
    dumped: dict[str, object] = {}
    for name, value in args.items():
        try:
            plain = to_json_value(value)
            # A database would reject NaN and infinity later.
            text = json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                _(
                    "task {task!r}: argument {name!r} is not JSON serializable: {error}",
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
                    "task {task!r}: argument {name!r} contains a NUL character or a lone "
                    "surrogate, which cannot be stored",
                    task=task.name,
                    name=name,
                ),
                field=name,
            )
        dumped[name] = loaded
    check(task, dumped)
    return dumped


def load_result(function: Function, value: object) -> object:
    """The stored result of a function as a value of its return type. A value that does not fit the
    type, or whose type has no JSON form, is returned as it is stored."""
    known = isinstance(function, Hashable)
    adapter = _cached_result_adapter(function) if known else _result_adapter(function)
    if adapter is None:
        return value
    from pydantic import ValidationError

    try:
        return adapter.built().validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return value


@cache
def _cached_result_adapter(function: Function) -> Adapter | None:
    return _result_adapter(function)


def _result_adapter(function: Function) -> Adapter | None:
    """None: the stored value is the result."""
    returned = inspect.signature(function).return_annotation
    parameter = inspect.Parameter("return_", inspect.Parameter.KEYWORD_ONLY, annotation=returned)
    try:
        annotation = _resolve_annotation(function, parameter)
        if annotation in (inspect.Parameter.empty, typing.Any, object, None, type(None), *_SCALARS):
            return None
        adapter = Adapter(annotation)
        _check_adapter(adapter, function, parameter)
    except InvalidInput:
        return None
    return adapter


def bind(task: Task, args: Mapping[str, object], context: Context) -> BoundArguments:
    """Converts stored arguments to those of the call; raises `InvalidInput` as `check` does."""
    parameters = parameters_of(task.function)
    values = _load_arguments(task, parameters, args)
    if parameters.all_by_name:
        return BoundArguments((), values)
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
    return BoundArguments(tuple(positional), values)


def parameters_of(function: Function) -> Parameters:
    """Raises `InvalidInput` for a signature that named arguments cannot satisfy."""
    # Called for every run: plain functions are tested first because nearly all are.
    known = isinstance(function, (types.FunctionType, Hashable))
    return _cached_parameters(function) if known else _read_signature(function)


@cache
def _cached_parameters(function: Function) -> Parameters:
    return _read_signature(function)


def _read_signature(function: Function) -> Parameters:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            _("the signature of {function} cannot be read", function=_function_name(function))
        ) from error
    named: dict[str, Parameter] = {}
    context: inspect.Parameter | None = None
    var_keyword: Parameter | None = None
    for each in signature.parameters.values():
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        if each.name == CONTEXT_NAME and each.kind is not inspect.Parameter.VAR_KEYWORD:
            context = each
            continue
        annotation = _resolve_annotation(function, each)
        if _is_context(annotation):
            context = each
        elif each.kind is inspect.Parameter.VAR_KEYWORD:
            var_keyword = _parameter(function, each, annotation)
        else:
            named[each.name] = _parameter(function, each, annotation)
    only = inspect.Parameter.POSITIONAL_ONLY
    by_position = context is not None and context.kind is only
    if by_position and next(iter(signature.parameters.values())) is not context:
        raise InvalidInput(
            _(
                "the positional context of {function} must come first",
                function=_function_name(function),
            )
        )
    return Parameters(
        named,
        None if context is None else context.name,
        by_position,
        var_keyword,
        context is None and not any(each.by_position for each in named.values()),
    )


def _parameter(function: Function, parameter: inspect.Parameter, annotation: object) -> Parameter:
    scalar = next((each for each in _SCALARS if annotation is each), None)
    adapter: Adapter | None = None
    if annotation not in (inspect.Parameter.empty, typing.Any, object):
        adapter = Adapter(annotation)
        if scalar is None:
            _check_adapter(adapter, function, parameter)
    return Parameter(
        name=parameter.name,
        adapter=adapter,
        expected=_format_type(annotation) if adapter is not None else _("any value"),
        required=parameter.default is inspect.Parameter.empty,
        by_position=parameter.kind is inspect.Parameter.POSITIONAL_ONLY,
        scalar=scalar,
        exact_type=scalar if scalar in (bool, int) else None,
    )


def _check_adapter(adapter: Adapter, function: Function, parameter: inspect.Parameter) -> None:
    from pydantic.errors import PydanticUserError

    try:
        adapter.built()
    except PydanticUserError as error:
        raise InvalidInput(
            _(
                "parameter {parameter!r} of {function}: values of "
                "{annotation} cannot come from JSON ({error})",
                parameter=parameter.name,
                function=_function_name(function),
                annotation=_format_type(adapter.annotation),
                error=_first_line(error),
            ),
            field=parameter.name,
        ) from error


def _resolve_annotation(function: Function, parameter: inspect.Parameter) -> object:
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
            localns=_closure_names(inner),
            include_extras=True,
        )
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise InvalidInput(
            _(
                "parameter {parameter!r} of {function}: its type {annotation!r} cannot "
                "be found where the function is defined ({error})",
                parameter=parameter.name,
                function=_function_name(function),
                annotation=annotation,
                error=str(error),
            ),
            field=parameter.name,
        ) from error
    return hints[parameter.name]


def _closure_names(function: Function) -> dict[str, object]:
    """Variables of enclosing functions that the function uses."""
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


def _load_arguments(
    task: Task, parameters: Parameters, args: Mapping[str, object]
) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in args.items():
        parameter = parameters.named.get(name, parameters.var_keyword)
        if parameter is None or name == parameters.context:
            raise _unknown_argument(task, name, parameters)
        plain = parameter.adapter is None or type(value) is parameter.exact_type
        values[name] = value if plain else _load_value(task, name, parameter, value)
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


def _load_value(task: Task, name: str, parameter: Parameter, value: object) -> object:
    from pydantic import ValidationError
    from pydantic.errors import PydanticUserError

    assert parameter.adapter is not None
    try:
        return parameter.adapter.built().validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = "".join(f"[{step!r}]" for step in first["loc"])
        # A nested field name may mark the value as secret as well.
        steps = [name, *(str(step) for step in first["loc"])]
        hidden = any(is_secret_name(step) for step in steps)
        given = HIDDEN if hidden else _format_value(first["input"])
        raise InvalidInput(
            _(
                "task {task!r}: argument {name!r} must be {expected}, "
                "got {given} at {where}: {why}",
                task=task.name,
                name=name,
                expected=parameter.expected,
                given=given,
                where=where,
                why=_lower_first(first["msg"]),
            )
            if where
            else _(
                "task {task!r}: argument {name!r} must be {expected}, got {given}: {why}",
                task=task.name,
                name=name,
                expected=parameter.expected,
                given=given,
                why=_lower_first(first["msg"]),
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


def _unknown_argument(task: Task, name: str, parameters: Parameters) -> InvalidInput:
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


def _lower_first(message: str) -> str:
    return message[:1].lower() + message[1:]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _format_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    short = text if len(text) <= MAX_VALUE_LENGTH else text[:MAX_VALUE_LENGTH] + "…"
    return f"{short} ({type(value).__name__})"


def _format_type(annotation: object) -> str:
    return inspect.formatannotation(annotation)


def _function_name(function: Function) -> str:
    return f"{getattr(function, '__qualname__', type(function).__qualname__)}()"
