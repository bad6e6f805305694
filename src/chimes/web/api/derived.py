"""Models of the API that have the fields of a Struct, so that a field is declared once (ADR 41)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

from msgspec import Struct
from pydantic import BaseModel

from chimes.model.fields import Field, fields_of

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _DerivedMeta(ModelMetaclass):
    """Adds the fields of `structs`, in their order, unless the class declares them itself."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> type:
        own: dict[str, Any] = namespace.get("__annotations__", {})
        derive = namespace.get("derive") or getattr(bases[0], "derive", None)
        made: dict[str, Any] = {}
        for struct in namespace.get("structs", ()):
            for field in fields_of(struct):
                place, dot, _inner = field.json.partition(".")
                if dot:
                    # Part of an object, which the class declares.
                    made[place] = own[place]
                elif field.name in own:
                    made[field.name] = own[field.name]
                elif field.name not in made and field.name not in namespace.get("without", ()):
                    assert derive is not None
                    made[field.name], namespace[field.name] = derive(struct, field)
        namespace["__annotations__"] = made | {n: each for n, each in own.items() if n not in made}
        return super().__new__(mcs, name, bases, namespace, **options)


class DerivedModel(BaseModel, metaclass=_DerivedMeta):
    #: The Structs whose fields the model has, and those of their fields that it has not.
    structs: ClassVar[tuple[type[Struct], ...]] = ()
    without: ClassVar[tuple[str, ...]] = ()
    #: The models of Structs that are parts of others; requests and responses have their own.
    parts: ClassVar[dict[Any, Any]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        if len(cls.__dict__.get("structs", ())) == 1:
            cls.parts[cls.structs[0]] = cls

    @staticmethod
    def derive(struct: type[Struct], field: Field) -> tuple[Any, Any]:
        """The annotation and the pydantic field of a field of a Struct."""
        raise NotImplementedError


def type_in_json(field: Field, leaf: Callable[[Any], Any]) -> Any:
    """The type of a field in JSON: tuples become lists; `leaf` maps the types of single values."""
    item = field.item
    if item is None:
        return leaf(field.type)
    inner = leaf(item)
    if get_origin(field.type) is tuple:
        return list[inner]  # type: ignore[valid-type]
    return dict[str, inner]  # type: ignore[valid-type]


def leaf_type(kind: Any, known: Mapping[Any, Any]) -> Any:
    """The type of a single value, or itself; ids are text."""
    if get_origin(kind) is Mapping:
        return dict[str, object]
    if not isinstance(kind, type):
        return getattr(kind, "__supertype__", kind)
    return known.get(kind, kind)
