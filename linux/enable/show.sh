#!/bin/sh
# Shown by `make run-under-linux`, in a Debian that was there first: an image comes, runs beside it, and goes.
here=/run/bulkhead
say() { printf '\n== %s\n' "$*"; }
failed() { echo "under-linux: $*"; exit 1; }
has() { echo "this Linux has cores $(cat /sys/devices/system/cpu/online) and $(($(sed -n 's/MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024)) MiB"; }

say "This Debian was here first"
sed -n 's/PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release
has
say "Its module, then the image"
insmod $here/uio.ko 2>/dev/null
insmod $here/bulkhead.ko || failed "no module"
bulkheadctl machine enable $here/system.img || failed "not enabled"
has
say "A flight controller runs beside it"
bulkheadctl list || failed "no list"
bulkheadctl status flight
sysbench cpu --time=2 run | grep 'events per second' || failed "no sysbench"
bulkheadctl exits flight
say "The machine comes back when flight has ended, not before"
bulkheadctl machine disable && failed "flight was ended"
bulkheadctl stop flight || failed "flight does not stop"
bulkheadctl machine disable || failed "not disabled"
has
say "KVM works again"
for module in irqbypass ccp kvm kvm-amd; do insmod $here/$module.ko 2>/dev/null; done
[ -c /dev/kvm ] || failed "no /dev/kvm"
kvm-peer $here/guest-kernel $here/guest-initrd 256 console=ttyS0 reboot=t bulkhead.run=boot bulkhead.then=reboot |
    grep -E 'bulkhead-init: user space|the guest ended' || failed "no guest"
dmesg -r | grep -E '^<[0-4]>' | grep -E 'WARNING: CPU|BUG: |Oops|Call Trace' && failed "the kernel complains"
echo "under-linux: done"
