#!/usr/bin/env bash
# Prints the path of promtool, which checks the alerts of examples/prometheus. It is the one on PATH, or the one in
# Debian's package prometheus, which is unpacked into .cache/ once and not installed: it would start a server.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v promtool; then
	exit 0
fi
bin=$PWD/.cache/promtool/usr/bin/promtool
if [ ! -x "$bin" ]; then
	if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
		echo "promtool is not installed. It is part of Prometheus: https://prometheus.io/download" >&2
		exit 1
	fi
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	chmod 755 "$dir" # apt downloads as a user of its own
	fetch() { (cd "$dir" && apt-get download -q prometheus >&2); }
	fetch || { apt-get update -q >&2 && fetch; }
	# It is renamed when it is complete, so that a concurrent process never runs a part of it.
	mkdir -p "$(dirname "$bin")"
	dpkg -x "$dir"/prometheus_*.deb "$dir/unpacked"
	whole=$(mktemp "$bin.XXXXXX")
	trap 'rm -rf "$dir" "$whole"' EXIT
	cp "$dir/unpacked/usr/bin/promtool" "$whole"
	chmod 755 "$whole"
	mv "$whole" "$bin"
fi
echo "$bin"
