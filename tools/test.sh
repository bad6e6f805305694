#!/bin/sh
# Everything that must hold: the checks, then every test in parallel. Branch coverage doubles
# the time of a test, so it has a target of its own (`make coverage`).
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin
sh tools/packages.sh
make --no-print-directory check
# Most tests wait for processes and servers, so there are more of them than cores.
workers=${CHIMES_TEST_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) * 2))}
exec "$bin/pytest" -n "$workers" --dist worksteal -q "$@"
