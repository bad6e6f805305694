"""Templates as they are shown: in a language, in a zone, with their next fires."""

from __future__ import annotations

from datetime import datetime

from chimes.language import describe
from chimes.model.templates import Offer, offers
from chimes.triggers import Cron, format_moment, trigger_from_dict

_FIRES = 3


def templates_shown(zone: str, lang: str, now: datetime) -> list[dict[str, object]]:
    """What the API answers and the command line prints; ready to be sent as a schedule."""
    return [_shown(each, zone, lang, now) for each in offers(lang)]


def _shown(offer: Offer, zone: str, lang: str, now: datetime) -> dict[str, object]:
    trigger = trigger_from_dict(dict(offer.trigger)).with_default_zone(zone)
    fires = trigger.anchored(now).fires(now, _FIRES)
    return {
        "id": offer.id,
        "name": offer.text.name,
        "description": offer.text.description,
        "cron_spec": trigger.expression if isinstance(trigger, Cron) else None,
        "trigger": trigger.to_dict(),
        "timezone": zone,
        "words": describe(trigger, lang),
        "example": offer.example,
        "target": None if offer.target is None else dict(offer.target),
        "delivery": [dict(each) for each in offer.delivery],
        "next_fires": [format_moment(fire.at) for fire in fires],
    }
