"""Message templates: own words for notifications, by language and event (pure).

A template replaces title and text of a message. `{{name}}` stands for a value; nothing is
evaluated, and a value is never read as a template again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from msgspec import Struct

from chimes.errors import InvalidInput
from chimes.i18n import LANGUAGES, _, in_language
from chimes.model.notification import Delivery
from chimes.model.recipient import SELECTABLE_EVENTS, NotifyOn
from chimes.model.run import Run
from chimes.model.validation import check_text
from chimes.notifications.message import (
    MAX_LINE,
    MAX_OUTPUT,
    NotificationMessage,
    local_time,
    one_line,
)

MAX_TEMPLATES = 60
MAX_TITLE = 300
MAX_TEXT = 8000
_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
#: The values that a template can contain.
PLACEHOLDERS = (
    *("title", "details", "schedule_name", "schedule_id", "run_id", "status", "event", "error"),
    *("reason", "output", "link", "owner", "namespace", "attempt"),
    *("planned_at", "started_at", "finished_at"),
)


class MessageTemplate(Struct, frozen=True, kw_only=True):
    #: `en`, `th`, `zh`; empty: every language.
    language: str = ""
    #: None: every event.
    on: NotifyOn | None = None
    #: Empty: the title that Chimes writes.
    title: str = ""
    #: Markdown; empty: the text that Chimes writes.
    text: str = ""

    def rank(self, language: str, event: NotifyOn) -> int | None:
        """How closely it fits; None: not at all."""
        if self.language not in ("", language) or self.on not in (None, event):
            return None
        return 2 * (self.on is not None) + bool(self.language)


class MessageTemplates(Struct, frozen=True, kw_only=True):
    """The templates of an owner, or of the instance."""

    templates: tuple[MessageTemplate, ...] = ()


def choose_template(
    levels: Iterable[Sequence[MessageTemplate]], language: str, event: NotifyOn
) -> MessageTemplate | None:
    """The template that fits best, of the first level with one that fits: an owner's before the
    instance's; for an event before for all; in a language before in any."""
    for templates in levels:
        ranked = [
            (rank, each) for each in templates if (rank := each.rank(language, event)) is not None
        ]
        if ranked:
            return max(ranked, key=lambda each: each[0])[1]
    return None


def check_template(template: MessageTemplate) -> None:
    """Raises InvalidInput."""
    if template.language and template.language not in LANGUAGES:
        raise InvalidInput(
            _("a language must be en, th or zh"), field="language", code="unknown_language"
        )
    if template.on is not None and template.on not in SELECTABLE_EVENTS:
        raise InvalidInput(
            _("{word!r} is not an event to select", word=template.on.value),
            field="on",
            code="unknown_occasion",
        )
    if not template.title.strip() and not template.text.strip():
        raise InvalidInput(_("a template needs a title or a text"), field="text", code="missing")
    for field, text, most in (
        ("title", template.title, MAX_TITLE),
        ("text", template.text, MAX_TEXT),
    ):
        if len(text) > most:
            raise InvalidInput(
                _("at most {most} characters", most=most), field=field, code="too_long"
            )
        check_text(text, field)
        for found in _PLACEHOLDER.finditer(text):
            _check_placeholder(found[1].strip(), field)
    if "\n" in template.title.strip():
        raise InvalidInput(_("a title is one line"), field="title", code="bad_text")


def check_templates(templates: Sequence[MessageTemplate]) -> None:
    if len(templates) > MAX_TEMPLATES:
        raise InvalidInput(
            _("at most {most} templates", most=MAX_TEMPLATES), field="templates", code="too_many"
        )
    seen: set[tuple[str, NotifyOn | None]] = set()
    for place, each in enumerate(templates):
        try:
            check_template(each)
            if (each.language, each.on) in seen:
                raise InvalidInput(
                    _("there is another template for this language and event"),
                    field="on",
                    code="twice",
                )
        except InvalidInput as error:
            raise error.within(f"templates[{place}]") from None
        seen.add((each.language, each.on))


def _check_placeholder(name: str, field: str) -> None:
    if name in PLACEHOLDERS:
        return
    near = get_close_matches(name, PLACEHOLDERS, 1)
    message = _(
        "unknown placeholder {{{{{name}}}}}; there are {known}",
        name=name,
        known=", ".join(PLACEHOLDERS),
    )
    if near:
        message = _(
            "unknown placeholder {{{{{name}}}}}; did you mean {{{{{near}}}}}?",
            name=name,
            near=near[0],
        )
    raise InvalidInput(message, field=field, code="unknown_placeholder")


def template_values(
    message: NotificationMessage, delivery: Delivery, run: Run | None, zone: str
) -> dict[str, str]:
    """What the placeholders of a message stand for."""

    def at(name: str) -> str:
        moment = getattr(run, name, None)
        return "" if moment is None else " ".join(local_time(moment, zone))

    language = message.language
    return {
        "title": message.title,
        "details": message.markdown,
        "schedule_name": one_line(delivery.schedule_name),
        "schedule_id": delivery.schedule_id or "",
        "run_id": delivery.run_id or "",
        "status": message.status,
        "event": delivery.notify_on.value,
        "error": "" if run is None else one_line(in_language(run.error, language))[:MAX_LINE],
        "reason": "" if run is None else one_line(run.reason)[:MAX_LINE],
        "output": message.output,
        "link": message.link,
        "owner": str(delivery.owner),
        "namespace": "" if run is None else run.namespace,
        "attempt": "" if run is None else str(run.attempt),
        "planned_at": at("planned_at"),
        "started_at": at("started_at"),
        "finished_at": at("finished_at"),
    }


def fill_template(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values.get(found[1].strip(), ""), text)


def apply_template(
    message: NotificationMessage, template: MessageTemplate, values: Mapping[str, str]
) -> NotificationMessage:
    """The message in the words of the template; files, link and JSON stay."""
    title = one_line(fill_template(template.title, values))[:MAX_LINE] or message.title
    if not template.text.strip():
        return replace(message, title=title, head=message.head.replace(message.title, title, 1))
    text = fill_template(template.text, values).strip()[:MAX_OUTPUT]
    return replace(
        message,
        title=title,
        markdown=text,
        head=title,
        output=text,
        is_markdown=True,
        tail="",
    )
