"""What a test says: that it is one, and that messages arrive here (pure)."""

from __future__ import annotations

from chimes.delivery.message import Message, local_time
from chimes.delivery.plain_text import one_line
from chimes.delivery.words import CHANNELS, language_of
from chimes.model.delivery import Delivery
from chimes.wording import in_language, say


def trial_message(delivery: Delivery, *, language: str, zone: str, public_url: str = "") -> Message:
    language = language_of(language)
    time, named = local_time(delivery.created_at, zone)
    name = one_line(delivery.schedule_name)
    lines = [
        say(
            "This is a test by {channel}, asked for at {time} ({zone}). No run has ended.",
            channel=CHANNELS[delivery.recipient.channel],
            time=time,
            zone=named,
        )
    ]
    if name:
        lines.append(say("What {name} has to tell comes here.", name=name))
    told = [in_language(line, language) for line in lines]
    title = in_language(say("Test: messages arrive here"), language)
    way = in_language(say("Open: {url}", url=f"{public_url}/ui/inbox"), language)
    return Message(
        kind="test",
        run_id=None,
        schedule_id=delivery.schedule_id,
        schedule_name=delivery.schedule_name,
        status="",
        language=language,
        title=title,
        markdown="\n\n".join(told),
        head="\n".join([title, *told]),
        output="",
        is_markdown=False,
        tail=way if public_url else "",
    )
