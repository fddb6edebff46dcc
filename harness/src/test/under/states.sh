# states.sh: a Linux that cannot be partitioned as it has been booted. It says why, and goes on. The argument is the text.
# QEMU 10.0.2 does not remap the serial port's line, so a Linux with the IOMMU prints through the kernel's log alone.
say() { echo "<3>under: $1" >/dev/kmsg; }
end() { say "$1: $(cat /tmp/said)"; exit 1; }
text=$(echo "$1" | tr _ ' ')
mount -t securityfs none /sys/kernel/security 2>/dev/null
modprobe bulkhead >/tmp/said 2>&1
bulkheadctl machine enable /late/system.img >/tmp/said 2>&1 && end "it was enabled"
{ cat /tmp/said; dmesg; } | grep -q "$text" || end "nobody says \"$text\""
say "refused: $text"
[ "$(cat /sys/devices/system/cpu/online)" = 0-1 ] || end "cores are gone"
say done
