"""Measures fail-overs: see `tests.ha`."""

from __future__ import annotations

import argparse
import json

from tests.ha.cluster import Cluster
from tests.ha.scenario import FAULTS, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ha", description=__doc__)
    parser.add_argument("--mode", choices=("sync", "async"), action="append")
    parser.add_argument("--fault", choices=FAULTS, action="append")
    given = parser.parse_args()
    for mode in given.mode or ("sync", "async"):
        with Cluster(mode) as cluster:
            for fault in given.fault or FAULTS:
                print(json.dumps(run(cluster, fault).as_dict()), flush=True)


if __name__ == "__main__":
    main()
