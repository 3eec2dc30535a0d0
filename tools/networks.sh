#!/usr/bin/env bash
# Makes sure, as root, that chaos can give nodes networks of the kernel's own and cut them. Anyone who
# is not root has none, and whatever is missing the run does without.
set -euo pipefail
cd "$(dirname "$0")"

if [ "$(id -u)" -eq 0 ]; then
	./need.sh ip iproute2 && ./need.sh nft nftables || true
fi
