"""Triggers: when a schedule fires (cron, interval, once), or on which event."""

from chimes.triggers.base import (
    NEVER_FIRES,
    Absence,
    Fire,
    ensure_fires,
    never_fires,
    trigger_from_dict,
)
from chimes.triggers.business_day import BusinessDay
from chimes.triggers.calendars import Calendar, NamedCalendar, Window
from chimes.triggers.cron import Cron, Dialect, Dst
from chimes.triggers.event import EventTrigger, OnFile, OnRunEnd, OnSql, Webhook
from chimes.triggers.every import Every
from chimes.triggers.once import Once
from chimes.triggers.rrule import RRule
from chimes.triggers.searches import Note
from chimes.triggers.sun import Sun
from chimes.triggers.union import AnyOf
from chimes.triggers.values import (
    format_duration_go,
    format_duration_iso,
    format_moment,
    parse_duration,
    parse_moment,
)
from chimes.triggers.zones import Zone, parse_zone, zone_names

TimeTrigger = Cron | Every | Once | AnyOf | RRule | BusinessDay | Sun
Trigger = TimeTrigger | Webhook | OnRunEnd | OnFile | OnSql

__all__ = [
    "NEVER_FIRES",
    "Absence",
    "AnyOf",
    "BusinessDay",
    "Calendar",
    "Cron",
    "Dialect",
    "Dst",
    "EventTrigger",
    "Every",
    "Fire",
    "NamedCalendar",
    "Note",
    "OnFile",
    "OnRunEnd",
    "OnSql",
    "Once",
    "RRule",
    "Sun",
    "TimeTrigger",
    "Trigger",
    "Webhook",
    "Window",
    "Zone",
    "ensure_fires",
    "format_duration_go",
    "format_duration_iso",
    "format_moment",
    "never_fires",
    "parse_duration",
    "parse_moment",
    "parse_zone",
    "trigger_from_dict",
    "zone_names",
]
