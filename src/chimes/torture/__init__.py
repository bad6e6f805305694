"""Fault injection: real nodes on a database, or a simulation, checked against the promise.

`chimes torture` starts nodes (`nodes`) on an empty database (`database`), with a proxy (`proxy`)
between each node and the server, creates and changes schedules over the API (`workload`), injects
faults by a plan (`faults`), and records every call at a receiver (`receiver`) that has no faults.
The records (`history`) are then checked (`checker`) with slots that are computed without code of
the product (`oracle`). `planted_bugs` are defects that the check has to find. `simulation` runs
the engine of several nodes in one process under a virtual clock.

No other part of Chimes imports this package, except the command.
"""
