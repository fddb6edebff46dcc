# rounds.sh ROUNDS PORT DEVICE...: an image comes and goes under load. A stream goes to the host's port, if that is not 0.
rounds=$1 port=$2
shift 2
end() { echo "under: $1"; exit 1; }

# Writes pieces to a disk and reads them back past the cache, until it is over.
disk() {
    n=0
    while [ ! -e /tmp/over ]; do
        dd if=/late/pattern of="$1" bs=64k seek=$((n % 8 * 16)) conv=notrunc,fsync 2>/dev/null || echo "under: $1: a write failed"
        echo 3 >/proc/sys/vm/drop_caches
        dd if="$1" bs=64k skip=$((n % 8 * 16)) count=16 2>/dev/null | cmp -s - /late/pattern || echo "under: $1: other bytes"
        n=$((n + 1))
        sleep 0.2
    done
    echo "under: $1: $n pieces"
}

for driver in bulkhead virtio_pci virtio_blk nvme ahci sd_mod; do modprobe $driver 2>/dev/null; done
[ -c /dev/bulkhead ] || end "no module"
# QEMU's AHCI loses large commands behind an IOMMU, with and without an image.
[ ! -e /sys/block/sda ] || echo 64 >/sys/block/sda/queue/max_sectors_kb
dmesg -n 4
dmesg -c >/dev/null
sleep 1
work=""
for device in "$@"; do
    tries=0
    while [ ! -b "$device" ] && [ $tries -lt 50 ]; do usleep 100000; tries=$((tries + 1)); done
    [ -b "$device" ] || end "no $device"
    disk "$device" & work="$work $!"
done
if [ "$port" != 0 ]; then
    { while [ ! -e /tmp/over ]; do cat /late/pattern; sleep 0.05; done; } | nc 10.0.2.2 "$port" & work="$work $!"
fi
sh -c 'while [ ! -e /tmp/over ]; do md5sum /late/pattern >/dev/null; usleep 50000; done' & work="$work $!"
online=$(cat /sys/devices/system/cpu/online)
before=$(grep -c . /proc/iomem)
total=$(awk '/MemTotal/ { print $2 }' /proc/meminfo)
n=0
while [ $n -lt "$rounds" ]; do
    bulkheadctl machine enable /late/system.img >/tmp/said 2>&1 || end "round $n, enable: $(cat /tmp/said)"
    [ "$(cat /sys/devices/system/cpu/online)" != "$online" ] || end "round $n: no core is gone"
    beats=$(bulkheadctl exits --format json flight | tr -d ' \n') || end "round $n: no exits of flight"
    bulkheadctl machine disable >/tmp/said 2>&1 && end "round $n: flight was ended without being asked"
    bulkheadctl stop flight >/tmp/said 2>&1 || end "round $n, stop: $(cat /tmp/said)"
    if [ $n = 0 ]; then
        for words in "list" "status" "exits" "start flight" "stop flight"; do
            bulkheadctl $words || end "bulkheadctl $words"
        done
    fi
    bulkheadctl denials ground >/tmp/said 2>&1
    bulkheadctl machine disable >/tmp/said 2>&1 || end "round $n, disable: $(cat /tmp/said)"
    n=$((n + 1))
done
touch /tmp/over
wait $work
[ "$(cat /sys/devices/system/cpu/online)" = "$online" ] || end "cores online: $(cat /sys/devices/system/cpu/online)"
after=$(awk '/MemTotal/ { print $2 }' /proc/meminfo)
[ "$after" -ge "$total" ] || end "memory before $total KiB, after $after KiB"
echo "under: $n rounds, memory $total and $after KiB, iomem lines $before and $(grep -c . /proc/iomem), $(dmesg | grep -c 'page dumped because: unmovable page') pages did not move"
# No complaints are its own lines, and those of a page that cannot move: another block is tried then.
page='\] (page:|flags: |raw: |head: |page_type: |anon flags: |page dumped because: unmovable page)'
dmesg -r | grep -E '^<[0-4]>' | grep -vE "bulkhead: other sandboxes run|$page" | sed 's/^/under: log /'
echo "under: done"
