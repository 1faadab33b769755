#!/bin/sh
# Compiles the program for both architectures, and writes the results and MANIFEST: to be run after each change of a
# source here. It needs p4c-dpdk and p4c-bm2-ss of p4c 1.2.3.7, and jq; P4C_16_INCLUDE_PATH names p4c's include files
# if they are not installed. Results of these versions run on DPDK 22.11.
# Usage: build.sh [--check | FOLDER for the results]
set -eu
cd "$(dirname "$0")"
sources="emit.p4 gatun.p4 headers.p4 host.p4 lookup.p4 psa.p4 read.p4 rewrite.p4 states.p4 sums.p4 v1model.p4 build.sh"
results="gatun.spec gatun.json psa.p4info.txt v1model.p4info.txt"
out=${1:-.}
if [ "$out" = --check ]; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi

# Warnings about keys that are copied to metadata, and about the meter, are expected: see the sources.
p4c-dpdk --arch psa --Wdisable=mismatch --Wdisable=unsupported psa.p4 -o "$out/gatun.spec" \
	--p4runtime-files "$out/psa.p4info.txt"
# The compiler reads the ingress port of the parser from a field that nobody writes.
sed -i 's/m\.psa_ingress_parser_input_metadata_ingress_port/m.psa_ingress_input_metadata_ingress_port/' "$out/gatun.spec"
p4c-bm2-ss v1model.p4 -o "$out/long.json" --p4runtime-files "$out/v1model.p4info.txt"
# Without places in the sources, the file has a third of its size.
jq -c 'del(.. | .source_info?)' "$out/long.json" >"$out/gatun.json"
rm "$out/long.json"

{
	p4c-bm2-ss --version 2>&1 | sed -n 's|^Version \([^ ]*\).*|p4c \1|p'
	# shellcheck disable=SC2086 # lists of names
	sha256sum $sources
	# shellcheck disable=SC2086
	(cd "$out" && sha256sum $results)
} >"$out/MANIFEST"
if [ "${1-}" = --check ]; then
	for file in $results MANIFEST; do
		cmp "$out/$file" "$file" || exit 1
	done
	echo "p4: the results are those of the sources"
fi
