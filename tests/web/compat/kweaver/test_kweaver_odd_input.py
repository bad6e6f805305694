"""No input causes a 500, and a refused request changes nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidInput
from chimes.web.compat.kweaver.routes import kweaver_router
from chimes.web.compat.kweaver.translate import cron
from tests.examples import examples
from tests.web.compat.kweaver.requests import KN1, body
from tests.web.rig import serving
from tests.web.test_fuzz import check, json_values

FIELDS = [*body(), "unique_identities", "status"]


async def sent(method: str, path: str, given: Any) -> None:
    async with serving(routers=[kweaver_router]) as rig:
        made = await rig.client.post(KN1, json=body())
        target = path.replace("ID", made.json()["id"])
        await check(rig, method, target, json.dumps(given))


@examples(30)
@given(
    st.sampled_from([("POST", KN1), ("PUT", f"{KN1}/ID"), ("PUT", f"{KN1}/ID/status")]),
    st.sampled_from(FIELDS),
    json_values,
)
def test_random_value_causes_no_server_error(
    route: tuple[str, str], field: str, value: object
) -> None:
    asyncio.run(sent(*route, body(**{field: value})))


@examples(100)
@given(st.text(alphabet="0123456789*/?,-LW#@TZ=CRON_ MONJAN\tก", max_size=40))
def test_random_cron_expression_is_valid_or_rejected(text: str) -> None:
    try:
        found = cron(text, "UTC")
    except InvalidInput:
        with pytest.raises(InvalidInput) as refused:
            cron(text, "UTC")
        assert refused.value.code == "invalid_cron"
        return
    assert len(found.expression.split()) in (5, 6)
    assert cron(found.expression, "UTC") == found
