#!/usr/bin/env bash
# Prints the path of a Terraform client: $CARILLON_TERRAFORM, else terraform on PATH, else OpenTofu as
# opentofu.sh finds or builds it. Only the path goes to stdout; progress goes to stderr.
set -euo pipefail
cd "$(dirname "$0")/.."

if path=$(command -v "${CARILLON_TERRAFORM:-terraform}"); then
	case $path in /*) echo "$path" ;; *) echo "$PWD/$path" ;; esac
	exit 0
fi
if [ -n "${CARILLON_TERRAFORM:-}" ]; then
	echo "CARILLON_TERRAFORM=$CARILLON_TERRAFORM is not a program" >&2
	exit 1
fi
exec tools/opentofu.sh
