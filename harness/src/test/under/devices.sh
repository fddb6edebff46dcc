# devices.sh: devices of each kind are given away and come back. Those in use are refused. Steps fail behind the take.
end() { echo "under: $1: $(cat /tmp/said) $(dmesg | tail -3)"; exit 1; }
here=/sys/bus/pci/devices

appears() { # FILE
    tries=0
    while [ ! -e "$1" ] && [ $tries -lt 100 ]; do usleep 100000; tries=$((tries + 1)); done
    [ -e "$1" ] || end "no $1"
}

# Expects that an image is refused with a text in the kernel's log.
refused() { # NAME IMAGE TEXT
    dmesg -c >/dev/null
    bulkheadctl machine enable "/late/$2" >/tmp/said 2>&1 && end "$1: it was enabled"
    dmesg | grep -q "bulkhead: .*$3" || end "$1: the log has no \"$3\""
    [ "$(bulkheadctl machine status)" = "off: this Linux has the machine" ] || end "$1: $(bulkheadctl machine status)"
    echo "under: refused $1"
}

# The driver has its device, at the addresses of before, and the disk works.
works() { # BDF DISK
    appears "$here/$1/driver"
    [ "$(cat $here/$1/resource)" = "$(cat /tmp/resource-$1)" ] || end "$1 has other addresses"
    [ -z "$2" ] && return
    appears "$2"
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/late/pattern of="$2" bs=64k seek=128 conv=notrunc,fsync 2>/dev/null || end "$2: a write failed"
    dd if="$2" bs=64k skip=128 count=16 2>/dev/null | cmp - /late/pattern || end "$2: other bytes"
}

# Another sandbox has the device for its life.
gives() { # IMAGE BDF DISK EXIT-CODE
    if [ -n "$3" ]; then
        dd if=/dev/zero of="$3" bs=64k count=64 conv=notrunc,fsync 2>/dev/null || end "$3: no zeros"
    fi
    bulkheadctl machine enable "/late/$1" >/tmp/said 2>&1 || end "$1 is not enabled"
    [ -z "$2" ] || [ ! -e "$here/$2" ] || end "$2 is here"
    tries=0
    while ! bulkheadctl status store | grep -q "exited" && [ $tries -lt 150 ]; do usleep 100000; tries=$((tries + 1)); done
    bulkheadctl --wait 1 console store </dev/null
    bulkheadctl status store | grep -q "exited $4" || end "$1: $(bulkheadctl status store) $(bulkheadctl denials store)"
    bulkheadctl denials ground
    bulkheadctl stop flight >/tmp/said 2>&1 || end "flight does not stop"
    bulkheadctl machine disable >/tmp/said 2>&1 || end "$1 is not disabled"
    if [ -n "$3" ]; then
        appears "$3"
        dd if="$3" bs=64k count=64 2>/dev/null | cmp - /late/guest || end "$3: the guest's bytes"
    fi
    [ -z "$2" ] || works "$2" "$3"
    echo "under: given $1"
}

for driver in bulkhead virtio_pci virtio_blk nvme ahci sd_mod; do modprobe $driver 2>/dev/null; done
[ -c /dev/bulkhead ] || end "no module"
dmesg -n 4
echo >/tmp/said
for disk in /dev/vda /dev/vdb /dev/nvme0n1 /dev/sda; do appears $disk; done
echo 64 >/sys/block/sda/queue/max_sectors_kb
for bdf in 0000:00:04.0 0000:00:07.0 0000:00:1f.2 0000:01:00.0; do cat $here/$bdf/resource >/tmp/resource-$bdf; done

# In use.
sleep 20 </dev/nvme0n1 & holder=$!
usleep 200000
refused "a disk that is open" system.img "its disk nvme0n1 is in use: unmount it"
works 0000:00:07.0 ""
kill $holder
wait $holder 2>/dev/null
refused "an interface that is up" net.img "its interface eth0 is up: ip link set eth0 down"
echo 1 >$here/0000:00:07.0/remove
refused "a device that is not there" system.img "PCI function 00:07.0, which the image wants, is not here"
echo 1 >/sys/bus/pci/rescan
appears /dev/nvme0n1
# The kernel has chosen its addresses anew, and those are not the described ones.
if [ "$(cat $here/0000:00:07.0/resource)" != "$(cat /tmp/resource-0000:00:07.0)" ]; then
    refused "a device elsewhere" system.img "PCI function 0x0:0x7.0"
    end "the disk is elsewhere"
fi

# Steps that fail behind it: the disk is back each time.
for step in 11 5 6 8 9; do
    echo $step >/sys/module/bulkhead/parameters/fail
    case $step in
    8 | 9) refused "step $step" system.img "did not enter its monitor" ;;
    *) refused "step $step" system.img "step $step fails, as it was told to" ;;
    esac
    works 0000:00:07.0 /dev/nvme0n1
done
echo 0 >/sys/module/bulkhead/parameters/fail

gives system.img 0000:00:07.0 /dev/nvme0n1 0
gives virtio.img 0000:00:04.0 /dev/vdb 0
gives ahci.img 0000:00:1f.2 /dev/sda 0
# The guest finds no disk there.
ip link set eth0 down
gives net.img 0000:01:00.0 "" 2
appears /sys/class/net/eth0
ip link set eth0 up
tries=0
while [ "$(cat /sys/class/net/eth0/carrier 2>/dev/null)" != 1 ] && [ $tries -lt 100 ]; do usleep 100000; tries=$((tries + 1)); done
[ "$(cat /sys/class/net/eth0/carrier)" = 1 ] || end "eth0 has no carrier"

# A serial port: in use, and then not.
sleep 20 </dev/ttyS1 & holder=$!
usleep 200000
refused "a serial port that is open" uart.img "ttyS1 is in use"
kill $holder
wait $holder 2>/dev/null
gives uart.img "" "" 0
echo works >/dev/ttyS1 || end "ttyS1 does not work"
dmesg -r | grep -E '^<[0-3]>' | grep -v "bulkhead: " | sed 's/^/under: log /'
echo "under: done"
