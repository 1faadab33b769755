#!/bin/sh
# Compiles the program, and writes fastpath.o and MANIFEST: to be run after each change of a source here.
# The object depends on the compiler alone: no path of this machine gets into it.
# Usage: build.sh [FOLDER for the results]
set -eu
cd "$(dirname "$0")"
out=${1:-.}
clang=${CLANG:-clang-14}
"$clang" -O2 -g -Wall -Wextra -Werror -mcpu=v3 -target bpf -fdebug-compilation-dir=. \
	-I"/usr/include/$(uname -m)-linux-gnu" -c fastpath.bpf.c -o "$out/fastpath.o"
"${STRIP:-llvm-strip-14}" -g "$out/fastpath.o"
{
	"$clang" --version | head -n 1
	sha256sum layout.h decide.h siit.h xdp.h fastpath.bpf.c
	(cd "$out" && sha256sum fastpath.o)
} > "$out/MANIFEST"
