# states.sh: a Linux that cannot be partitioned as it has been booted. It says why, and goes on. The argument is the text.
end() { echo "under: $1: $(cat /tmp/said) $(dmesg | tail -3)"; exit 1; }
text=$(echo "$1" | tr _ ' ')
dmesg -n 4
mount -t securityfs none /sys/kernel/security 2>/dev/null
modprobe bulkhead >/tmp/said 2>&1
for disk in virtio_pci virtio_blk; do modprobe $disk 2>/dev/null; done
bulkheadctl machine enable /late/system.img >/tmp/said 2>&1 && end "it was enabled"
{ cat /tmp/said; dmesg; } | grep -q "$text" || end "nobody says \"$text\""
echo "under: refused $text"
cat /sys/devices/system/cpu/online
echo "under: done"
