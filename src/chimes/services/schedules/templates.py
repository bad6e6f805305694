"""Schedule templates: common times, and complete presets with target and recipients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from chimes.i18n import ENGLISH, LANGUAGES, _, in_language
from chimes.language import describe
from chimes.triggers import Cron, format_moment, trigger_from_dict

#: A JSON object of the API.
Plain = Mapping[str, object]

_ALWAYS: tuple[Plain, ...] = ({"channel": "inbox"},)
_WHEN_BROKEN: tuple[Plain, ...] = ({"channel": "inbox", "on": ["failure", "recovery"]},)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """A complete schedule that the API accepts as it is."""

    #: Stable key of its texts.
    id: str
    #: Without a time zone.
    trigger: Plain
    #: Without the prompt, which is one of the texts.
    target: Plain
    delivery: tuple[Plain, ...]


def _cron(expression: str) -> Plain:
    return {"kind": "cron", "expression": expression}


def _every(duration: str) -> Plain:
    return {"kind": "every", "every": duration}


def _agent(id: str, trigger: Plain) -> Preset:
    return Preset(id=id, trigger=trigger, target={"kind": "agent"}, delivery=_ALWAYS)


def _call(id: str, trigger: Plain, path: str, method: str = "POST") -> Preset:
    """The user replaces the example URL."""
    target = {"kind": "http", "method": method, "url": f"https://example.com/{path}"}
    return Preset(id=id, trigger=trigger, target=target, delivery=_WHEN_BROKEN)


PRESETS = (
    _agent("daily_summary", _cron("0 18 * * *")),
    _agent("news_digest", _cron("0 7 * * *")),
    _agent("morning_brief", _cron("0 8 * * 1-5")),
    _agent("weekly_report", _cron("0 9 * * 1")),
    _agent("reminder", _cron("30 16 * * 5")),
    _call("month_end", _cron("0 18 L * *"), "month-end"),
    _call("health_ping", _every("PT5M"), "health", "GET"),
    _call("heartbeat", _every("PT1M"), "heartbeat", "GET"),
    _call("nightly_backup", _cron("0 2 * * *"), "backup"),
    _call("data_sync", _every("PT30M"), "sync"),
    _call("certificate_check", _cron("0 6 * * *"), "", "GET"),
    _call("cleanup", _cron("0 3 * * 0"), "cleanup"),
)


class Text(NamedTuple):
    """Texts of a template. `example` is its trigger in words; followed by the prompt it describes
    the whole schedule."""

    name: str
    description: str
    example: str
    prompt: str = ""

    def translated(self, language: str) -> Text:
        return Text(*(in_language(each, language) for each in self))


TEXTS: Mapping[str, Text] = {
    "hourly": Text(_("Hourly"), _("At the start of every hour"), _("every hour")),
    "daily_midnight": Text(
        _("Daily Midnight"), _("Every day at midnight"), _("every day at 00:00")
    ),
    "daily_9am": Text(_("Daily 9 AM"), _("Every day at 9 AM"), _("every day at 09:00")),
    "weekly_monday_8am": Text(
        _("Weekly Monday 8 AM"), _("Every Monday at 8 AM"), _("every Monday at 08:00")
    ),
    "daily_summary": Text(
        _("Daily summary"),
        _("What happened today, every evening"),
        _("every day at 18:00"),
        _("Summarise what happened today in at most ten points, the most important first."),
    ),
    "news_digest": Text(
        _("News digest"),
        _("The news of the last day, every morning"),
        _("every day at 07:00"),
        _("Collect the most important news of the last day in five points, each with its source."),
    ),
    "morning_brief": Text(
        _("AI morning brief"),
        _("What the day brings, before work begins"),
        _("every weekday at 08:00"),
        _(
            "Prepare a short brief for my working day: "
            "the weather, what is due, what is still open."
        ),
    ),
    "weekly_report": Text(
        _("Weekly report"),
        _("The week that was, on Monday morning"),
        _("every Monday at 09:00"),
        _("Write a report of last week: what was achieved, the key figures, risks and next steps."),
    ),
    "reminder": Text(
        _("Reminder"),
        _("A message at a set time"),
        _("every Friday at 16:30"),
        _("Remind me to write down my working hours, in one friendly sentence."),
    ),
    "month_end": Text(
        _("Month-end closing"),
        _("Calls a URL on the last day of each month"),
        _("on the last day of every month at 18:00"),
    ),
    "health_ping": Text(
        _("Health ping"),
        _("Calls a URL and notifies you when it fails and when it recovers"),
        _("every 5 minutes"),
    ),
    "heartbeat": Text(
        _("Heartbeat"),
        _("A ping every minute for an external monitor"),
        _("every minute"),
    ),
    "nightly_backup": Text(
        _("Nightly backup"), _("Starts a backup every night"), _("every day at 02:00")
    ),
    "data_sync": Text(
        _("Data sync"),
        _("Synchronizes two systems every half hour"),
        _("every 30 minutes"),
    ),
    "certificate_check": Text(
        _("Certificate check"),
        _("Calls an https URL every day; fails if the certificate has expired"),
        _("every day at 06:00"),
    ),
    "cleanup": Text(
        _("Clean-up"),
        _("Deletes old data once a week"),
        _("every Sunday at 03:00"),
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    """A time without a target. The Catbird API and views show only these."""

    #: Stable key of its texts.
    id: str
    name: str
    cron_spec: str
    description: str


def _time(id: str, cron_spec: str) -> Template:
    text = TEXTS[id]
    return Template(
        id=id, name=str(text.name), cron_spec=cron_spec, description=str(text.description)
    )


TEMPLATES = (
    _time("hourly", "@hourly"),
    _time("daily_midnight", "0 0 * * *"),
    # Every day; weekdays would be 0 9 * * 1-5.
    _time("daily_9am", "0 9 * * *"),
    _time("weekly_monday_8am", "0 8 * * 1"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalizedTemplate:
    """A template or preset with its texts in one language."""

    id: str
    text: Text
    #: Without a time zone.
    trigger: Plain
    #: None: a time without a target.
    target: Plain | None = None
    delivery: tuple[Plain, ...] = ()

    @property
    def example(self) -> str:
        """The whole schedule in words."""
        return f"{self.text.example} {self.text.prompt}".rstrip()


def list_templates(lang: str) -> list[LocalizedTemplate]:
    """All templates and presets in a language; in English if it is not supported."""
    language = lang if lang in LANGUAGES else ENGLISH
    texts = {id: text.translated(language) for id, text in TEXTS.items()}
    times = [
        LocalizedTemplate(
            id=each.id,
            text=texts[each.id],
            trigger={"kind": "cron", "expression": each.cron_spec},
        )
        for each in TEMPLATES
    ]
    return times + [
        LocalizedTemplate(
            id=each.id,
            text=texts[each.id],
            trigger=each.trigger,
            target=_with_prompt(each.target, texts[each.id].prompt),
            delivery=each.delivery,
        )
        for each in PRESETS
    ]


def _with_prompt(target: Plain, prompt: str) -> Mapping[str, object]:
    return {**target, "prompt": prompt} if prompt else target


_FIRES = 3


def render_templates(zone: str, lang: str, now: datetime) -> list[dict[str, object]]:
    """All templates as JSON for the API and the command line, with their next fires."""
    return [_render(each, zone, lang, now) for each in list_templates(lang)]


def _render(template: LocalizedTemplate, zone: str, lang: str, now: datetime) -> dict[str, object]:
    trigger = trigger_from_dict(dict(template.trigger)).with_default_zone(zone)
    fires = trigger.with_default_anchor().fires(now, _FIRES)
    return {
        "id": template.id,
        "name": template.text.name,
        "description": template.text.description,
        "cron_spec": trigger.expression if isinstance(trigger, Cron) else None,
        "trigger": trigger.to_dict(),
        "timezone": zone,
        "words": describe(trigger, lang),
        "example": template.example,
        "target": None if template.target is None else dict(template.target),
        "delivery": [dict(each) for each in template.delivery],
        "next_fires": [format_moment(fire.at) for fire in fires],
    }
