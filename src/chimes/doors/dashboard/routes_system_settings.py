"""System, settings: every value with where it came from, channels, and what this is."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from starlette.responses import Response

from chimes.config import Settings
from chimes.config.shown import shown_settings
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_system import operators_only
from chimes.doors.dashboard.visit import Visit
from chimes.wording import say

pages = Pages()
_LITTLE_DISK = 2**30
_FAR = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """`state`: ok, warn or bad."""

    name: str
    state: str
    detail: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRow:
    name: str
    #: What is set, without secrets; empty: it is not in use.
    detail: str
    setting: str


@pages.get("/system/settings")
async def settings(visit: Visit) -> Response:
    operators_only(visit)
    found = shown_settings(visit.door.settings, visit.door.origins)
    wanted = visit.query.get("q", "").strip().lower()
    changed = visit.query.get("changed") == "yes"
    return visit.page(
        "system/settings.html",
        settings=[
            each
            for each in found
            if wanted in each.name and (not changed or each.origin not in ("", "default"))
        ],
        wanted=wanted,
        changed=changed,
    )


@pages.get("/system/channels")
async def channels(visit: Visit) -> Response:
    operators_only(visit)
    bot = getattr(visit.request.app.state, "telegram", None)
    return visit.page(
        "system/channels.html",
        rows=_channels(visit),
        bot=bot is not None,
        sources=tuple(visit.door.sources.now.by_id.values()),
    )


@pages.get("/system/about")
async def about(visit: Visit) -> Response:
    operators_only(visit)
    return visit.page(
        "system/about.html",
        checks=await _checks(visit),
        version=visit.door.version,
        python=".".join(str(part) for part in sys.version_info[:3]),
        tzdata=_tzdata(),
    )


def _channels(visit: Visit) -> tuple[ChannelRow, ...]:
    known = visit.door.settings
    return (
        ChannelRow(
            name=say("Telegram bot"),
            detail=_how_telegram(known),
            setting="CHIMES_TELEGRAM_TOKEN",
        ),
        ChannelRow(name=say("E-mail"), detail=known.smtp_from or "", setting="CHIMES_SMTP_URL"),
        ChannelRow(name=say("Agents"), detail=_host(known.agent_url), setting="CHIMES_AGENT_URL"),
        ChannelRow(
            name=say("Action service"), detail=_host(known.action_url), setting="CHIMES_ACTION_URL"
        ),
        ChannelRow(
            name=say("Public address"), detail=known.public_url, setting="CHIMES_PUBLIC_URL"
        ),
    )


def _how_telegram(known: Settings) -> str:
    if not known.telegram_token:
        return ""
    return say("webhook") if known.telegram_webhook_url else say("long polling")


def _host(url: str) -> str:
    """Without what may be a secret in it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}" if rest else ""


async def _checks(visit: Visit) -> list[Check]:
    store = visit.door.store
    status, nodes = await store.status(), await store.nodes()
    alive = [node for node in nodes if node.lease_until > visit.now]
    off = [node.id for node in alive if abs(node.clock_offset) > _FAR]
    found = [
        Check(
            name=say("Store"),
            state="warn" if status.degraded else "ok",
            detail=say("{kind}, schema {schema}", kind=status.kind, schema=status.schema),
            fix=status.degraded or "",
        ),
        Check(
            name=say("Nodes"),
            state="ok" if alive else "bad",
            detail=say("{alive} of {all} are alive", alive=len(alive), all=len(nodes)),
        ),
        Check(
            name=say("Clocks"),
            state="warn" if off else "ok",
            detail=", ".join(off) if off else say("within a second of the store's"),
            fix=say("Let a time service such as chrony set the clock.") if off else "",
        ),
        Check(
            name=say("Time zones"),
            state="ok" if _tzdata() else "warn",
            detail=_tzdata() or say("the rules of the machine"),
        ),
    ]
    reason = visit.door.not_ready()
    if reason:
        found.append(Check(name=say("This node"), state="warn", detail=reason))
    free = _free_disk(visit)
    if free is not None:
        found.append(
            Check(
                name=say("Disk"),
                state="ok" if free > _LITTLE_DISK else "warn",
                detail=say("{megabytes} MiB are free", megabytes=free // 2**20),
                fix="" if free > _LITTLE_DISK else say("Make room where the data is kept."),
            )
        )
    return found


def _free_disk(visit: Visit) -> int | None:
    folder = visit.door.settings.data_dir
    return shutil.disk_usage(folder).free if folder.is_dir() else None


def _tzdata() -> str:
    try:
        return version("tzdata")
    except PackageNotFoundError:
        return ""
