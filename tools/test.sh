#!/bin/sh
# Everything that must hold: every test in parallel, and the checks beside them. Branch coverage
# doubles the time of a test, so it has a target of its own (`make coverage`).
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin
sh tools/packages.sh
# Wherever it is set: each worker would compile every test anew, and processes the whole package.
unset PYTHONDONTWRITEBYTECODE
# Tests wait for processes and servers; the checks take what they leave of the cores.
said=$(mktemp)
nice make --no-print-directory check >"$said" 2>&1 &
checking=$!
trap 'kill "$checking" 2>/dev/null || true; rm -f "$said"' EXIT
# Compiled once, or each worker would compile all of it at the same time.
compiled=.pytest_cache/compiled
if [ ! -e "$compiled" ] || [ -n "$(find src tests "$bin/pytest" -name '*.py' -newer "$compiled" -print -quit)" ]; then
  mkdir -p .pytest_cache
  touch "$compiled.begun" # what changes from here on is newer
  # What cannot be collected is not compiled either, and the tests say what is wrong.
  "$bin/pytest" --collect-only -q -p no:cacheprovider >/dev/null 2>&1 && mv "$compiled.begun" "$compiled"
fi
# More than cores, for the same reason.
workers=${CHIMES_TEST_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) * 2))}
code=0
rm -f .pytest_cache/v/cache/lastfailed
"$bin/pytest" -n "$workers" --dist worksteal -q --durations=25 "$@" || code=$?
# A few that fail among thousands on a machine that others use are tried once more, alone and one
# after the other. What fails then fails; what passes is named above, and is a defect all the same.
again=5
if [ "$code" -eq 1 ]; then
  failed=$("$bin/python" -c 'import json, pathlib; file = pathlib.Path(".pytest_cache/v/cache/lastfailed"); print(len(json.loads(file.read_text())) if file.exists() else 0)')
  if [ "$failed" -gt 0 ] && [ "$failed" -le "$again" ]; then
    echo "once more, alone: $failed of these"
    "$bin/pytest" --last-failed -q -p no:randomly "$@" && code=0
  fi
fi
wait "$checking" || code=1
cat "$said"
exit "$code"
