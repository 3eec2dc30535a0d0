#!/usr/bin/env bash
# Runs govulncheck, whose path is the first argument, and fails if the code calls a vulnerable function. The
# list of vulnerabilities comes from vuln.go.dev, or from the address in GOVULNDB, such as file:///srv/vulndb. If that
# cannot be reached, the script says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

tool=$1
shift
status=0
out=$("$tool" ${GOVULNDB:+-db "$GOVULNDB"} "$@" 2>&1) || status=$?
case $status:$out in
*'fetching vulnerabilities:'*)
	echo "vulnerabilities were not looked up: $(grep -m1 'fetching vulnerabilities:' <<<"$out")" >&2
	exit 0
	;;
esac
echo "$out"
exit "$status" # 3 for a finding
