"""Tests of `chimes torture`; `python -m tests.system.torture` runs it on throw-away servers."""
