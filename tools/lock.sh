#!/bin/sh
# Compiles requirements.lock, requirements-dev.lock and requirements-tap.lock. No header and no
# annotations: a lock names packages, versions, markers and hashes, never the address they came from.
set -eu
cd "$(dirname "$0")/.."
compile() {
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate "$@"
}
# The extras for tests and web frameworks belong to applications: a node does not need them.
compile pyproject.toml --extra all --group build -o requirements.lock
compile --group pyproject.toml:tap -o requirements-tap.lock
compile pyproject.toml --extra all --group build --group dev -c requirements.lock -o requirements-dev.lock
