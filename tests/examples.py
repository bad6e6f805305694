"""How many examples Hypothesis generates for a property.

`make test` generates a third of those of `make test-all`. Both generate the same examples on every
machine; CHIMES_HYPOTHESIS=search generates new ones and takes longer.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

#: Of a property that does not say how many.
_DEFAULT = 100
_FEWER = 3

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=_DEFAULT,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "short", parent=settings.get_profile("repeatable"), max_examples=_DEFAULT // _FEWER
)
settings.register_profile(
    "search", parent=settings.get_profile("default"), max_examples=_DEFAULT, deadline=None
)


def choose(*, everything: bool) -> None:
    """Call it before test files are imported."""
    otherwise = "repeatable" if everything else "short"
    settings.load_profile(os.environ.get("CHIMES_HYPOTHESIS", otherwise))


def examples(number: int) -> settings:
    """Decorates a property that needs another number of examples."""
    return settings(max_examples=max(10, number * settings().max_examples // _DEFAULT))
