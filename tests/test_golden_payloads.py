"""Stored JSON, API bodies, OpenAPI, options and forms are those of the recorded files."""

from __future__ import annotations

import json

import pytest

from tests.golden.payloads import COLLECTORS, collect, recorded

_MISSING = object()


@pytest.mark.parametrize("name", COLLECTORS)
async def test_payloads_are_as_recorded(name: str) -> None:
    known, found = recorded(name), await collect(name)
    assert len(known) > 10
    differing = [
        key for key in known | found if known.get(key, _MISSING) != found.get(key, _MISSING)
    ]
    shown = [
        f"{key}:\n  recorded {_text(known, key)}\n  now      {_text(found, key)}"
        for key in differing[:40]
    ]
    assert not differing, f"{len(differing)} items of {name} differ\n" + "\n".join(shown)


def _text(items: dict[str, object], key: str) -> str:
    if key not in items:
        return "is missing"
    return json.dumps(items[key], ensure_ascii=False, sort_keys=True)[:2000]
