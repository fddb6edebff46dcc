# rounds.sh ROUNDS PORT DEVICE...: an image comes and goes under load. A stream goes to the host's port, if that is not 0.
# A device BDF=DISK is given away in each round: another sandbox, `store`, writes to its first half.
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

here=/sys/bus/pci/devices

appears() { # DISK
    tries=0
    while [ ! -b "$1" ] && [ $tries -lt 100 ]; do usleep 100000; tries=$((tries + 1)); done
    [ -b "$1" ] || end "no $1"
}

# The first words of all functions' configuration spaces, which a kernel reads by ports.
words() {
    for function in "$here"/*; do
        echo "${function##*/} $(dd if="$function/config" bs=64 count=1 2>/dev/null | hexdump -v -e '16/4 "%x " "\n"')"
    done
}

# Each of the devices that are given away: Linux uses it.
before() {
    [ $n != 0 ] || words >/tmp/words
    grep -q "^0000:00:00.0 [0-9a-f]* " /tmp/words || end "no words of a configuration space: $(cat /tmp/words)"
    for pair in $given; do
        disk=${pair#*=}
        appears "$disk"
        dd if=/dev/zero of="$disk" bs=64k count=64 conv=notrunc,fsync 2>/dev/null || end "round $n: $disk: no zeros"
        dd if=/late/pattern of="$disk" bs=64k seek=128 conv=notrunc,fsync 2>/dev/null || end "round $n: $disk: a write failed"
        cat "$here/${pair%=*}/resource" >/tmp/resource-${pair%=*}
    done
}

# It is gone, and its new owner has written to it by then.
between() {
    [ $n != 0 ] || [ -z "$(words | grep -vxFf /tmp/words)" ] || end "other configuration spaces: $(words) $(cat /tmp/words)"
    for pair in $given; do
        for again in 1 2; do
            [ ! -e "$here/${pair%=*}" ] && [ ! -b "${pair#*=}" ] || end "round $n: $pair is here yet"
            [ $n != 0 ] || echo 1 >/sys/bus/pci/rescan
        done
        tries=0
        while ! bulkheadctl status store | grep -q "exited 0" && [ $tries -lt 100 ]; do usleep 100000; tries=$((tries + 1)); done
        [ $n != 0 ] || bulkheadctl --wait 1 console store </dev/null
        bulkheadctl status store | grep -q "exited 0" || end "round $n: $(bulkheadctl status store) $(bulkheadctl denials store)"
    done
}

# It is back, where it was, with the bytes of both.
after() {
    for pair in $given; do
        disk=${pair#*=}
        appears "$disk"
        cmp "$here/${pair%=*}/resource" /tmp/resource-${pair%=*} || end "round $n: $pair has other addresses"
        echo 3 >/proc/sys/vm/drop_caches
        dd if="$disk" bs=64k count=64 2>/dev/null | cmp - /late/guest || end "round $n: $disk: the guest's bytes"
        dd if="$disk" bs=64k skip=128 count=16 2>/dev/null | cmp - /late/pattern || end "round $n: $disk: other bytes"
    done
}

for driver in bulkhead virtio_pci virtio_blk nvme ahci sd_mod; do modprobe $driver 2>/dev/null; done
[ -c /dev/bulkhead ] || end "no module"
# QEMU's AHCI loses large commands behind an IOMMU, with and without an image.
[ ! -e /sys/block/sda ] || echo 64 >/sys/block/sda/queue/max_sectors_kb
dmesg -n 4
dmesg -c >/dev/null
sleep 1
work="" given=""
for device in "$@"; do
    case $device in
    *=*)
        given="$given $device"
        continue
        ;;
    esac
    appears "$device"
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
    before
    bulkheadctl machine enable /late/system.img >/tmp/said 2>&1 || end "round $n, enable: $(cat /tmp/said)"
    [ "$(cat /sys/devices/system/cpu/online)" != "$online" ] || end "round $n: no core is gone"
    beats=$(bulkheadctl exits --format json flight | tr -d ' \n') || end "round $n: no exits of flight"
    between
    bulkheadctl machine disable >/tmp/said 2>&1 && end "round $n: flight was ended without being asked"
    bulkheadctl stop flight >/tmp/said 2>&1 || end "round $n, stop: $(cat /tmp/said)"
    if [ $n = 0 ]; then
        for words in "list" "status" "exits" "start flight" "stop flight"; do
            bulkheadctl $words || end "bulkheadctl $words"
        done
    fi
    bulkheadctl denials ground >/tmp/said 2>&1
    bulkheadctl machine disable >/tmp/said 2>&1 || end "round $n, disable: $(cat /tmp/said)"
    after
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
# The kernel raises these two soft interrupts when a core has gone, and may see that they wait yet.
gone='NOHZ tick-stop error: local softirq work is pending, handler #44!!!'
# An interrupt of the timer waits while an image takes the machine, on a busy host for longer than this kernel likes.
late='hrtimer: interrupt took'
dmesg -r | grep -E '^<[0-4]>' | grep -vE "bulkhead: other sandboxes run|$page|$gone|$late" | sed 's/^/under: log /'
echo "under: done"
