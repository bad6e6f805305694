#!/bin/sh
# Debian packages that the tests need, installed when they are missing and we are root.
set -eu
missing=""
command -v openssl >/dev/null || missing="$missing openssl"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "The tests need:$missing. Install them and try again." >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
