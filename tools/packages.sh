#!/bin/sh
# Debian packages that the tests need, installed when they are missing and we are root. No service
# is started: the tests run servers of their own.
set -eu
missing=""
PATH="$PATH:/usr/sbin:/usr/local/sbin"

has() { command -v "$1" >/dev/null; }
# Debian keeps PostgreSQL's own programs where no PATH leads.
has_postgres() {
    for program in /usr/lib/postgresql/*/bin/initdb; do
        [ -x "$program" ] && return 0
    done
    has initdb && has postgres
}

# Without them Thai and Chinese are boxes on screenshots.
has_fonts() { [ -d /usr/share/fonts/truetype/noto ] && [ -d /usr/share/fonts/opentype/noto ]; }

has openssl || missing="$missing openssl"
has_postgres || missing="$missing postgresql"
has mariadbd && has mariadb-install-db || missing="$missing mariadb-server"
has redis-server || missing="$missing redis-server"
has setpriv || missing="$missing util-linux"
has "${CHIMES_CHROMIUM:-chromium}" || missing="$missing chromium"
has_fonts || missing="$missing fonts-noto-core fonts-noto-cjk"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] || ! has apt-get; then
    echo "The tests need:$missing. Install them and try again." >&2
    exit 1
fi
echo "Installing for the tests:$missing ..." >&2

# Packages of servers ask here whether they may start them.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
case "$missing" in *postgresql*)
    # One cluster of the machine's own would be one too many.
    mkdir -p /etc/postgresql-common/createcluster.d
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/chimes-tests.conf
    ;;
esac
log=$(mktemp)
if ! { apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } \
    >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    exit 1
fi
rm -f "$log"
