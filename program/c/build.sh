#!/bin/sh
# Builds a program of the kernel in C: build.sh OUTPUT FILE.c... [LIBRARY.a]...
# SPDX-License-Identifier: Apache-2.0 OR MIT
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
output=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$(dirname "$output")"
# Its threads have no vector registers, unless the manifest says so; interrupts do not use its stack.
cc="${CC:-gcc} -m64 -std=c11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -fno-stack-protector -mgeneral-regs-only
    -fno-asynchronous-unwind-tables -fcf-protection=none -ffunction-sections -fdata-sections -I$root/program/include"
objects=
libraries=
number=0
for file in "$root/program/c/program.c" "$root/sdk/c/text.c" "$@"; do
    case $file in
    *.a) libraries="$libraries $file" && continue ;;
    esac
    number=$((number + 1))
    $cc -c "$file" -o "$work/$number.o"
    objects="$objects $work/$number.o"
done
# Paths without blanks, as everywhere in tools/.
${LD:-ld} -static -S --gc-sections --build-id=none -z max-page-size=4096 -T "$root/program/program.ld" \
    $objects $libraries -o "$output"
