"""The cookies of the dashboard, and what guards forms (RELIABILITY 8).

Over https they are `__Host-` and Secure; on plain http (loopback) their names have the port, so
that two servers on one machine do not sign each other's people out.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

SESSION = "session"
#: Guards forms of those who have no session: open mode, and the login page.
GUARD = "guard"
FLASH = "flash"
_HEX = 16


def _name(request: Request, what: str) -> str:
    if _encrypted(request):
        return f"__Host-chimes_{what}"
    return f"chimes_{what}_{request.url.port or 80}"


def _encrypted(request: Request) -> bool:
    return bool(request.url.scheme == "https")


def cookie(request: Request, what: str) -> str:
    return request.cookies.get(_name(request, what), "")[:4000]


def set_cookie(
    request: Request,
    response: Response,
    what: str,
    value: str,
    *,
    lasts: timedelta | None = None,
) -> None:
    """Lax and not strict: whoever follows a link from elsewhere is still the same visitor."""
    response.set_cookie(
        _name(request, what),
        value,
        max_age=None if lasts is None else int(lasts.total_seconds()),
        path="/",
        secure=_encrypted(request),
        httponly=True,
        samesite="lax",
    )


def drop_cookie(request: Request, response: Response, what: str) -> None:
    response.delete_cookie(
        _name(request, what), path="/", secure=_encrypted(request), httponly=True, samesite="lax"
    )


def new_guard() -> str:
    return secrets.token_hex(_HEX)


def form_token(secret: str) -> str:
    """What each form carries: whoever cannot read the cookie cannot know it (S49)."""
    return hashlib.sha256(f"form:{secret}".encode()).hexdigest()[:40]


def token_matches(secret: str, given: str) -> bool:
    return bool(secret) and hmac.compare_digest(form_token(secret).encode(), given.encode())
