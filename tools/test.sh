#!/bin/sh
# Everything that must hold: the checks, then every test in parallel, with branch coverage.
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin
sh tools/packages.sh
make --no-print-directory check
exec "$bin/pytest" -n "${CHIMES_TEST_WORKERS:-auto}" --dist worksteal -q \
    --cov --cov-report=term:skip-covered --cov-report= "$@"
