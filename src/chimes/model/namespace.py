"""The default namespace, and its names in data of earlier versions (ADR 36)."""

from __future__ import annotations

from typing import Final

DEFAULT_NAMESPACE: Final = "default"
#: Namespaces of the native API and of the SDK in earlier versions.
_FORMER: Final = ("native", "catbird")
_DEFAULT_AND_FORMER: Final = (DEFAULT_NAMESPACE, *_FORMER)


def canonical_namespace(name: str) -> str:
    """`default` for its former names, else the name itself."""
    return DEFAULT_NAMESPACE if name in _FORMER else name


def stored_namespaces(name: str) -> tuple[str, ...]:
    """All names under which rows of a namespace may be stored."""
    return _DEFAULT_AND_FORMER if name in _DEFAULT_AND_FORMER else (name,)


def id_namespace(name: str) -> str:
    """The name from which ids are derived. The default namespace keeps the one of the SDK, so that
    nodes of different versions derive the same ids."""
    return "catbird" if name == DEFAULT_NAMESPACE else name
