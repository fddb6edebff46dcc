# refused.sh: each step of enabling fails in turn, and all is as before each time.
end() { echo "under: $1"; exit 1; }
modprobe bulkhead || end "no module"
dmesg -n 4
online=$(cat /sys/devices/system/cpu/online)
total=$(awk '/MemTotal/ { print $2 }' /proc/meminfo)

# Expects that an image is refused with a text in the kernel's log, and that nothing is lost.
refused() { # NAME FILE TEXT
    dmesg -c >/dev/null
    if bulkheadctl machine enable "$2" >/tmp/said 2>&1; then end "$1: it was enabled"; fi
    dmesg | grep -q "bulkhead: .*$3" || end "$1: the log has no \"$3\": $(dmesg | grep bulkhead)"
    [ "$(bulkheadctl machine status)" = "off: this Linux has the machine" ] || end "$1: $(bulkheadctl machine status)"
    [ "$(cat /sys/devices/system/cpu/online)" = "$online" ] || end "$1: cores online: $(cat /sys/devices/system/cpu/online)"
    now=$(awk '/MemTotal/ { print $2 }' /proc/meminfo)
    [ "$now" -ge "$total" ] || end "$1: memory before $total KiB, now $now KiB"
    total=$now
    echo "under: refused $1"
}

image=/late/system.img
len=$(stat -c %s $image)
head -c 100 $image >/tmp/short
refused "a cut image" /tmp/short "cut or damaged"
head -c $((len - 8)) $image >/tmp/short
refused "an image that lacks its end" /tmp/short "cut or damaged"
refused "no image" /late/pattern "no image that starts under a Linux"
cp $image /tmp/damaged
printf x | dd of=/tmp/damaged bs=1 seek=$((len / 2)) conv=notrunc 2>/dev/null
refused "a damaged image" /tmp/damaged "checksum does not match"
cp $image /tmp/damaged
printf '\7' | dd of=/tmp/damaged bs=1 seek=8 conv=notrunc 2>/dev/null
refused "an image of another release" /tmp/damaged "version 7"
refused "an image for more cores" /late/more.img "which is not online here"
refused "an image for fewer cores" /late/fewer.img "bulkhead build --cores"
for step in 1 2 3 4 5 6; do
    echo $step >/sys/module/bulkhead/parameters/fail
    refused "step $step" $image "step $step fails, as it was told to"
done
# The core does not come: its start-up is not sent.
echo 7 >/sys/module/bulkhead/parameters/fail
refused "a core that does not answer" $image "the core with APIC ID 1 did not start"
# A core does not enter its monitor when others have, or comes too late.
echo 8 >/sys/module/bulkhead/parameters/fail
refused "a core that its monitor does not get" $image "core 2 did not enter its monitor: the image's code refused it"
echo 9 >/sys/module/bulkhead/parameters/fail
refused "a core that comes too late" $image "core 2 did not enter its monitor: it came too late"
echo 0 >/sys/module/bulkhead/parameters/fail
bulkheadctl machine enable $image || end "not enabled: $(dmesg | tail -3)"
bulkheadctl machine enable $image 2>&1 | grep -q "an image runs already" || end "enabled twice"
# A kernel that gets a fault at a register of machine checks panics.
dmesg -c >/dev/null
echo 1 >/sys/devices/system/machinecheck/machinecheck0/check_interval
sleep 3
echo 300 >/sys/devices/system/machinecheck/machinecheck0/check_interval
dmesg | grep -q "MSR access" && end "an MSR: $(dmesg | grep MSR)"
rmmod bulkhead 2>/dev/null && end "the module went away under its image"
echo 0 >/sys/devices/system/cpu/cpu2/online 2>/dev/null && end "a core went offline"
echo mem >/sys/power/state 2>/dev/null && end "the machine was put to sleep"
bulkheadctl stop flight || end "flight does not stop"
# Its first core leads, so another one does not leave before: -4 is BUSY.
taskset 4 insmod /late/bhstrike.ko act=release && rmmod bhstrike
dmesg | grep -q "bhstrike: release: got -4$" || end "core 2 may leave first: $(dmesg | tail -3)"
# One core has the machine, and another one is a guest yet: no sandbox begins beside the first one.
echo 10 >/sys/module/bulkhead/parameters/fail
bulkheadctl machine disable 2>/dev/null && end "step 10 does not fail"
taskset 4 bulkheadctl --wait 2 start flight 2>&1 | grep -q "that it runs: it is stopped" || end "flight began beside a core that nothing confines: $(taskset 4 bulkheadctl list)"
echo 0 >/sys/module/bulkhead/parameters/fail
taskset 4 bulkheadctl machine disable || end "not disabled: $(dmesg | tail -3)"
rmmod bulkhead || end "the module does not go"
echo "under: done"
