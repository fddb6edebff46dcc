# audit.sh: the host audits the machine while an image runs, and looks at the block when it has ended.
end() { echo "under: $1"; exit 1; }
modprobe bulkhead || end "no module"
dmesg -n 4
bulkheadctl machine enable /late/system.img || end "not enabled"
echo "under: block $(bulkheadctl machine status | sed 's/.* at \(0x[0-9a-f]*\) .*/\1/')"
# The host stops the machine meanwhile.
sleep 5
bulkheadctl stop flight || end "flight does not stop"
bulkheadctl machine disable || end "not disabled: $(dmesg | tail -3)"
echo "under: off"
sleep 5
echo "under: done"
