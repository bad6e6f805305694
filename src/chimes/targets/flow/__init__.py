"""Flows: a graph of steps, each of which is a task, carried out as child runs."""

from chimes.targets.flow.definition import Flow, FlowBuilder, RunIf, Step
from chimes.targets.flow.runner import FlowRunner

__all__ = ["Flow", "FlowBuilder", "FlowRunner", "RunIf", "Step"]
