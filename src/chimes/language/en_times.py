"""English: the times of a day. A phrase that begins with "at" lists them, others give a rate."""

from __future__ import annotations

from chimes.language.masks import Numbers, Reading, cycle, spans, steps

_LISTED = 6


def time_phrase(reading: Reading) -> str:
    seconds, minutes, hours = reading.seconds, reading.minutes, reading.hours
    if reading.fires_a_day <= _LISTED:
        return f"at {joined(_clocks(hours, minutes, seconds))}"
    if seconds != (0,):
        return _with_seconds(seconds, minutes, hours)
    if len(minutes) == 1:
        return _hourly(minutes[0], hours)
    rate = _rate(minutes, 60, "minute")
    if rate is None:
        return f"at {_numbers(minutes, 'minute')} of {_hours(hours)}"
    if len(hours) == 24:
        return rate
    return _in_hours(rate, hours, f":{minutes[0]:02d}", f":{minutes[-1]:02d}")


def _in_hours(rate: str, hours: Numbers, first: str, last: str) -> str:
    stretches = _stretches(hours, first, last)
    if stretches is None:
        return f"{rate} in {_hours(hours)}"
    # Where the stretch shows the first time, the rate need not.
    return f"{rate.partition(' from ')[0]} {stretches}"


def _hourly(minute: int, hours: Numbers) -> str:
    if len(hours) == 24:
        return "every hour" if minute == 0 else f"every hour at minute {minute}"
    if found := cycle(hours, 24):
        return f"every {found.step} hours from {found.first:02d}:{minute:02d}"
    stretches = _stretches(hours, f":{minute:02d}", f":{minute:02d}")
    if stretches and all(last - first >= 2 for first, last in spans(hours)):
        return f"every hour {stretches}"
    return f"at {joined(_clocks(hours, (minute,), (0,)))}"


def _with_seconds(seconds: Numbers, minutes: Numbers, hours: Numbers) -> str:
    rate = _rate(seconds, 60, "second")
    if len(minutes) < 60:
        which = rate or f"at {_numbers(seconds, 'second')}"
        link = "in" if rate else "of"
        return f"{which} {link} {_numbers(minutes, 'minute')} of {_hours(hours)}"
    if rate is None:
        rate = f"every minute at {_numbers(seconds, 'second')}"
        first, last = ":00", ":59"
    else:
        first, last = f":00:{seconds[0]:02d}", f":59:{seconds[-1]:02d}"
    if len(hours) == 24:
        return rate
    return _in_hours(rate, hours, first, last)


def _rate(values: Numbers, size: int, unit: str) -> str | None:
    if len(values) == size:
        return f"every {unit}"
    found = cycle(values, size)
    if found is None:
        return None
    start = f" from {unit} {found.first}" if found.first else ""
    return f"every {found.step} {unit}s{start}"


def _stretches(hours: Numbers, first: str, last: str) -> str | None:
    """`from 09:00 to 17:45 and from …`, unless there are many of them."""
    found = spans(hours)
    if len(found) > 3:
        return None
    return joined([f"from {start:02d}{first} to {end:02d}{last}" for start, end in found])


def _clocks(hours: Numbers, minutes: Numbers, seconds: Numbers) -> list[str]:
    end = "" if seconds == (0,) else ":{:02d}"
    return [
        f"{hour:02d}:{minute:02d}{end.format(second)}"
        for hour in hours
        for minute in minutes
        for second in seconds
    ]


def _hours(hours: Numbers) -> str:
    return "every hour" if len(hours) == 24 else _numbers(hours, "hour")


def _numbers(values: Numbers, unit: str) -> str:
    if len(values) == 1:
        return f"{unit} {values[0]}"
    if found := steps(values):
        return f"every {ordinal(found.step)} {unit} from {found.first} to {found.last}"
    return f"{unit}s {joined(ranges(values))}"


def ranges(values: Numbers) -> list[str]:
    """Each value, stretches of three or more as `a to b`."""
    found: list[str] = []
    for first, last in spans(values):
        if last - first >= 2:
            found.append(f"{first} to {last}")
        else:
            found += [str(value) for value in range(first, last + 1)]
    return found


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def joined(words: list[str], link: str = "and") -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"
