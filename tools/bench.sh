#!/usr/bin/env bash
# bench.sh BENCH [ARGUMENT...] runs BENCH, a built carillon-bench, with the arguments on the database of
# DATABASE_URL. Without one it starts a PostgreSQL for the run, which writes through to disk.
set -euo pipefail
bench=$(realpath "$1")
shift
if [ -n "${DATABASE_URL:-}" ]; then
	exec "$bench" "$@"
fi
"$(dirname "$0")/postgres.sh"
initdb=$(command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -1)
bin=$(dirname "$initdb")
dir=$(mktemp -d)
# PostgreSQL does not run as root.
as=()
if [ "$(id -u)" -eq 0 ]; then
	chown postgres "$dir"
	as=(setpriv --reuid postgres --regid postgres --init-groups)
fi
cd "$dir"
cleanup() {
	"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true
	rm -rf "$dir"
}
trap cleanup EXIT
"${as[@]}" "$initdb" -D "$dir/data" -U carillon -A trust >/dev/null
"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" start \
	-o "-k $dir -c listen_addresses= -c max_connections=200 -c shared_buffers=1GB -c max_wal_size=4GB" >/dev/null
CARILLON_DATABASE="postgres:///postgres?host=$dir&user=carillon" "$bench" "$@"
