# under.sh: what a Linux does before an image runs under it, meanwhile, and afterwards.
end() { echo "under: $1"; exit 1; }
dmesg -n 4
modprobe virtio_blk || end "no disk"
# The module would read the timer's count, which ends QEMU in virtual time.
modprobe bulkhead timer_hz=1000000000 || end "no module"
# What the boot has put off.
sleep 1

rows() {
    echo "under: $1"
    bhbench getpid fork_exec timer || end "bhbench"
    taskset 1 bhio disk=/dev/vda rand4k=2000 || end "bhio"
    bhbench apart
}

rows before
bulkheadctl machine enable /late/system.img || end "not enabled: $(dmesg | tail -3)"
rows on
echo "under: load"
for load in "bhbench smp 200" "bhbench forkexec 100" "bhio disk=/dev/vda rand4k=500"; do
    $load || end "$load"
done
bhbench apart
bulkheadctl stop flight || end "flight does not stop"
bulkheadctl machine disable || end "not disabled: $(dmesg | tail -3)"
rows off
echo "under: done"
