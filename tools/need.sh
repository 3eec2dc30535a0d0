#!/usr/bin/env bash
# need.sh COMMAND PACKAGE... makes sure that COMMAND is there. As root on Debian it installs
# the packages; anywhere else it names the line to run and fails.
set -euo pipefail

cmd=$1
shift
if command -v "$cmd" >/dev/null; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "$cmd is not installed. On Debian or Ubuntu: sudo apt-get install -y $*" >&2
	exit 1
fi
echo "installing $* for $cmd" >&2
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends "$@" >&2; }
install "$@" || { apt-get update -q >&2 && install "$@"; }
