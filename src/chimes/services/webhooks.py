"""Inbound webhooks: addresses, signatures and delivery ids of requests to `POST /hooks/{token}`.

The address has the id of the schedule and a random part, so that no index is needed to find the
schedule. The random part is stored like a secret and compared in constant time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta

from chimes.errors import InvalidInput, NotAuthenticated, RateLimited
from chimes.i18n import _
from chimes.model.access import Actor
from chimes.model.event import MAX_PAYLOAD_LENGTH
from chimes.model.ids import ScheduleId
from chimes.model.run import Cause
from chimes.model.schedule import Schedule
from chimes.model.validation import signing_key
from chimes.services.events import not_a_hook
from chimes.store.port import Store
from chimes.triggers import Webhook

HOOK_PATH = "/hooks"
#: Bytes of a request.
MAX_BODY = 1024 * 1024
#: How old a signed timestamp may be, and how far ahead.
TOLERANCE = timedelta(minutes=5)
_MAX_DELIVERY_ID = 200
#: Headers with the id of a delivery, which a repeat of it has too, for each scheme. A header that
#: the sender of a scheme does not set could be added by others to a request that is signed.
_ID_HEADERS = {
    "none": ("webhook-id", "x-github-delivery", "idempotency-key"),
    "standard": ("webhook-id",),
    "github": ("x-github-delivery",),
}


# --- addresses ------------------------------------------------------------------------------------
def hook_token(schedule: Schedule) -> str:
    """The last part of the address of a schedule; empty if it has none."""
    trigger = schedule.trigger
    if not isinstance(trigger, Webhook) or not trigger.token:
        return ""
    name = base64.urlsafe_b64encode(schedule.id.encode()).decode().rstrip("=")
    return f"{name}.{trigger.token}"


def hook_url(schedule: Schedule, base: str) -> str | None:
    """The absolute address of a schedule; None if it has none."""
    token = hook_token(schedule)
    return f"{base.rstrip('/')}{HOOK_PATH}/{token}" if token else None


def _split_token(token: str) -> tuple[ScheduleId, str]:
    name, _dot, rest = token.partition(".")
    try:
        schedule_id = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except (binascii.Error, ValueError):
        raise not_a_hook() from None
    if "\0" in schedule_id:
        raise not_a_hook()
    return ScheduleId(schedule_id), rest


async def find_hook(store: Store, token: str) -> Schedule:
    """The schedule of an address. Raises NotFound."""
    schedule_id, rest = _split_token(token)
    schedule = await store.get_schedule(schedule_id)
    trigger = None if schedule is None else schedule.trigger
    known = isinstance(trigger, Webhook) and trigger.has_token(rest)
    if schedule is None or schedule.deleted_at is not None or not known:
        raise not_a_hook()
    return schedule


async def check_rate(store: Store, schedule: Schedule, per_minute: int) -> None:
    """Raises RateLimited. All nodes share the limit."""
    if not per_minute:
        return
    grant = await store.take_tokens(
        f"hook:{schedule.id}", rate=per_minute / 60, burst=max(1, per_minute)
    )
    if not grant.granted:
        raise RateLimited(retry_after=grant.wait)


# --- signatures -----------------------------------------------------------------------------------
def check_signature(
    trigger: Webhook, headers: Mapping[str, str], body: bytes, now: datetime
) -> None:
    """Raises NotAuthenticated if the request is not signed as the scheme of the trigger says."""
    match trigger.scheme:
        case "none":
            return
        case "github":
            given = headers.get("x-hub-signature-256", "")
            expected = hmac.digest(trigger.secret.encode(), body, "sha256").hex()
            valid = hmac.compare_digest(_bytes(given), f"sha256={expected}".encode())
        case "stripe":
            valid = _stripe(trigger.secret, headers.get("stripe-signature", ""), body, now)
        case "standard":
            valid = _standard(trigger.secret, headers, body, now)
    if not valid:
        raise NotAuthenticated(
            _(
                "the signature of the request is missing, wrong or too old for the scheme {scheme}",
                scheme=trigger.scheme,
            ),
            code="bad_signature",
        )


def _standard(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    message, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    content = f"{message}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.digest(signing_key(secret), content, "sha256"))
    matches = False
    for each in headers.get("webhook-signature", "").split():
        version, _comma, given = each.partition(",")
        matches |= version == "v1" and hmac.compare_digest(_bytes(given), expected)
    return matches and bool(message) and _is_recent(timestamp, now)


def _stripe(secret: str, header: str, body: bytes, now: datetime) -> bool:
    parts = [each.strip().partition("=")[::2] for each in header.split(",")]
    timestamp = next((value for name, value in parts if name == "t"), "")
    expected = hmac.digest(secret.encode(), f"{timestamp}.".encode() + body, "sha256").hex()
    matches = False
    for name, given in parts:
        matches |= name == "v1" and hmac.compare_digest(_bytes(given), expected.encode())
    return matches and _is_recent(timestamp, now)


def _is_recent(timestamp: str, now: datetime) -> bool:
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 12:
        return False
    return abs(now.timestamp() - int(timestamp)) <= TOLERANCE.total_seconds()


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


# --- events ---------------------------------------------------------------------------------------
def event_of(trigger: Webhook, headers: Mapping[str, str], body: bytes, at: datetime) -> Cause:
    """The event of a request. Raises InvalidInput for a body that is not text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise InvalidInput(_("the body must be UTF-8 text"), code="not_text") from None
    if "\0" in text or len(text) > MAX_PAYLOAD_LENGTH:
        raise InvalidInput(_("the body must be UTF-8 text without NUL"), code="not_text")
    return Cause(
        kind="webhook",
        source=headers.get("x-github-event", "")[:100] or trigger.scheme,
        delivery_id=_delivery_id(trigger, headers, text),
        at=at,
        content_type=headers.get("content-type", "")[:200],
        payload=text,
    )


def _delivery_id(trigger: Webhook, headers: Mapping[str, str], text: str) -> str:
    if trigger.scheme == "stripe":
        given = _event_id(text)
    else:
        names = _ID_HEADERS[trigger.scheme]
        given = next((headers[name] for name in names if headers.get(name)), "")
    if not given:
        return f"once-{secrets.token_hex(12)}"
    if len(given) > _MAX_DELIVERY_ID or not given.isprintable():
        return hashlib.sha256(given.encode(errors="replace")).hexdigest()
    return given


def _event_id(text: str) -> str:
    """The id of a Stripe event is in its body."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    found = event.get("id") if isinstance(event, dict) else None
    return found if isinstance(found, str) else ""


def may_see_hook(actor: Actor, schedule: Schedule) -> bool:
    """The address is a credential: it suffices to start runs."""
    return actor.may_operate(schedule.owner)
