#!/usr/bin/env bash
# test.sh FLAG... PACKAGE... runs "go test -json" for gotestsum. If the packages are all, ./..., it tests the benchmarks
# by themselves, because next to others they measure nothing in the time that they have. It tests those that start
# machines and many Terraforms after the others, whose nodes are expected to be punctual, and the module of the
# release tool as well, so that one summary counts everything.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

failed=0
if [ "${*: -1}" != ./... ]; then
	go test -json "$@" || failed=1
	exit "$failed"
fi
flags=("${@:1:$#-1}")
heavy='/(terraform|test/(bench|release))$'
mapfile -t light < <(go list ./... | grep -vE "$heavy")
go test -json "${flags[@]}" "${light[@]}" || failed=1
go test -json "${flags[@]}" ./test/bench || failed=1
go test -json "${flags[@]}" ./terraform ./test/release || failed=1
go -C tools/release test -json "${flags[@]}" ./... || failed=1
exit "$failed"
