#!/usr/bin/env bash
# The rules of CONTRIBUTING that no linter knows. Prints every breach, then fails.
set -euo pipefail
cd "$(dirname "$0")/.."
breaches=0

breach() { # breach RULE LINES
	if [ -n "$2" ]; then
		printf '%s:\n%s\n' "$1" "$2" >&2
		breaches=1
	fi
}

files() { # files TEST... prints the files that pass the tests of find
	find . \( -path ./.git -o -path ./.cache -o -path ./.carillon -o -name node_modules -o -name testdata \) -prune -o \
		-type f \( "$@" \) -print | sed 's#^\./##' | sort
}
go_files() { files -name '*.go'; }

breach "not as gofmt writes it" "$(go_files | xargs gofmt -l)"
breach "longer than 500 lines" "$(go_files | xargs wc -l | awk '$2 != "total" && $1 > 500')"

# The tag of a struct's field cannot be broken into lines, nor can a table, a block of code or an address.
# The pages of docs/provider are generated.
breach "a line of Go longer than 140 columns" "$(go_files | xargs perl -CSD -ne '
	chomp; print "$ARGV:$.: ", length, " columns\n" if length > 140 && !/`[a-z]+:"/; close ARGV if eof')"
breach "a line of docs longer than 100 columns" "$(files -name '*.md' | grep -v '^docs/provider/' | xargs perl -CSD -ne '
	chomp; $code = !$code if /^\s*```/;
	print "$ARGV:$.: ", length, " columns\n" if length > 100 && !$code && !/^\s*\||:\/\/|\]\(/;
	if (eof) { close ARGV; $code = 0 }')"

# A skipped test looks like a pass. test/need fails it with CI=true; a test that may be skipped even then says so.
breach "a test that is skipped without a word about CI=true; see test/need" "$(files -name '*_test.go' |
	xargs grep -nE '\bt\.(Skip|Skipf|SkipNow)\(' | grep -vE '// .*CI=true' || true)"

# No test measures the machine.
go run ./tools/check clocks || breaches=1

# One thing has one word; tools/words.txt has the words that are not used, and CHANGELOG.md lists renamed things.
breach "a word that Carillon does not use" "$(files -name '*.go' -o -name '*.md' -o -name '*.sql' -o -name '*.sh' \
	-o -name '*.tf' -o -name '*.yml' -o -name '*.json' -o -name '*.tmpl' -o -name Makefile -o -path ./.ci/run |
	xargs perl tools/words.pl tools/words.txt)"

# Committed files work anywhere: they name no directory of the machine they were written on, and no
# module proxy or package registry other than the public ones.
machine_words() {
	echo "${HOME:-/nowhere}/"
	case $PWD in /*/*) echo "$PWD" ;; esac
	{ go env GOPROXY && npm config get registry; } 2>/dev/null | tr ',|' '\n' |
		sed -n 's#^[a-z]*://\([^/@]*@\)\{0,1\}\([^/]\{1,\}\).*#\2#p' |
		grep -vxE 'proxy\.golang\.org|registry\.npmjs\.org' || true
}
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
	breach "names this machine" "$(git grep -nIF -f <(machine_words) || true)"
fi
exit "$breaches"
