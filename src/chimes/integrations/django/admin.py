"""The link in the admin: it leads to the dashboard at the setting CHIMES_DASHBOARD_URL."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from chimes.integrations.django.models import Dashboard

#: Of `chimes serve` with its default settings.
DEFAULT_URL = "http://127.0.0.1:7100/ui/"


@admin.register(Dashboard)
class DashboardAdmin(admin.ModelAdmin):  # type: ignore[type-arg,misc,unused-ignore]
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return HttpResponseRedirect(getattr(settings, "CHIMES_DASHBOARD_URL", DEFAULT_URL))

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
