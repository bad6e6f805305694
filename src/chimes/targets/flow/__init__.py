"""Flows: a graph of steps, each a task that runs as a child run."""

from chimes.targets.flow.definition import Flow, FlowBuilder, RunIf, Step
from chimes.targets.flow.runner import FlowRunner

__all__ = ["Flow", "FlowBuilder", "FlowRunner", "RunIf", "Step"]
