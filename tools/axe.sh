#!/usr/bin/env bash
# Prints the path of axe-core, which checks the accessibility of the console. It comes from an npm package, for
# tests only, and is unpacked into .cache/ once.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.14.1
sum=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
file=$PWD/.cache/axe-core-$version/axe.min.js
if [ ! -f "$file" ]; then
	tools/need.sh npm npm
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	(
		cd "$scratch"
		npm pack --silent "axe-core@$version" >/dev/null
		# npm only compares the file with the sum that the registry names now.
		if ! echo "$sum  $(echo ./*.tgz)" | sha512sum --check --quiet - >&2; then
			echo "axe-core@$version is not the file whose sum is in tools/axe.sh" >&2
			exit 1
		fi
		tar xzf ./*.tgz
	)
	dir=$(dirname "$file")
	mkdir -p .cache
	rm -rf "$dir"
	mv "$scratch/package" "$dir" # a copy cut short leaves nothing that looks finished
fi
echo "$file"
