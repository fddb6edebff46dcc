#!/usr/bin/env bash
# What runs inside a Linux guest: the kernels (tools/kernels.sh), our programs
# below linux/, and the initramfs images made of them:
#   target/artifacts/{guest,test,ctl,bench,demo,virtio,virtio-stock,checks,stress,iperf,web,peer}.cpio
#   target/artifacts/disk-{6.1,6.12}[-cloud].cpio, each for its kernel: they go on
#   in the Debian on a disk (tools/disk.sh)
# Runs as often as one likes; nothing changes unless a source did.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

TARGET=x86_64-unknown-linux-musl
PROGRAMS=${CARGO_TARGET_DIR:-target}/$TARGET/linux
BUSYBOX=$(command -v busybox) || die "no busybox; run tools/setup.sh"

"$ROOT/tools/kernels.sh"
"$ROOT/tools/disk.sh"
"$ROOT/tools/module.sh"
mkdir -p "$ARTIFACTS"
crates=()
for manifest in linux/*/Cargo.toml; do
    crates+=(-p "$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -1)")
done
cargo build --locked -q --profile linux --target "$TARGET" "${crates[@]}"
cargo build --locked -q --release -p bulkhead-initramfs

# In C, with its library: static, because an initramfs has no others. The linker would warn of a resolver that nobody
# calls.
cargo build --locked -q --release -p bulkhead-channel-c
gcc -std=c11 -O2 -Wall -Wextra -Werror -static -s -Wl,--gc-sections,--no-warnings -Ilinux/support/c/include -Isdk/include linux/support/c/examples/bhback.c \
    "${CARGO_TARGET_DIR:-target}/release/libbulkhead_channel_c.a" -o "$ARTIFACTS/bhback"

initramfs() { # NAME PROGRAM-OR-ENTRY...
    local out=$ARTIFACTS/$1.cpio program
    local -a entries=(dir:/proc dir:/sys dir:/dev dir:/tmp dir:/etc
        dev:/dev/console=5:1 "busybox:/bin/busybox=$BUSYBOX"
        "file:/init=$PROGRAMS/bulkhead-init")
    shift
    for program in "$@"; do
        case $program in
        *:*) entries+=("$program") ;;
        *) entries+=("file:/bin/$program=$PROGRAMS/$program") ;;
        esac
    done
    "${CARGO_TARGET_DIR:-target}/release/bulkhead-initramfs" "$out" "${entries[@]}"
}

# For Linuxes of users' own systems (`bulkhead new`): channels, networks and disks over them, and other sandboxes.
# It has no /sbin/modprobe, with which the kernel would run programs, and take exits, long before its own first one.
initramfs guest bhchannel bhio bhtrue bhview bhvirtio bulkheadctl "tree:/=$ARTIFACTS/modules-6.12-cloud"
initramfs test bhattack bhbench bhchannel bhtrue bhview
initramfs ctl bulkheadctl
initramfs bench bhbench bhtrue
initramfs hang bulkheadctl bhtrue "file:/bhhang.ko=$ARTIFACTS/bhhang.ko"
initramfs probe bulkhead-probe "file:/machine.toml=machines/qemu-q35.toml"

# Drivers and our programs; all else is on the disk.
for modules in "$ARTIFACTS"/linux-*.modules; do
    kernel=$(basename "$modules" .modules)
    initramfs "disk-${kernel#linux-}" bhbench bhchannel bhtrue bhio "file:/bin/bhback=$ARTIFACTS/bhback" "tree:/=$modules" \
        link:/sbin/modprobe=/bin/busybox
done

initramfs demo bhview bhbench bhchannel bhtrue bhdemo bhio bulkheadctl "tree:/=$ARTIFACTS/modules-6.12-cloud" \
    file:/etc/bulkhead/systems/demo.toml=systems/demo.toml file:/etc/bulkhead/machines/qemu-q35.toml=machines/qemu-q35.toml \
    link:/etc/bulkhead/system.toml=systems/demo.toml link:/sbin/modprobe=/bin/busybox

# Empty file systems, with a journal and without, for a disk that a test makes.
EMPTY=$ARTIFACTS/ext4.gz
EMPTY_2=$ARTIFACTS/ext2.gz
empty() { # FILE KIND OPTION...
    local file=$1 kind=$2
    shift 2
    [ -f "$file" ] && return
    truncate -s 24M "$file.new"
    mke2fs -q -F -t "$kind" -b 4096 -m 0 "$@" -U 6a1f0c52-0f5e-4c8e-9d0b-b0c1bead0002 "$file.new" || die "mke2fs failed"
    gzip -9nf "$file.new" && mv "$file.new.gz" "$file"
}
empty "$EMPTY" ext4 -J size=4
empty "$EMPTY_2" ext2

# Our module with the drivers that it serves, for Debian's cloud kernels, and for its stock ones.
modules=() stock=()
for tree in "$ARTIFACTS"/modules-6*; do
    case $tree in
    *-cloud) modules+=("tree:/=$tree") ;;
    *) stock+=("tree:/=$tree") ;;
    esac
done
virtio=(bhbench bhchannel bhio bhtrue bhvirtio bulkheadctl "file:/ext4.gz=$EMPTY" link:/sbin/modprobe=/bin/busybox)
initramfs virtio "${virtio[@]}" "${modules[@]}"
initramfs virtio-stock "${virtio[@]}" "${stock[@]}"

# With this machine's programs that check a disk, and what they link to.
entries=()
for program in dmsetup e2fsck; do
    path=$(command -v "$program") || die "no $program; run tools/setup.sh"
    entries+=("file:/bin/$program=$path")
    while read -r library; do
        [[ " ${entries[*]} " == *" file:$library="* ]] || entries+=("file:$library=$(readlink -f "$library")")
    done < <(ldd "$path" | grep -o '/[^ ]*')
done
initramfs checks bhfs "file:/ext2.gz=$EMPTY_2" "${virtio[@]}" "${modules[@]}" "${entries[@]}"

# And with stress-ng and fio, for longer runs.
initramfs stress bhfs "file:/ext2.gz=$EMPTY_2" "${virtio[@]}" "${modules[@]}" "${entries[@]}" "tree:/stress=$ARTIFACTS/stress-ng" "tree:/fio=$ARTIFACTS/fio"

# Streams between two of them, with our module and without.
initramfs iperf bhchannel bhio bhvirtio "tree:/=$ARTIFACTS/modules-6.12-cloud" "tree:/=$ARTIFACTS/iperf3" link:/sbin/modprobe=/bin/busybox

# A client of a web server: ours, and Debian's.
initramfs web bhweb bhtrue "tree:/=$ARTIFACTS/modules-6.12-cloud" "tree:/=$ARTIFACTS/httperf" link:/sbin/modprobe=/bin/busybox

# The peer: a Linux with KVM that boots what the sandboxes boot. Its modules
# belong to linux-6.12, so that is the kernel to start it with.
if [ -d "$ARTIFACTS/modules" ]; then
    modules=()
    for module in "$ARTIFACTS"/modules/*.ko; do
        modules+=("file:/lib/modules/$(basename "$module")=$module")
    done
    initramfs peer kvm-peer "${modules[@]}" \
        "file:/peer/kernel=$ARTIFACTS/linux-6.12-cloud" "file:/peer/initrd=$ARTIFACTS/bench.cpio"
fi
