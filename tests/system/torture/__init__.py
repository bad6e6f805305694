"""The torture harness: injects faults into real nodes on a real store and checks the recorded
history with an independent model. `python -m tests.system.torture`."""
