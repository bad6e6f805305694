"""Writes the OpenAPI document of the native API to clients/typescript/openapi.json.

`make client` runs it and regenerates the types of the TypeScript client from the document.
"""

import json
from pathlib import Path
from typing import cast

from fastapi import FastAPI

from chimes import __version__
from chimes.web.health import health_router
from chimes.web.openapi import describe_api, operation_id
from chimes.web.requests import WebContext
from chimes.web.server import NATIVE_ROUTERS

FILE = Path(__file__).parents[1] / "clients" / "typescript" / "openapi.json"


def document() -> str:
    """As the file has it. Nothing is served, so the routes need no services."""
    app = FastAPI(title="Chimes", version=__version__, generate_unique_id_function=operation_id)
    app.state.compat_paths = {}
    for router in (health_router(cast(WebContext, None)), *NATIVE_ROUTERS):
        app.include_router(router)
    return json.dumps(describe_api(app), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
    print(f"wrote {FILE}")
