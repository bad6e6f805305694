from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import POSTGRES, shared
from tests.servers.copies import copied_database

#: Files about the set-up of a database start from an empty one.
_ABOUT_SET_UP = ("conversion", "faults", "migration", "schema")


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own. Its tables exist already, because a copy costs a fraction of
    the migrations."""
    server = shared(POSTGRES)
    empty = any(word in request.path.stem for word in _ABOUT_SET_UP)
    url = server.new_database() if empty else copied_database()
    yield url
    server.drop_database(url)
