#!/bin/sh
# Compiles and links C for Bulkhead:
#
#   cc.sh guest OUTPUT FILE.c... [LIBRARY.a]...     a bare guest
#   cc.sh program OUTPUT FILE.c... [LIBRARY.a]...   a program of the kernel
#
# CC and LD name other tools. An installation has this file in the folders that it has in the source tree.
# SPDX-License-Identifier: Apache-2.0 OR MIT
set -eu
# A link to this file leads here.
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
[ $# -ge 3 ] || {
    echo "usage: cc.sh guest|program OUTPUT FILE.c... [LIBRARY.a]..." >&2
    exit 2
}
kind=$1 output=$2
shift 2
cc="${CC:-gcc} -m64 -std=c11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -fno-stack-protector
    -fno-asynchronous-unwind-tables -fcf-protection=none -ffunction-sections -fdata-sections"
case $kind in
guest)
    own="$root/sdk/c/arch/x86.S $root/sdk/c/arch/x86.c $root/sdk/c/bulkhead.c $root/sdk/c/text.c $root/sdk/c/pci.c"
    # Interrupts save no vector registers, and the SDK's functions are called in them.
    flags="-mno-red-zone -I$root/sdk/include" own_flags=-mgeneral-regs-only link_flags= script=$root/sdk/guest.ld
    ;;
program)
    own="$root/program/c/program.c $root/sdk/c/text.c"
    # Its threads have no vector registers, unless the manifest says so; interrupts do not use its stack.
    flags="-mgeneral-regs-only -I$root/program/include" own_flags= link_flags=-S script=$root/program/program.ld
    ;;
*)
    echo "cc.sh: \`$kind\` is neither \`guest\` nor \`program\`" >&2
    exit 2
    ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$(dirname "$output")"
objects=
libraries=
number=0
compile() { # FILE FLAG...
    number=$((number + 1))
    file=$1
    shift
    $cc $flags "$@" -c "$file" -o "$work/$number.o"
    objects="$objects $work/$number.o"
}
# Paths have no blanks.
for file in $own; do
    case $file in
    *.S) compile "$file" ;;
    *) compile "$file" $own_flags ;;
    esac
done
for file in "$@"; do
    case $file in
    *.a) libraries="$libraries $file" ;;
    *) compile "$file" ;;
    esac
done
${LD:-ld} -static $link_flags --gc-sections --build-id=none -z max-page-size=4096 -T "$script" \
    $objects $libraries -o "$output"
