#!/usr/bin/env bash
# Prints the path of a Terraform client: $CARILLON_TERRAFORM, else terraform or tofu on PATH,
# else OpenTofu, built once into .cache/ from its Go module (some four minutes on two cores).
# Only the path goes to stdout; progress goes to stderr.
set -euo pipefail
cd "$(dirname "$0")/.."

clients=(terraform tofu)
if [ -n "${CARILLON_TERRAFORM:-}" ]; then
	clients=("$CARILLON_TERRAFORM")
fi
for client in "${clients[@]}"; do
	if path=$(command -v "$client"); then
		case $path in /*) echo "$path" ;; *) echo "$PWD/$path" ;; esac
		exit 0
	fi
done
if [ -n "${CARILLON_TERRAFORM:-}" ]; then
	echo "CARILLON_TERRAFORM=$CARILLON_TERRAFORM is not a program" >&2
	exit 1
fi

version=$(awk '$1 == "github.com/opentofu/opentofu" { print $2 }' tools/opentofu/go.mod)
tofu=$PWD/.cache/bin/tofu-$version
if [ ! -x "$tofu" ]; then
	echo "neither terraform nor tofu is installed: building OpenTofu $version, once, into .cache/" >&2
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
