"""Static assets: compressed once, and cached by browsers for a year under a URL with their hash."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import NotFound

_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
_IMMUTABLE = "public, max-age=31536000, immutable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    address: str
    kind: str
    content: bytes
    compressed: bytes


@cache
def assets() -> dict[str, Asset]:
    """By name, such as `vendor/htmx.js`. Requests read from this dict, never from a path."""
    found = {}
    for path in sorted(_FOLDER.rglob("*")):
        kind = _TYPES.get(path.suffix)
        if kind is None or not path.is_file():
            continue
        name, content = path.relative_to(_FOLDER).as_posix(), path.read_bytes()
        mark = hashlib.sha256(content).hexdigest()[:12]
        found[name] = Asset(
            address=f"/ui/static/{mark}/{name}",
            kind=kind,
            content=content,
            compressed=gzip.compress(content, 9, mtime=0),
        )
    return found


def asset_address(name: str) -> str:
    return assets()[name].address


async def serve_asset(request: Request) -> Response:
    """A URL with an outdated hash gets the current file, uncached."""
    found = assets().get(request.path_params["name"])
    if found is None:
        raise NotFound()
    is_current = found.address == request.url.path
    headers = {
        "Cache-Control": _IMMUTABLE if is_current else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
        return Response(found.compressed, media_type=found.kind, headers=headers)
    return Response(found.content, media_type=found.kind, headers=headers)


def accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")
