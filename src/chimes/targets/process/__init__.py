"""Child processes shared by Python tasks and sync tasks: start, read, stop."""
