"""What the Catbird namespace stands for."""

from __future__ import annotations

#: Where a schedule's name is its identity (C22).
NAMESPACE = "catbird"
#: Rows that are read from the store at a time.
PAGE = 500
