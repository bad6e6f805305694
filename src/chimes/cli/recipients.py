"""Recipients as they are written on a command line."""

from __future__ import annotations

import click

from chimes.cli.output import Json
from chimes.errors import InvalidInput
from chimes.model.recipient_text import recipient_from_text


def written_recipient(text: str) -> Json:
    """As the API takes it; a usage error if an option would be lost."""
    try:
        return recipient_from_text(text)
    except InvalidInput as error:
        raise click.UsageError(error.message) from None
