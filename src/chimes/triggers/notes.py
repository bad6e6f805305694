"""What a preview can say about a fire; stable codes, worded elsewhere.

- moved_by_gap: its time was skipped by a clock change; it fires at the change;
- repeated_hour_first, repeated_hour_second: its time happens twice, and it fires both times;
- repeated_hour_once: its time happens twice, and it fires the first time only;
- moved_by_calendar: its day was excluded; it fires on another.
"""

from __future__ import annotations

from typing import Literal

Note = Literal[
    "moved_by_gap",
    "repeated_hour_first",
    "repeated_hour_second",
    "repeated_hour_once",
    "moved_by_calendar",
]
