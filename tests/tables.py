"""Runs a test over a table of data as one test case and reports every row that fails.

`each_row` is written like `pytest.mark.parametrize`, but it loops inside the test function. Use it
for tables of cheap checks without side effects. Fixtures are set up once and shared by all rows,
so keep `parametrize` where a row needs a fixture of its own, a mark or a skip.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

_LONGEST_NAME = 120


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[object] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Calls the decorated test once for each row and raises one error that lists all failures.

    `names` are the parameters that a row fills: a string for one value per row, a sequence for
    rows with one value per name. `ids` names the rows in the report: a function of a value, or one
    name per row. Without it the values themselves are shown.
    """
    single = isinstance(names, str)
    parameters = (names,) if single else tuple(names)
    values = [(row,) if single else tuple(row) for row in rows]
    assert values, "a table without rows checks nothing"
    labels = _labels(values, ids)
    table = [
        (label, dict(zip(parameters, row, strict=True)))
        for label, row in zip(labels, values, strict=True)
    ]

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        run: Callable[..., Any]
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run(*args: Any, **fixtures: Any) -> None:
                failures = _Failures(len(table))
                for label, row in table:
                    with failures.collect(label):
                        await test(*args, **fixtures, **row)
                failures.report()

        else:

            @functools.wraps(test)
            def run(*args: Any, **fixtures: Any) -> None:
                failures = _Failures(len(table))
                for label, row in table:
                    with failures.collect(label):
                        test(*args, **fixtures, **row)
                failures.report()

        # pytest reads the fixtures of a test from its signature.
        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name not in parameters]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


class _Failures:
    """The failures of one table."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.texts: list[str] = []
        self.first: BaseException | None = None

    @contextmanager
    def collect(self, label: str) -> Any:
        try:
            yield
        except pytest.skip.Exception as skipped:
            raise TypeError("a row cannot be skipped: use pytest.mark.parametrize") from skipped
        except (Exception, pytest.fail.Exception) as failure:
            kind = type(failure).__name__
            self.texts.append(f"{label}\n    {kind}: {_indented(str(failure))}")
            self.first = self.first or failure
            # pytest-timeout fires once per test: later rows would run without a limit.
            if str(failure).startswith("Timeout"):
                self.report()

    def report(self) -> None:
        if self.texts:
            count = f"{len(self.texts)} of {self.rows} rows failed"
            raise AssertionError("\n\n".join([count, *self.texts])) from self.first


def _labels(
    values: list[tuple[Any, ...]], ids: Callable[[Any], object] | Iterable[object] | None
) -> list[str]:
    if ids is None:
        ids = repr
    if callable(ids):
        name = ids
        shown = [", ".join(str(name(value)) for value in row) for row in values]
    else:
        shown = [str(each) for each in ids]
    return [f"row {number}: {text[:_LONGEST_NAME]}" for number, text in enumerate(shown)]


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
