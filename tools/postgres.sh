#!/usr/bin/env bash
# Makes sure that tests can start a PostgreSQL of their own. They look for initdb on PATH and
# then where Debian puts its versions; a DATABASE_URL spares them the search.
set -euo pipefail
cd "$(dirname "$0")"

have_initdb() {
	command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

if [ -n "${DATABASE_URL:-}" ] || have_initdb; then
	exit 0
fi
# Debian's package starts a server unless its configuration says otherwise.
if [ "$(id -u)" -eq 0 ] && [ ! -e /etc/postgresql-common ] && command -v apt-get >/dev/null; then
	mkdir -p /etc/postgresql-common/createcluster.d
	echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/carillon.conf
fi
./need.sh initdb postgresql
