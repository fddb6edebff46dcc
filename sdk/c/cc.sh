#!/bin/sh
# Compiles and links C for Bulkhead:
#
#   cc.sh guest OUTPUT FILE.c... [LIBRARY.a]...     a bare guest
#   cc.sh program OUTPUT FILE.c... [LIBRARY.a]...   a program of the kernel
#   cc.sh app OUTPUT FILE.c... [LIBRARY.a]...       a program of the kernel in plain C, with newlib
#
# CC and LD name other tools. CFLAGS goes behind the own flags for an app's files. An installation has this file in the folders that it has in the source tree.
# SPDX-License-Identifier: Apache-2.0 OR MIT
set -eu
# A link to this file leads here.
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
[ $# -ge 3 ] || {
    echo "usage: cc.sh guest|program|app OUTPUT FILE.c... [LIBRARY.a]..." >&2
    exit 2
}
kind=$1 output=$2
shift 2
gcc=${CC:-gcc}
cc="$gcc -m64 -O2 -fno-pic -fno-stack-protector -fno-asynchronous-unwind-tables -fcf-protection=none
    -ffunction-sections -fdata-sections"
strict="-std=c11 -Wall -Wextra -Werror -ffreestanding"
# Flags of the files that are named, and libraries behind theirs.
theirs=$strict last=
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
app)
    # An installation has it beside the SDK.
    newlib=$root/newlib
    [ -d "$newlib" ] || newlib=$root/target/artifacts/newlib
    [ -d "$newlib" ] || {
        echo "cc.sh: there is no newlib in $newlib; tools/newlib.sh builds it" >&2
        exit 1
    }
    own="$root/program/c/program.c $root/sdk/c/text.c $root/program/libc/lock.c $root/program/libc/start.c
        $root/program/libc/sync.c $root/program/libc/system.c $root/program/libc/thread.c"
    # GCC's headers, then ours, then newlib's; none of Linux, nor what GCC defines there.
    flags="-DBULKHEAD_APP -nostdinc -isystem $($gcc -print-file-name=include) -isystem $root/program/libc/include
        -isystem $root/program/include -isystem $newlib/include -D__DYNAMIC_REENT__ -D_POSIX_THREADS=200809L
        -D_POSIX_TIMERS=200809L -D_POSIX_MONOTONIC_CLOCK=200809L -D_POSIX_CLOCK_SELECTION=200809L"
    for name in __linux__ __linux linux __gnu_linux__ __unix__ __unix unix; do flags="$flags -U$name"; done
    own_only="-std=gnu11 -Wall -Wextra -Werror" own_flags=-fno-builtin theirs="-std=gnu17 -Wall ${CFLAGS:-}"
    link_flags=-S script=$root/program/program.ld
    last="--start-group $newlib/lib/libc.a $newlib/lib/libm.a $($gcc -print-libgcc-file-name) --end-group"
    ;;
*)
    echo "cc.sh: \`$kind\` is neither \`guest\`, \`program\` nor \`app\`" >&2
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
    *) compile "$file" ${own_only:-$strict} $own_flags ;;
    esac
done
for file in "$@"; do
    case $file in
    *.a) libraries="$libraries $file" ;;
    *) compile "$file" $theirs ;;
    esac
done
${LD:-ld} -static $link_flags --gc-sections --build-id=none -z max-page-size=4096 -z noexecstack -T "$script" \
    $objects $libraries $last -o "$output"
