"""Targets of connections in `chimes.yaml`: engines that execute tasks, and brokers (ADR 72)."""
