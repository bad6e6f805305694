"""Making values, and changed copies of them, quickly.

`replace` is `dataclasses.replace` for our frozen values with slots, and `maker` makes a quick
`__init__` for them. A frozen value is written field by field past its own `__setattr__`, which
costs more than all else about a schedule that fires, and it is copied half a dozen times on its way
to a claimed run. So the fields are set on an open twin, a class with the same slots and nothing
else, as for any ordinary object, and then it becomes what it is to be. The functions that do so are
written out field by field, as `dataclasses` does it: several times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

T = TypeVar("T")

if TYPE_CHECKING:
    # mypy checks the names and types of the changes only under this very name.
    from dataclasses import replace as replace
else:

    def replace(value, /, **changes):
        # One copier for each set of names: there are as many as places that change something.
        which = (value.__class__, *changes)
        copier = _COPIERS.get(which)
        if copier is None:
            copier = _COPIERS[which] = _copier(*which)
        return copier(value, **changes)


_COPIERS: dict[tuple[object, ...], Callable[..., Any]] = {}


def maker(kind: Callable[..., T]) -> Callable[..., T]:
    """Makes a value of those of all its fields, in their order. For values whose types others have
    seen to: the schema, or the code around it."""
    names = _names(kind)
    sets = [f"_new.{name} = {name}" for name in names]
    return _written(kind, f"def make({', '.join(names)})", sets)


def _copier(kind: type[Any], *changed: str) -> Callable[..., Any]:
    names = _names(kind)
    unknown = [name for name in changed if name not in names]
    if unknown:
        raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}")
    sets = [
        f"_new.{name} = {name}" if name in changed else f"_new.{name} = _value.{name}"
        for name in names
    ]
    return _written(kind, f"def make({', '.join(('_value', '/', *changed))})", sets)


def _written(kind: Callable[..., T], head: str, sets: Sequence[str]) -> Callable[..., T]:
    # No field of ours begins like that.
    lines = (f"{head}:", "_new = _bare(_twin)", *sets, "_new.__class__ = _kind", "return _new")
    given: dict[str, Any] = {"_bare": object.__new__, "_twin": _twin(kind), "_kind": kind}
    exec("\n    ".join(lines), given)  # noqa: S102 - of the names of our own fields
    return cast(Callable[..., T], given["make"])


@cache
def _twin(kind: Callable[..., Any]) -> type[Any]:
    return make_dataclass(cast(type[Any], kind).__name__, _names(kind), slots=True)


def _names(kind: Callable[..., Any]) -> list[str]:
    return [field.name for field in fields(cast(type[Any], kind))]
