#!/usr/bin/env bash
# tools/vmlinux.sh BZIMAGE OUT: the ELF file that a Linux bzImage is packed from. A guest's `kernel` may name it: such
# a guest starts without unpacking itself, which takes an emulator about a second.
#
# The header says where the packed part lies (Documentation/arch/x86/boot.rst: setup_sects, payload_offset,
# payload_length). Its last four bytes are the unpacked length.
set -euo pipefail

die() {
    printf '\033[1;31merror:\033[0m %s\n' "$*" >&2
    exit 1
}

# number OFFSET BYTES: a little-endian number of the image.
number() { od -An -v -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }

[ $# -eq 2 ] || die "usage: tools/vmlinux.sh BZIMAGE OUT"
image=$1 out=$2
[ -r "$image" ] || die "cannot read $image"
[ "$(od -An -c -j 514 -N 4 "$image" | tr -d ' ')" = HdrS ] ||
    die "$image is no bzImage: the mark HdrS at 0x202 is missing; give a distribution's /boot/vmlinuz-…"

sectors=$(number 497 1)
[ "$sectors" -ne 0 ] || sectors=4
start=$(((sectors + 1) * 512 + $(number 584 4)))
length=$(number 588 4)
size=$(number $((start + length - 4)) 4)

trap 'rm -f "$out.new" "$out.packed"' EXIT
tail -c +$((start + 1)) "$image" | head -c $((length - 4)) >"$out.packed" || true
magic=$(od -An -t x1 -N 4 "$out.packed" | tr -d ' ')
case $magic in
1f8b*) unpack="gzip -dc" needs=gzip ;;
fd377a58) unpack="xz -dc --single-stream" needs=xz-utils ;;
28b52ffd) unpack="zstd -dcq" needs=zstd ;;
02214c18) unpack="lz4 -dcq" needs=lz4 ;;
425a68*) unpack="bzip2 -dc" needs=bzip2 ;;
5d0000*) unpack="xz -dc --format=lzma" needs=xz-utils ;;
*) die "$image is packed in a way that is not known here (it begins with $magic); use the bzImage itself" ;;
esac
command -v "${unpack%% *}" >/dev/null || die "${unpack%% *} is missing: apt-get install $needs"
# What follows the packed part is not the unpacker's: it may complain of it. The length below says what counts.
$unpack <"$out.packed" >"$out.new" 2>/dev/null || true
[ "$(stat -c %s "$out.new")" -ge "$size" ] && [ "$(head -c 4 "$out.new" | od -An -t x1 | tr -d ' ')" = 7f454c46 ] ||
    die "$image could not be unpacked by $unpack: $(stat -c %s "$out.new") of $size bytes"
mv "$out.new" "$out"
