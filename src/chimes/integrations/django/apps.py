"""Configuration of the Django app."""

from __future__ import annotations

from django.apps import AppConfig


class ChimesConfig(AppConfig):
    name = "chimes.integrations.django"
    label = "chimes"
    verbose_name = "Chimes"
    default = True
