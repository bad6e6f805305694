"""The torture harness (RELIABILITY 4): real nodes, a real store, faults, and a checker that judges
the history with its own idea of what should have happened. `python -m tests.system.torture`."""
