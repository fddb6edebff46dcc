#!/usr/bin/env bash
# `make run-under-linux`: Debian's kernel boots a Debian from a disk in QEMU. An image comes there, gives a core and
# memory to a flight controller, and goes again (linux/enable/show.sh, docs/under-linux.md). With a terminal there is a
# shell afterwards; Ctrl-A X ends QEMU. Without one, or with CI=true, the exit code says if all of it was seen.
#
#   tools/under-linux.sh [SCRIPT [WORD [SECONDS [FOLDER]]]]     another script, a word for the kernel's command line
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

SCRIPT=${1:-linux/enable/show.sh} WORD=${2:-} SECONDS_MOST=${3:-240} DIR=${4:-target/run-under-linux}
KERNEL=linux-6.12
mkdir -p "$DIR"
BUILD=${CARGO_TARGET_DIR:-target}/release
"$BUILD/bulkhead" build systems/under-linux.toml --under-linux --cores 3 -o "$DIR/system.img"
entries=(file:/etc/bulkhead/system.img="$DIR/system.img" file:/bin/under-linux="$SCRIPT")
for module in "$ARTIFACTS/modules-6.12"/lib/modules/*/{bulkhead,uio}.ko "$ARTIFACTS"/modules/*.ko; do
    entries+=("file:/etc/bulkhead/$(basename "$module")=$module")
done
entries+=("file:/etc/bulkhead/guest-kernel=$ARTIFACTS/linux-6.12-cloud" "file:/etc/bulkhead/guest-initrd=$ARTIFACTS/bench.cpio")
"$BUILD/bulkhead-initramfs" "$DIR/own.cpio" "${entries[@]}"
cat "$ARTIFACTS"/{disk-6.12,ctl,peer}.cpio "$DIR/own.cpio" >"$DIR/initramfs.cpio"

live=
[ -t 0 ] && [ -t 1 ] && [ "${CI:-}" != true ] && live=1
# The machine of the description, with Debian behind its first disk.
mapfile -t described < <(sed -n '/^args = \[/,/^\]/p' machines/qemu-q35.toml | grep -o '"[^"]*"' | tr -d '"')
qemu=(qemu-system-x86_64 "${described[@]}" -accel "tcg,thread=multi" -smp 3 -m 6G
    -drive "if=none,id=disk0,format=raw,snapshot=on,file=$ARTIFACTS/debian.img"
    -kernel "$ARTIFACTS/$KERNEL" -initrd "$DIR/initramfs.cpio")
for n in 1 2 3; do qemu+=(-drive "if=none,id=disk$n,driver=null-co,size=64M,read-zeroes=on"); done
for n in 0 1 2; do qemu+=(-netdev "user,id=net$n"); done
line="console=ttyS0,115200 loglevel=4 amd_iommu=off hpet=disable bulkhead.root=/dev/vda bulkhead.run=under-linux $WORD"
if [ "$live" ]; then
    exec "${qemu[@]}" -serial mon:stdio -append "$line bulkhead.then=shell" 2>"$DIR/qemu.log"
fi
status=0
limited "$SECONDS_MOST" "${qemu[@]}" -serial "file:$DIR/serial.log" -append "$line" 2>"$DIR/qemu.log" </dev/null || status=$?
tr -d '\r' <"$DIR/serial.log" | sed -n '/^== /,$p'
[ "$status" = 0 ] || die "QEMU ended with $status: $DIR/qemu.log, $DIR/serial.log"
grep -q '^under-linux: done' "$DIR/serial.log" || die "not all of it was seen: $DIR/serial.log"
