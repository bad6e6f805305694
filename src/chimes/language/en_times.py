"""English: the times of a day."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.language.masks import Numbers, steps, stretches, told
from chimes.language.times import At, Listed, Rate, Repeated, Times, Values


def time_phrase(times: Times) -> str:
    if isinstance(times, At):
        return f"at {joined(times.clocks)}"
    return _repeated(times) if isinstance(times, Repeated) else _listed(times)


def _repeated(times: Repeated) -> str:
    words = _rate(times.rate)
    if times.at is not None:
        words += f" at {_values(times.at)}"
    if times.since is not None:
        words += f" from {times.since}"
    if times.hours is not None:
        words += f" in {_values(times.hours)}"
    if times.stretches:
        words += f" {joined([f'from {first} to {last}' for first, last in times.stretches])}"
    return words


def _listed(times: Listed) -> str:
    hours = "every hour" if times.hours is None else _values(times.hours)
    if isinstance(times.which, Rate):
        words = f"{_rate(times.which)} in"
    else:
        words = f"at {_values(times.which)} of"
    if times.minutes is not None:
        words += f" {_values(times.minutes)} of"
    return f"{words} {hours}"


def _rate(rate: Rate) -> str:
    if rate.step == 1:
        return f"every {rate.unit}"
    start = f" from {rate.unit} {rate.first}" if rate.first else ""
    return f"every {rate.step} {rate.unit}s{start}"


def _values(values: Values) -> str:
    unit, values_ = values.unit, values.numbers
    if len(values_) == 1:
        return f"{unit} {values_[0]}"
    if found := steps(values_):
        return f"every {ordinal(found.step)} {unit} from {found.first} to {found.last}"
    return f"{unit}s {joined(ranges(values_))}"


def ranges(values: Numbers) -> list[str]:
    """Each value, stretches of three or more as `a to b`."""
    return told(stretches(values), str, " to ")


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def joined(words: Sequence[str], link: str = "and") -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"
