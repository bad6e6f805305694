"""Fast construction and copying of frozen dataclasses.

`replace` works like `dataclasses.replace`, `fast_constructor` like `__init__`. The `__init__` of a
frozen dataclass calls `object.__setattr__` per field, which dominates the cost of firing. These
functions build a mutable shadow object with the same slots and swap its class: several times
faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, make_dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

T = TypeVar("T")

if TYPE_CHECKING:
    # mypy checks the names and types of the changes only under this very name.
    from dataclasses import replace as replace
else:

    def replace(value, /, **changes):
        kind = value.__class__
        copied = _copier(kind)(value)
        try:
            for name, new in changes.items():
                setattr(copied, name, new)
        except AttributeError:
            raise TypeError(f"{kind.__name__} has no field {name!r}") from None
        copied.__class__ = kind
        return copied


def fast_constructor(kind: Callable[..., T]) -> Callable[..., T]:
    """A constructor that takes all fields positionally, in order, and checks no types."""
    mutable = _mutable_class(kind)

    def make(*values: object) -> T:
        value = mutable(*values)
        value.__class__ = kind
        return cast(T, value)

    return make


@cache
def _copier(kind: Any) -> Callable[[Any], Any]:
    """Returns a function that makes a mutable copy."""
    names = _names(kind)
    mutable = _mutable_class(kind)
    values_of = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    return lambda value: mutable(*values_of(value))


@cache
def _mutable_class(kind: Any) -> type[Any]:
    return make_dataclass(kind.__name__, _names(kind), slots=True)


def _names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]
