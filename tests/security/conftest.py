from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.services.notifications import NotificationService


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody delivers here, and the clock stands still: nothing would become of a test message."""
    monkeypatch.setitem(NotificationService.send_test.__kwdefaults__, "patience", timedelta(0))
