"""Making values, and changed copies of them, quickly.

`replace` is `dataclasses.replace` for our frozen values with slots, and `fast_constructor` makes a quick
`__init__` for them. A frozen value is written field by field past its own `__setattr__`, which
costs more than all else about a schedule that fires, and it is copied half a dozen times on its way
to a claimed run. So the fields are set on an open twin, a class with the same slots and nothing
else, as for any ordinary object, and then it becomes what it is to be: several times as fast.
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
    """Makes a value of those of all its fields, in their order. For values whose types others have
    seen to: the schema, or the code around it."""
    twin = _twin(kind)

    def make(*values: object) -> T:
        # Its `__init__` sets one field after the other, and nothing stands between.
        it = twin(*values)
        it.__class__ = kind
        return cast(T, it)

    return make


@cache
def _copier(kind: Any) -> Callable[[Any], Any]:
    """Makes a copy that is still open."""
    names = _names(kind)
    twin = _twin(kind)
    all_of = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    return lambda value: twin(*all_of(value))


@cache
def _twin(kind: Any) -> type[Any]:
    return make_dataclass(kind.__name__, _names(kind), slots=True)


def _names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]
