"""Templates and presets are complete in every language."""

from __future__ import annotations

from datetime import UTC, datetime

from chimes.language import LANGUAGES
from chimes.language.parser import parse
from chimes.services.schedules.templates import (
    PRESETS,
    TEMPLATES,
    TEXTS,
    LocalizedTemplate,
    list_templates,
)
from chimes.triggers import trigger_from_dict
from tests.tables import each_row

NOW = datetime(2030, 1, 15, 9, tzinfo=UTC)
ZONE = "Asia/Bangkok"
SHOWN = [(lang, each) for lang in LANGUAGES for each in list_templates(lang)]


def test_list_of_presets() -> None:
    assert {each.id for each in PRESETS} == {
        "daily_summary",
        "news_digest",
        "health_ping",
        "nightly_backup",
        "weekly_report",
        "month_end",
        "data_sync",
        "morning_brief",
        "certificate_check",
        "reminder",
        "cleanup",
        "heartbeat",
    }


# Names are part of the Catbird contract.
def test_catbird_templates_are_unchanged() -> None:
    assert [(each.name, each.cron_spec, each.description) for each in TEMPLATES] == [
        ("Hourly", "@hourly", "At the start of every hour"),
        ("Daily Midnight", "0 0 * * *", "Every day at midnight"),
        ("Daily 9 AM", "0 9 * * *", "Every day at 9 AM"),
        ("Weekly Monday 8 AM", "0 8 * * 1", "Every Monday at 8 AM"),
    ]


def test_every_language_has_every_text() -> None:
    assert set(TEXTS) == {each.id for each in (*TEMPLATES, *PRESETS)}
    agents = {each.id for each in PRESETS if each.target["kind"] == "agent"}
    for lang in LANGUAGES:
        texts = {each.id: each.text for each in list_templates(lang)}
        assert len({text.name for text in texts.values()}) == len(texts)
        assert {id for id, text in texts.items() if text.prompt} == agents
        if lang != "en":
            # No text is the English one.
            assert not any(set(text) & set(TEXTS[id]) - {""} for id, text in texts.items())


def test_unknown_language_falls_back_to_english() -> None:
    assert list_templates("tlh") == list_templates("en")


@each_row(("lang", "offer"), SHOWN, ids=[f"{lang} {each.id}" for lang, each in SHOWN])
def test_example_sentence_parses_to_the_trigger(lang: str, offer: LocalizedTemplate) -> None:
    read = parse(offer.example, now=NOW, timezone=ZONE)
    meant = trigger_from_dict(dict(offer.trigger)).with_default_zone(ZONE)
    assert read.language == lang
    assert read.task == offer.text.prompt
    assert read.trigger.fires(NOW, 50) == meant.fires(NOW, 50)
    if offer.target is not None:
        assert read.trigger == meant
