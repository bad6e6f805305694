"""A model without a table, so that the admin can list a link to the dashboard."""

from __future__ import annotations

from django.db import models


class Dashboard(models.Model):
    class Meta:
        managed = False
        app_label = "chimes"
        verbose_name = "dashboard"
        verbose_name_plural = "schedules and runs"
        # The view permission shows the link; the dashboard has its own sign-in.
        default_permissions = ("view",)
