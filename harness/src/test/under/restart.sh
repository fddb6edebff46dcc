# restart.sh: an image comes, and this Linux panics under load. Another sandbox begins it anew, with again.sh.
end() { echo "under: $1"; exit 1; }
for driver in bulkhead virtio_pci virtio_blk nvme ahci sd_mod; do modprobe $driver 2>/dev/null; done
dmesg -n 4
for disk in /dev/vda /dev/vdb /dev/nvme0n1 /dev/sda; do
    tries=0
    while [ ! -b $disk ] && [ $tries -lt 100 ]; do usleep 100000; tries=$((tries + 1)); done
    [ -b $disk ] || end "no $disk"
done
# Tells if the disk controller reaches memory.
masters() {
    command=$(dd if=/sys/bus/pci/devices/0000:00:1f.2/config bs=1 skip=4 count=1 2>/dev/null | hexdump -e '1/1 "%d"')
    echo "$((command & 4))"
}
[ "$(masters)" = 4 ] || end "the controller does not reach memory"
dd if=/dev/zero of=/dev/vda bs=512 count=1 conv=notrunc,fsync 2>/dev/null || end "no mark"
dd if=/late/pattern of=/dev/vda bs=64k seek=16 conv=notrunc,fsync 2>/dev/null || end "no pattern"
bulkheadctl machine enable /late/restart.img || end "not enabled: $(dmesg | tail -3)"
echo "under: block $(bulkheadctl machine status | sed 's/.* at \(0x[0-9a-f]*\) .*/\1/')"
# The devices are at work when it ends, and go on to write to memory.
while true; do dd if=/dev/vdb of=/tmp/read bs=1M count=16 iflag=direct 2>/dev/null; done &
while true; do dd if=/late/pattern of=/dev/vdb bs=64k conv=notrunc,fsync 2>/dev/null; done &
# A process waits for the channel's interrupt.
bhchannel talk channel=news role=woken ms=1000000 &
sleep 1
grep 'bulkhead$' /proc/interrupts || end "nobody waits for news"
echo "under: panics"
echo c >/proc/sysrq-trigger
