"""Data of Telegram buttons: complete ids, at most 64 bytes, signed for one chat."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from chimes.notifications.telegram_api import MAX_BYTES, Action, ButtonPress, decode, encode
from tests.tables import each_row

TOKEN = "123456:test-token"
SCHEDULE = "0199ab00-1111-7222-8333-444455556666"


@each_row("action", list(Action))
@each_row("object_id", [SCHEDULE, "a1b2c3d4e5f6", "nightly", "งาน"])
def test_button_data_round_trips(action: Action, object_id: str) -> None:
    data = encode(action, object_id, chat="-100200300", token=TOKEN)
    assert data is not None
    assert len(data.encode()) <= MAX_BYTES
    found = decode(data, chat="-100200300", token=TOKEN)
    assert found == ButtonPress(action=action, object_id=object_id)


@given(st.uuids())
def test_every_uuid_fits(value: uuid.UUID) -> None:
    for spelling in (str(value), str(value).upper(), value.hex):
        data = encode(Action.PAUSE, spelling, chat="1", token=TOKEN)
        assert data is not None
        found = decode(data, chat="1", token=TOKEN)
        assert found is not None
        assert found.object_id == spelling


def test_id_that_is_too_long_has_no_button() -> None:
    assert encode(Action.RUN, "x" * 60, chat="1", token=TOKEN) is None


def test_forged_data_is_rejected() -> None:
    data = encode(Action.RUN, SCHEDULE, chat="7", token=TOKEN)
    assert data is not None
    assert decode(data, chat="8", token=TOKEN) is None
    assert decode(data, chat="7", token="123456:another") is None
    other = encode(Action.RUN, str(uuid.uuid4()), chat="7", token=TOKEN)
    assert other is not None
    assert decode(data[:-16] + other[-16:], chat="7", token=TOKEN) is None
    for place in range(len(data)):
        changed = data[:place] + ("A" if data[place] != "A" else "B") + data[place + 1 :]
        assert decode(changed, chat="7", token=TOKEN) is None


@given(st.text(max_size=70))
def test_any_text_is_rejected(text: str) -> None:
    assert decode(text, chat="1", token=TOKEN) is None
