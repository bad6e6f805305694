"""Django app: `manage.py chimes`, enqueueing in Django's transactions, a link in the admin.

    INSTALLED_APPS = [..., "chimes.integrations.django"]
    CHIMES_APP = "shop.tasks:app"

`enqueue(task, *args)` works in views and in models.
"""

from __future__ import annotations

from typing import Any

from chimes.integrations.sync_app import SyncApp
from chimes.runtime.app_loader import load_app
from chimes.sdk.app import Chimes
from chimes.sdk.tasks import Enqueuer


def project_app() -> Chimes:
    """The application that the setting CHIMES_APP names."""
    from django.conf import settings

    return load_app(str(getattr(settings, "CHIMES_APP", "")), setting="CHIMES_APP")


class DjangoChimes(SyncApp):
    def join_transaction(self, task: Enqueuer[Any, Any]) -> Enqueuer[Any, Any]:
        """Inside `transaction.atomic()` on the database of the store a run is part of the
        transaction: it exists if and when that commits. `CHIMES_DATABASE` names another entry of
        DATABASES than `default`; None: runs are always enqueued at once."""
        from django.conf import settings
        from django.db import connections

        alias = getattr(settings, "CHIMES_DATABASE", "default")
        if alias is None or task.has_connection or not connections[alias].in_atomic_block:
            return task
        database = connections[alias]
        database.ensure_connection()
        return task.with_connection(database.connection)


_chimes = DjangoChimes(project_app)
enqueue = _chimes.enqueue
run_handle = _chimes.run_handle
