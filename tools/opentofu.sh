#!/usr/bin/env bash
# Prints the path of OpenTofu: $CARILLON_TOFU, else tofu on PATH, else the one in .cache/, which it builds once
# from its Go module (some four minutes on two cores). With --no-build it prints nothing instead of building.
# Only the path goes to stdout; progress goes to stderr.
set -euo pipefail
cd "$(dirname "$0")/.."

if path=$(command -v "${CARILLON_TOFU:-tofu}"); then
	case $path in /*) echo "$path" ;; *) echo "$PWD/$path" ;; esac
	exit 0
fi
if [ -n "${CARILLON_TOFU:-}" ]; then
	echo "CARILLON_TOFU=$CARILLON_TOFU is not a program" >&2
	exit 1
fi

version=$(awk '$1 == "github.com/opentofu/opentofu" { print $2 }' tools/opentofu/go.mod)
tofu=$PWD/.cache/bin/tofu-$version
if [ ! -x "$tofu" ]; then
	if [ "${1:-}" = --no-build ]; then
		exit 0
	fi
	echo "tofu is not installed: building OpenTofu $version, once, into .cache/" >&2
	mkdir -p .cache/bin
	# -v names every package as it is compiled: 1,700 of them on a fresh machine.
	CGO_ENABLED=0 go -C tools/opentofu build -v -trimpath -buildvcs=false -o "$tofu.$$" \
		-ldflags '-s -w -X github.com/opentofu/opentofu/version.dev=no' \
		github.com/opentofu/opentofu/cmd/tofu 2>&1 |
		awk '
			/^go: downloading/    { got++; next }
			/^[A-Za-z0-9.\/_~-]+$/ { if (++built % 100 == 0) say(); next }
			                      { print }
			END                   { say() }
			function say()        { printf "  %d modules downloaded, %d packages compiled\n", got, built; fflush() }
		' >&2
	mv "$tofu.$$" "$tofu" # a build cut short leaves nothing that looks finished
fi
echo "$tofu"
