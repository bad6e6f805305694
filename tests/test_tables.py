"""The table loop of tests/tables.py reports every failing row."""

from __future__ import annotations

import inspect

import pytest

from tests.tables import each_row


def test_every_failing_row_is_reported() -> None:
    @each_row(("given", "expected"), [(1, 1), (2, 3), (3, 3), (4, 5)])
    def check(given: int, expected: int) -> None:
        assert given == expected

    with pytest.raises(AssertionError) as failed:
        check()
    text = str(failed.value)
    assert text.startswith("2 of 4 rows failed")
    assert "row 1: 2, 3\n    AssertionError: assert 2 == 3" in text
    assert "row 3: 4, 5\n    AssertionError: assert 4 == 5" in text
    assert "row 0" not in text
    assert "row 2" not in text


def test_exceptions_other_than_assertion_errors_are_failures() -> None:
    @each_row("number", [0, 1, 2], ids=["zero", "one", "two"])
    def check(number: int) -> None:
        if number == 0:
            raise KeyError(number)
        if number == 1:
            with pytest.raises(ValueError):
                pass

    with pytest.raises(AssertionError) as failed:
        check()
    assert "row 0: zero\n    KeyError: 0" in str(failed.value)
    assert "row 1: one\n    Failed: DID NOT RAISE" in str(failed.value)
    assert isinstance(failed.value.__cause__, KeyError)


async def test_coroutines_are_awaited() -> None:
    seen = []

    @each_row("number", [1, 2])
    async def check(number: int) -> None:
        seen.append(number)
        assert number == 1

    with pytest.raises(AssertionError, match="1 of 2 rows failed"):
        await check()
    assert seen == [1, 2]


def test_rows_after_a_timeout_are_not_run() -> None:
    @each_row("number", [1, 2])
    def check(number: int) -> None:
        pytest.fail(f"Timeout (>120.0s) in row {number}")

    with pytest.raises(AssertionError, match="1 of 2 rows failed"):
        check()


def test_skip_inside_a_row_is_an_error() -> None:
    @each_row("number", [1, 2])
    def check(number: int) -> None:
        pytest.skip(f"row {number}")

    with pytest.raises(TypeError, match="cannot be skipped"):
        check()


def test_empty_table_is_an_error() -> None:
    with pytest.raises(AssertionError, match="without rows"):
        each_row("number", [])


@each_row("suffix", ["a", "b"])
def test_fixtures_are_passed_to_the_test(request: pytest.FixtureRequest, suffix: str) -> None:
    assert request.function.__name__ == "test_fixtures_are_passed_to_the_test"
    assert list(inspect.signature(request.function).parameters) == ["request"]
    assert suffix in ("a", "b")
