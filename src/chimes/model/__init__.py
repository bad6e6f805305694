"""Frozen values and pure rules. Nothing here does I/O or reads a clock.

Values are frozen msgspec Structs: they compare by value, cost less to build and to copy than frozen
dataclasses, and have a typed JSON codec. `replace` copies one with some fields changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # mypy checks names and types of the changes, also of Structs, only under this very name.
    from dataclasses import replace as replace
else:
    import dataclasses

    from msgspec.structs import replace as replace_struct

    def replace(value, /, **changes):
        """Also for dataclasses, such as triggers; `copy.replace` of Python 3.13."""
        # Not isinstance: the metaclass of Structs is abstract, which makes it a slow question.
        if hasattr(value, "__struct_fields__"):
            return replace_struct(value, **changes)
        return dataclasses.replace(value, **changes)
