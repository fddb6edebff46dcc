# again.sh: a Linux that began anew. Its disk counts the lives: the second one reboots, the third one does so by force,
# and a finding ends the fourth one.
end() { echo "under: $1"; exit 1; }
# Tells if the disk controller reaches memory that has no driver in the new kernel.
masters() {
    command=$(dd if=/sys/bus/pci/devices/0000:00:1f.2/config bs=1 skip=4 count=1 2>/dev/null | hexdump -e '1/1 "%d"')
    echo "$((command & 4))"
}
[ ! -e /sys/bus/pci/devices/0000:00:1f.2/driver ] || end "the controller has a driver"
[ "$(masters)" = 0 ] || end "a device of before goes on"
for driver in virtio_pci virtio_blk; do modprobe $driver 2>/dev/null; done
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 100 ]; do usleep 100000; tries=$((tries + 1)); done
[ -b /dev/vda ] || end "no disk: $(dmesg | tail -30)"
lives=$(dd if=/dev/vda bs=512 count=1 2>/dev/null | tr -dc x | wc -c)
echo "under: life $((lives + 1)): cores $(cat /sys/devices/system/cpu/online)"
[ "$(grep -c ^processor /proc/cpuinfo)" = 2 ] || end "it has other cores"
dd if=/dev/vda bs=64k skip=16 count=16 2>/dev/null | cmp - /late/pattern || end "other bytes"
dd if=/late/pattern of=/dev/vda bs=64k seek=32 conv=notrunc,fsync 2>/dev/null || end "a write failed"
echo 3 >/proc/sys/vm/drop_caches
dd if=/dev/vda bs=64k skip=32 count=16 2>/dev/null | cmp - /late/pattern || end "other bytes after a write"
# Its end of the channel is a function that it has found at its boot.
modprobe bulkhead || end "no module"
bhchannel list
bhchannel talk channel=news role=woken ms=1000 >/tmp/said 2>&1 || end "no news: $(cat /tmp/said) $(dmesg | grep 00:10)"
sed 's/^/under: news: /' /tmp/said
bulkheadctl list || end "no list"
bulkheadctl status flight | grep -q running || end "flight does not run"
[ $lives = 3 ] || { head -c $((lives + 1)) /dev/zero | tr '\0' x | dd of=/dev/vda bs=512 conv=notrunc,fsync 2>/dev/null; }
case $lives in
0) reboot -f ;;
1) echo b >/proc/sysrq-trigger ;;
2)
    # The block is in no map of its memory but as reserved, and a look there ends its life.
    block=$(sed -n 's/^\([0-9a-f]*\)-[0-9a-f]*[7f]ffffff : Reserved$/\1/p' /proc/iomem | head -1)
    dd if=/dev/mem bs=4096 skip=$((0x$block / 4096)) count=1 2>&1 | hexdump -C | head -2
    end "it read the block at $block: $(cat /proc/iomem)"
    ;;
esac
dmesg -r | grep -E '^<[0-3]>' | sed 's/^/under: log /'
# The machine is not this Linux' to give back, nor to give away again.
bulkheadctl machine enable /late/pattern 2>&1
dmesg | grep -q "bulkhead: this Linux is a sandbox already" || end "no refusal: $(dmesg | tail -3)"
insmod /late/bhstrike.ko act=release
# -1: there is no such call. It would be -4 in a first life, while others run.
dmesg | grep -q "bhstrike: release: got -1$" || end "it may leave: $(dmesg | tail -3)"
echo "under: done"
