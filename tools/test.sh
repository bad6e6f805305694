#!/bin/sh
# Everything that must hold: the checks, then every test in parallel. Branch coverage doubles
# the time of a test, so it has a target of its own (`make coverage`).
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin
sh tools/packages.sh
make --no-print-directory check
exec "$bin/pytest" -n "${CHIMES_TEST_WORKERS:-auto}" --dist worksteal -q "$@"
