"""Executors of runs, one folder per kind of target. Targets never see the store."""
