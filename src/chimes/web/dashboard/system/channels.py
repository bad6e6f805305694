"""Channels page: configured channels, connection checks, tests and failed deliveries."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
import shutil
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import Response

from chimes.clock import Clock
from chimes.config import Settings
from chimes.errors import ConfigError, InvalidInput, NotAllowed, NotFound, message_of
from chimes.i18n import _, in_language
from chimes.model.ids import DeliveryId
from chimes.model.listing import DeliveryQuery
from chimes.model.notification import DeliveryState
from chimes.model.recipient import Channel, Recipient
from chimes.model.sync import Source, Sources
from chimes.model.validation import SECRET_PREFIX
from chimes.notifications.message import CHANNELS
from chimes.redaction import mask_url
from chimes.services.system import may_control
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    FormError,
    PageRequest,
    PageRouter,
    status_of,
)
from chimes.web.dashboard.runs.views import visible
from chimes.web.dashboard.system.routes import require_operator

if TYPE_CHECKING:
    from chimes.telegram.bot import Bot


#: Bytes of a signing key, as Standard Webhooks recommends.
_KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRow:
    #: Id of the connection check; empty: nothing to check.
    id: str
    name: str
    #: Configuration without secrets; empty: not configured.
    detail: str
    setting: str
    #: URL that the check connects to.
    url: str = ""


def channel_rows(known: Settings) -> tuple[ChannelRow, ...]:
    return (
        ChannelRow(
            id="telegram",
            name=_("Telegram bot"),
            detail=_telegram_mode(known),
            setting="CHIMES_TELEGRAM_TOKEN",
            url=known.telegram_api_url if known.telegram_token else "",
        ),
        ChannelRow(
            id="email",
            name=_("E-mail"),
            detail=known.smtp_from or bare_host(known.smtp_url),
            setting="CHIMES_SMTP_URL",
            url=known.smtp_url,
        ),
        ChannelRow(
            id="agents",
            name=_("Agents"),
            detail=bare_host(known.agent_url),
            setting="CHIMES_AGENT_URL",
            url=known.agent_url,
        ),
        ChannelRow(
            id="actions",
            name=_("Action service"),
            detail=bare_host(known.action_url),
            setting="CHIMES_ACTION_URL",
            url=known.action_url,
        ),
        ChannelRow(
            id="",
            name=_("Public address"),
            detail=bare_host(known.public_url),
            setting="CHIMES_PUBLIC_URL",
        ),
    )


def _telegram_mode(known: Settings) -> str:
    if not known.telegram_token:
        return ""
    return _("webhook") if known.telegram_webhook_url else _("long polling")


def bare_host(url: str) -> str:
    """Returns scheme, host and port, without parts that may be secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}" if host else ""


def new_signing_key() -> str:
    """Returns `whsec_` and base64, as Standard Webhooks defines it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


# --- connection checks ------------------------------------------------------------------------
# Addresses come from the settings and chimes.yaml, never from the user.

TIMEOUT = 5.0
_PORTS = {"http": 80, "https": 443, "smtp": 587, "smtps": 465}


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    ok: bool
    #: Full sentence.
    text: str


async def check_url(name: str, url: str, clock: Clock) -> CheckResult:
    """Connects to the host and port of the URL; sends nothing but a handshake."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        host, port = None, None
    if not host or not port:
        return CheckResult(ok=False, text=_("{name}: invalid address.", name=name))
    secure = ssl.create_default_context() if parts.scheme in ("https", "smtps") else None
    before = clock.monotonic()
    try:
        async with asyncio.timeout(TIMEOUT):
            _reader, writer = await asyncio.open_connection(host, port, ssl=secure)
    except TimeoutError:
        text = _("{name}: no response from {host}:{port}.", name=name, host=host, port=port)
        return CheckResult(ok=False, text=text)
    except (OSError, ValueError) as error:
        given = {"name": name, "host": host, "port": port, "error": message_of(error)}
        text = _("{name}: cannot reach {host}:{port}: {error}", **given)
        return CheckResult(ok=False, text=text)
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
    latency = round((clock.monotonic() - before) * 1000)
    given = {"name": name, "host": host, "port": port, "latency": latency}
    return CheckResult(ok=True, text=_("{name}: {host}:{port} responded in {latency} ms.", **given))


async def check_data_source(source: Source, sources: Sources, clock: Clock) -> CheckResult:
    """Checks a data source without synchronising anything."""
    if source.driver == "http_json":
        return await check_url(source.id, str(source.config.get("url", "")), clock)
    if source.driver == "command":
        return _check_command(source, sources.directory)
    from chimes.targets.sync.function_check import check_callables

    try:
        await check_callables(Sources({source.id: source}, sources.directory))
    except ConfigError as error:
        return CheckResult(ok=False, text=error.message)
    return CheckResult(ok=True, text=_("{name}: function found.", name=source.id))


def _check_command(source: Source, directory: str) -> CheckResult:
    command = source.config.get("command")
    program = str(command[0]) if isinstance(command, list | tuple) and command else ""
    relative = Path(directory, str(source.config.get("cwd", "")), program)
    if program and (shutil.which(program) or ("/" in program and shutil.which(relative))):
        text = _("{name}: program {program} found.", name=source.id, program=program)
        return CheckResult(ok=True, text=text)
    text = _("{name}: program {program} not found.", name=source.id, program=program)
    return CheckResult(ok=False, text=text)


router = PageRouter()
_PATH = "/ui/system/channels"
_SHOWN = 20
#: Lengths of silences that can be chosen.
SILENCE_HOURS = ("1", "4", "24", "168")


@router.get("/system/channels")
async def channels(request: PageRequest) -> Response:
    require_operator(request)
    return await page(request)


@router.post("/system/channels/check/{id}")
async def check(request: PageRequest) -> Response:
    """Checks from this node whether the configured address can be reached."""
    _require_control(request)
    wanted = request.path_params["id"]
    row = next((each for each in channel_rows(request.context.settings) if each.id == wanted), None)
    if row is None or not row.url:
        raise NotFound(_("Unknown check {name!r}", name=wanted))
    name = in_language(row.name, request.display.language)
    found = await check_url(name, row.url, request.context.clock)
    return request.redirect_with_toast(found.text, to=_PATH, kind="done" if found.ok else "error")


@router.post("/system/sources/{id}/check")
async def check_source(request: PageRequest) -> Response:
    _require_control(request)
    sources = request.context.sources.now
    source = sources.by_id.get(request.path_params["id"])
    if source is None:
        raise NotFound(_("Unknown source {id!r}", id=request.path_params["id"]))
    found = await check_data_source(source, sources, request.context.clock)
    return request.redirect_with_toast(found.text, to=_PATH, kind="done" if found.ok else "error")


@router.post("/system/channels/signing-key")
async def signing_key(request: PageRequest) -> Response:
    """Generates a key; it is not stored, and only this response shows it."""
    _require_control(request)
    return await page(request, new_key=new_signing_key())


@router.post("/system/channels/test")
async def send_test(request: PageRequest) -> Response:
    """Sends a real test message in the name of the user and shows the result."""
    require_operator(request)
    given = request.form.text("channel")
    if given not in set(Channel):
        raise InvalidInput(_("choose a channel"), field="channel")
    secret = request.form.raw("signing_secret").strip()
    recipient = Recipient(
        channel=Channel(given),
        to=request.form.text("to"),
        language=request.display.language,
        signing_secrets=(secret,) if secret else (),
    )
    try:
        outcome = await request.context.notifications.send_test(request.actor, recipient)
    except FORM_ERRORS as error:
        return await page(request, error=await request.form_error(error), failed=given)
    return request.redirect_with_toast(outcome.words, to=_PATH, kind=outcome.kind)


@router.post("/system/deliveries/{id}/retry")
async def retry(request: PageRequest) -> Response:
    await request.context.notifications.retry_delivery(
        request.actor, DeliveryId(request.path_params["id"])
    )
    return request.redirect_with_toast(_("Message queued again."), to=_PATH)


@router.post("/system/channels/silences")
async def add_silence(request: PageRequest) -> Response:
    """Silences the schedules with the given labels, or all, for some hours."""
    require_operator(request)
    hours = request.form.text("hours")
    try:
        if hours not in SILENCE_HOURS:
            raise InvalidInput(_("choose a length"), field="hours")
        await request.context.silences.add(
            request.actor,
            labels=_parse_labels(request.form.text("labels")),
            until=request.now + timedelta(hours=int(hours)),
            reason=request.form.text("reason"),
        )
    except FORM_ERRORS as error:
        return await page(request, error=await request.form_error(error), failed="silence")
    return request.redirect_with_toast(_("Notifications silenced."), to=_PATH)


@router.post("/system/channels/silences/{id}/end")
async def end_silence(request: PageRequest) -> Response:
    await request.context.silences.remove(request.actor, request.path_params["id"])
    return request.redirect_with_toast(_("Silence ended."), to=_PATH)


def _parse_labels(text: str) -> dict[str, str | None]:
    """`team=billing, urgent` as labels."""
    pairs = (each.strip().partition("=") for each in text.split(",") if each.strip())
    return {name: value if equals else None for name, equals, value in pairs}


def _label_text(labels: Mapping[str, str | None]) -> str:
    return ", ".join(name if value is None else f"{name}={value}" for name, value in labels.items())


async def page(
    request: PageRequest,
    *,
    new_key: str = "",
    error: FormError | None = None,
    failed: str = "",
) -> Response:
    """Renders the page. `failed` is the channel of the test that `error` belongs to."""
    bot: Bot | None = getattr(request.http.app.state, "telegram", None)
    dead = await request.context.notifications.list_deliveries(
        request.actor, DeliveryQuery(states=(DeliveryState.DEAD,), limit=_SHOWN)
    )
    return request.render(
        "system/channels.html",
        status=status_of(error),
        rows=channel_rows(request.context.settings),
        bot=bot is not None,
        sources=tuple(request.context.sources.now.by_id.values()),
        channels=CHANNELS,
        visible=visible,
        dead=dead.items,
        more_dead=dead.next is not None,
        may_control=may_control(request.actor),
        silences=await request.context.silences.list_current(request.actor),
        silence_hours=SILENCE_HOURS,
        rules=(await request.context.routing.get(request.actor)).rules,
        label_text=_label_text,
        mask_url=mask_url,
        new_key=new_key,
        error=error,
        failed=failed,
        given=request.form,
        email=bool(request.context.settings.smtp_url),
        apprise=find_spec("apprise") is not None,
        may_test=request.actor.may_create(request.actor.owner),
    )


def _require_control(request: PageRequest) -> None:
    if not may_control(request.actor):
        raise NotAllowed()
