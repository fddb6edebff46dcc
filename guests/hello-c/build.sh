#!/bin/sh
# Builds the bare guest in C of this folder: build.sh [OUTPUT [LIBRARY.a]...]; default
# target/x86_64-unknown-none/guest/guest-FOLDER. Other guests link to this file.
# SPDX-License-Identifier: Apache-2.0 OR MIT
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
output=${1:-$root/target/x86_64-unknown-none/guest/guest-$(basename "$here")}
[ $# -eq 0 ] || shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$(dirname "$output")"
cc="${CC:-gcc} -m64 -std=c11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -fno-stack-protector
    -fno-asynchronous-unwind-tables -fcf-protection=none -mno-red-zone -ffunction-sections -fdata-sections -I$root/sdk/include"
$cc -c "$root/sdk/c/arch/x86.S" -o "$work/entry.o"
$cc -mgeneral-regs-only -c "$root/sdk/c/arch/x86.c" -o "$work/arch.o"
$cc -mgeneral-regs-only -c "$root/sdk/c/bulkhead.c" -o "$work/bulkhead.o"
$cc -mgeneral-regs-only -c "$root/sdk/c/text.c" -o "$work/text.o"
$cc -mgeneral-regs-only -c "$root/sdk/c/pci.c" -o "$work/pci.o"
$cc -c "$here/main.c" -o "$work/main.o"
${LD:-ld} -static --gc-sections --build-id=none -z max-page-size=4096 -T "$root/sdk/guest.ld" \
    "$work"/entry.o "$work"/arch.o "$work"/bulkhead.o "$work"/text.o "$work"/pci.o "$work"/main.o "$@" -o "$output"
