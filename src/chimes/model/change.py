"""Making values, and changed copies of them, quickly.

`replace` is `dataclasses.replace` for our frozen values with slots, and `made` their `__init__`. A
frozen value is written field by field past its own `__setattr__`, which costs more than all else
about a schedule that fires, and it is copied half a dozen times on its way to a claimed run. So
the fields are set on an open twin, a class with the same slots and nothing else, as for any
ordinary object, and then it becomes what it is to be: several times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
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
        copied = _makers(kind)[1](value)
        try:
            for name, new in changes.items():
                setattr(copied, name, new)
        except AttributeError:
            raise TypeError(f"{kind.__name__} has no field {name!r}") from None
        copied.__class__ = kind
        return copied


def made(kind: type[T], values: Iterable[object]) -> T:
    """A value from those of all its fields, in their order. For decoding rows, whose types the
    schema has seen to."""
    new: T = _makers(cast(Hashable, kind))[0](values)
    return new


@cache
def _makers(kind: type[Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What makes a value of its fields, and what makes a copy that is still open."""
    names = [field.name for field in fields(kind)]
    # Its `__init__` sets one field after the other, and nothing stands between.
    twin = make_dataclass(kind.__name__, names, slots=True)
    all_of = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)

    def made(values: Iterable[object]) -> Any:
        it = twin(*values)
        it.__class__ = kind
        return it

    def copied(value: Any) -> Any:
        return twin(*all_of(value))

    return made, copied
