#!/usr/bin/env bash
# test.sh FLAG... runs "go test -json" on $PACKAGES for gotestsum, which adds -test.run and a package for a test that
# failed. If the packages are all, ./..., it tests the benchmarks by themselves, because next to others they measure
# nothing in the time that they have. It tests those that start machines and many Terraforms after the others, whose nodes
# are expected to be punctual, and the module of the release tool as well, so that one summary counts everything.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

release=tools/release # a module of its own
if [[ " $* " == *" -test.run="* ]]; then
	flags=()
	for flag in "$@"; do
		[[ $flag == -run=* ]] || flags+=("$flag")
	done
	[[ ${*: -1} == */"$release"* ]] || release=.
	exec go -C "$release" test -json "${flags[@]}"
fi
if [ "$PACKAGES" != ./... ]; then
	# shellcheck disable=SC2086 # several packages, and flags of theirs
	exec go test -json "$@" $PACKAGES
fi
failed=0
heavy='/(terraform|test/(bench|release))$'
mapfile -t light < <(go list ./... | grep -vE "$heavy")
go test -json "$@" "${light[@]}" || failed=1
go test -json "$@" ./test/bench || failed=1
go test -json "$@" ./terraform ./test/release || failed=1
go -C "$release" test -json "$@" ./... || failed=1
exit "$failed"
