#!/bin/sh
# Runs the tests and the checks in parallel; arguments are those of pytest. Branch coverage doubles the
# time of a test, so it has a separate target (`make coverage`).
set -eu
cd "$(dirname "$0")/.."
# Tests read no input. With a closed stdin the first opened file would get descriptor 0.
exec </dev/null
bin=.venv/bin
sh tools/packages.sh "$@"
# With it each worker compiles every test, and each process the whole package.
unset PYTHONDONTWRITEBYTECODE
# With a lower priority than the tests the checks would be the last to finish.
report=$(mktemp)
make --no-print-directory check >"$report" 2>&1 &
checks=$!
trap 'kill "$checks" 2>/dev/null || true; rm -f "$report"' EXIT
# More workers than cores, because most tests wait.
workers=${CHIMES_TEST_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) * 3))}
code=0
"$bin/pytest" -n "$workers" --dist worksteal -q --durations=25 "$@" || code=$?
wait "$checks" || code=1
cat "$report"
exit "$code"
