#!/usr/bin/env bash
# As root, makes sure that chaos can give nodes separate network namespaces and cut them. Without root, or
# if a program is missing, the run works without them.
set -euo pipefail
cd "$(dirname "$0")"

if [ "$(id -u)" -eq 0 ]; then
	./need.sh ip iproute2 && ./need.sh nft nftables || true
fi
