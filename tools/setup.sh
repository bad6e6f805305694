#!/bin/sh
# Creates .venv with the pinned versions. Needs only Python >= 3.11; as root on Debian it installs a
# missing venv module. Usage: setup.sh run|dev
set -eu
cd "$(dirname "$0")/.."
kind=${1:-run}
uv_version=0.13.7

stamp=$(cat pyproject.toml requirements.lock requirements-dev.lock requirements-tap.lock tools/setup.sh | cksum | tr -c '0-9\n' '-')
if [ -f ".venv/.$kind-$stamp" ] && [ -x .venv/bin/chimes ]; then
    exit 0
fi

find_python() {
    for candidate in python3.13 python3.12 python3.11 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "Chimes needs Python 3.11 or newer; none was found on the PATH." >&2
    exit 1
}

make_venv() {
    rm -rf .venv
    "$python" -m venv .venv >/dev/null 2>&1
}

echo "Setting up .venv ..." >&2
python=$(find_python)
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    if ! make_venv; then
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            echo "$python cannot create a virtual environment: install its venv module" >&2
            echo "(Debian and Ubuntu: apt-get install python3-venv) and try again." >&2
            exit 1
        fi
        apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            python3-venv python3-pip >&2
        make_venv
    fi
fi

if ! .venv/bin/uv --version 2>/dev/null | grep -q "^uv $uv_version"; then
    .venv/bin/python -m pip --version >/dev/null 2>&1 || .venv/bin/python -m ensurepip >/dev/null
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
fi

lock=requirements.lock
[ "$kind" = dev ] && lock=requirements-dev.lock
# The first argument is the environment. Behind a proxy that re-signs TLS only the system certificates
# are valid.
install() {
    environment=$1
    shift
    .venv/bin/uv pip install --quiet --python "$environment/bin/python" "$@" 2>.venv/uv.log ||
        .venv/bin/uv pip install --quiet --system-certs --python "$environment/bin/python" "$@" ||
        { cat .venv/uv.log >&2; exit 1; }
}
install .venv --require-hashes -r "$lock"
install .venv --no-deps --no-build-isolation -e .
if [ "$kind" = dev ]; then
    # A Singer tap for tests, in an environment of its own: a tap pins what it needs.
    .venv/bin/uv venv --quiet --clear --python .venv/bin/python .venv/tap
    install .venv/tap --require-hashes -r requirements-tap.lock
fi
rm -f .venv/.run-* .venv/.dev-*
touch ".venv/.run-$stamp"
[ "$kind" = dev ] && touch ".venv/.dev-$stamp"
exit 0
