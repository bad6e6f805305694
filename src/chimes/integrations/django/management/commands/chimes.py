"""`manage.py chimes worker`, `manage.py chimes serve`: the chimes command with Django set up."""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chimes.errors import ConfigError
from chimes.integrations.cli import run_command


class Command(BaseCommand):
    help = "Runs the chimes command for the application of CHIMES_APP: worker, serve, list, …"
    requires_system_checks: ClassVar[list[str]] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """All options belong to the chimes command, so Django does not read them."""
        try:
            run_command(argv[2:], str(getattr(settings, "CHIMES_APP", "")), setting="CHIMES_APP")
        except ConfigError as error:
            self.stderr.write(f"CommandError: {error.message}")
            sys.exit(os.EX_USAGE)

    def handle(self, *args: Any, **options: Any) -> None:
        raise CommandError("start this command from the command line: manage.py chimes worker")
