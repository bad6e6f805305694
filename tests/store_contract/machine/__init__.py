"""See `store_machine`."""

from tests.store_contract.machine.store_machine import StoreMachine, machine_for

__all__ = ["StoreMachine", "machine_for"]
