#!/bin/sh
# Everything that must hold: the checks, then every test in parallel. Branch coverage doubles
# the time of a test, so it has a target of its own (`make coverage`).
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin
sh tools/packages.sh
# Wherever it is set: each worker would compile every test anew, and processes the whole package.
unset PYTHONDONTWRITEBYTECODE
# Compiled once, on the core that the checks leave alone.
"$bin/pytest" --collect-only -q -p no:cacheprovider >/dev/null 2>&1 &
compiling=$!
make --no-print-directory check || { kill "$compiling"; exit 1; }
wait "$compiling" || true # the tests say what is wrong
# Most tests wait for processes and servers, so there are more of them than cores.
workers=${CHIMES_TEST_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) * 2))}
exec "$bin/pytest" -n "$workers" --dist worksteal -q --durations=25 "$@"
