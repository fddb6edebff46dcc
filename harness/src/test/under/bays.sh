# bays.sh: parts come and go in a bay of an image under this Linux.
end() { echo "under: $1: $(cat /tmp/said) $(bulkheadctl list)"; exit 1; }
modprobe bulkhead || end "no module"
for image in 1 2; do
    bulkheadctl machine enable /late/bays.img >/tmp/said 2>&1 || end "not enabled: $(dmesg | tail -3)"
    bulkheadctl list | grep -q "^bay .*; vacant$" || end "no vacant bay: $(bulkheadctl denials bay 2>&1)"
    for part in 1 2 3; do
        bulkheadctl create /late/camera.toml >/tmp/said 2>&1 || end "not created"
        cat /tmp/said
        bulkheadctl create /late/camera.toml >/tmp/said 2>&1 && end "created twice"
        bulkheadctl status bay | grep -q running || end "it does not run"
        bulkheadctl status flight | grep -q running || end "flight does not run"
        [ $part = 3 ] || bulkheadctl destroy camera >/tmp/said 2>&1 || end "not destroyed"
    done
    # The machine goes back only when all have ended.
    bulkheadctl machine disable >/tmp/said 2>&1 && end "the part was ended"
    bulkheadctl stop flight >/tmp/said 2>&1 || end "flight does not stop"
    bulkheadctl machine disable >/tmp/said 2>&1 && end "the part was ended"
    bulkheadctl stop camera >/tmp/said 2>&1 || end "the part does not stop"
    bulkheadctl machine disable >/tmp/said 2>&1 || end "not disabled: $(dmesg | tail -3)"
done
echo "under: done"
