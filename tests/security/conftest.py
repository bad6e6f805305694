from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.services.notifications import NotificationService


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node delivers here and the clock does not advance, so a test message has no result."""
    monkeypatch.setitem(NotificationService.send_test.__kwdefaults__, "wait", timedelta(0))
