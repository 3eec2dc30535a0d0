#!/usr/bin/env bash
# test.sh FLAG... PACKAGE... runs "go test -json" for gotestsum. If the packages are all, ./..., it tests the module
# of the release tool as well, so that one summary counts everything.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

failed=0
go test -json "$@" || failed=1
if [ "${*: -1}" = ./... ]; then
	go -C tools/release test -json "$@" || failed=1
fi
exit "$failed"
