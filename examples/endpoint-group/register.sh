#!/bin/sh
# Runs a worker as a member of an endpoint group of Carillon: registers it while it runs, and removes it when it ends.
#
#   CARILLON_ENDPOINT=https://carillon.internal:8080 CARILLON_TOKEN=... \
#     ./register.sh billing/workers w-1 http://10.20.0.11:8080 ./worker --port 8080
#
# The token needs the scope register. HEARTBEAT is the number of seconds between two registrations, 30 by default; make it
# the heartbeat of the group.
set -eu

group=$1 id=$2 url=$3
shift 3
endpoint="$CARILLON_ENDPOINT/v1/apps/${group%/*}/groups/${group#*/}/endpoints/$id"

request() {
	curl --fail --silent --show-error --max-time 10 --output /dev/null \
		--header "Authorization: Bearer $CARILLON_TOKEN" --header "Content-Type: application/json" "$@" "$endpoint"
}

# A heartbeat that fails is made up for by the next one, long before the endpoint expires.
heartbeats() {
	trap 'exit 0' TERM # after the request that is in flight, so that it cannot follow the last one
	while :; do
		request --request PUT --data "{\"url\": \"$url\"}" || true
		sleep "${HEARTBEAT:-30}" >/dev/null 2>&1 &
		wait $!
	done
}

# No new requests first, then no worker: it ends those that it has.
leave() {
	kill "$heart" && wait "$heart"
	request --request DELETE || true
}

"$@" &
worker=$!
heartbeats &
heart=$!
stopping=
trap 'trap "" INT TERM; stopping=1; leave; kill "$worker"' INT TERM

status=0
wait "$worker" || status=$?
if [ -z "$stopping" ]; then
	leave # the worker ended by itself
else
	wait "$worker" || status=$? # the signal ended the first wait
fi
exit "$status"
