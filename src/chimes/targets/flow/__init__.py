"""Flows: a graph of steps, each of which is a task, carried out as child runs."""

from chimes.targets.flow.building import FlowBuilder
from chimes.targets.flow.definition import FLOW_TIMEOUT, Flow, RunIf, Step

__all__ = ["FLOW_TIMEOUT", "Flow", "FlowBuilder", "RunIf", "Step"]
