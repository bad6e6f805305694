#!/bin/sh
# As root, installs missing Debian packages that the tests need; with --long also those of the long
# tests. No service is started: the tests start their own servers.
set -eu
missing=""
long=""
for argument in "$@"; do
    [ "$argument" = --long ] && long=1
done
PATH="$PATH:/usr/sbin:/usr/local/sbin"

has() { command -v "$1" >/dev/null; }
may_install() { [ "$(id -u)" = 0 ] && has apt-get; }
# Debian keeps the programs of PostgreSQL outside the PATH.
has_postgres() {
    for program in /usr/lib/postgresql/*/bin/initdb; do
        [ -x "$program" ] && return 0
    done
    has initdb && has postgres
}

# Without these fonts Thai and Chinese text is shown as boxes.
has_fonts() { [ -d /usr/share/fonts/truetype/noto ] && [ -d /usr/share/fonts/opentype/noto ]; }

has openssl || missing="$missing openssl"
has jq || missing="$missing jq"
has_postgres || missing="$missing postgresql"
has mariadbd && has mariadb-install-db || missing="$missing mariadb-server"
has redis-server || missing="$missing redis-server"
# The script of RabbitMQ in the PATH starts only the service of the machine.
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing="$missing rabbitmq-server"
has nats-server || missing="$missing nats-server"
has setpriv || missing="$missing util-linux"
# The headless browser needs a sixth of the CPU time per page; the full browser works as well.
has "${CHIMES_CHROMIUM:-chromium-headless-shell}" || { has chromium && ! may_install; } ||
    missing="$missing chromium-headless-shell"
has_fonts || missing="$missing fonts-noto-core fonts-noto-cjk"
if [ -n "$long" ]; then
    has patroni || missing="$missing patroni python3-etcd"
    has etcd || missing="$missing etcd-server"
    has ip || missing="$missing iproute2"
fi
[ -z "$missing" ] && exit 0

if ! may_install; then
    echo "The tests need:$missing. Install them and try again." >&2
    exit 1
fi
echo "Installing for the tests:$missing ..." >&2

# This policy prevents server packages from starting their service.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
case "$missing" in *postgresql*)
    # Do not create and start a cluster for the machine.
    mkdir -p /etc/postgresql-common/createcluster.d
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/chimes-tests.conf
    ;;
esac
log=$(mktemp)
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; }
# Ubuntu has no package of the headless browser.
install_all() {
    apt-get update -qq -o Acquire::http::Timeout=20
    case "$missing" in *chromium-headless-shell*)
        missing=${missing%chromium-headless-shell*}${missing#*chromium-headless-shell}
        install chromium-headless-shell || has chromium || install chromium || return 1
        ;;
    esac
    [ -z "${missing# }" ] || install $missing
}
if ! install_all >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    exit 1
fi
rm -f "$log"
