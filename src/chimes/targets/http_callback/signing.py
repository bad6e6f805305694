"""Standard Webhooks 1.0.0: how a receiver knows that a callback is ours and unaltered."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable

from chimes.model.target_rules import signing_key


def signatures(secrets: Iterable[str], *, message_id: str, timestamp: int, body: bytes) -> str:
    """One signature per secret, so that receivers with either key verify during a rotation."""
    content = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(
        "v1," + base64.b64encode(hmac.digest(signing_key(secret), content, "sha256")).decode()
        for secret in secrets
    )
