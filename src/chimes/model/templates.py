"""Ready-made times and schedules for those who start with an empty page.

The first four are times only; the Catbird views and door show just these (R2.36). The others say
what to do as well (R1.41, UX A.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chimes.model.preset_texts import TEXTS, Text
from chimes.model.presets import PRESETS, Plain
from chimes.wording import ENGLISH, LANGUAGES


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    #: Stable; catalogues translate name and description by it.
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
    # C26: every day; weekdays would be 0 9 * * 1-5.
    _time("daily_9am", "0 9 * * *"),
    _time("weekly_monday_8am", "0 8 * * 1"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A template as it is shown in one language."""

    id: str
    text: Text
    #: As the API reads it, without a zone.
    trigger: Plain
    #: As the API reads it; None: a time only.
    target: Plain | None = None
    delivery: tuple[Plain, ...] = ()

    @property
    def example(self) -> str:
        """What a person would type to have the same."""
        return f"{self.text.example} {self.text.prompt}".rstrip()


def offers(lang: str) -> list[Offer]:
    """All templates in a language; in English where there is none."""
    language = lang if lang in LANGUAGES else ENGLISH
    texts = {id: text.said_in(language) for id, text in TEXTS.items()}
    times = [
        Offer(
            id=each.id,
            text=texts[each.id],
            trigger={"kind": "cron", "expression": each.cron_spec},
        )
        for each in TEMPLATES
    ]
    return times + [
        Offer(
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
