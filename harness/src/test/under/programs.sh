#!/bin/sh
# An image comes and goes ten times while programs of Debian load this Linux: its cores, memory, disk, network, timers.
here=/run/bulkhead
failed() { echo "under-linux: $*"; dmesg | tail -5; exit 1; }
port=$(sed -n 's/.*under\.port=\([0-9]*\).*/\1/p' /proc/cmdline)
insmod $here/uio.ko 2>/dev/null
insmod $here/bulkhead.ko || failed "no module"
card=$(ls /sys/class/net | grep -v '^lo$' | head -1)
[ -n "$card" ] || failed "no card: $(ls /sys/class/net)"
ip addr add 10.0.2.15/24 dev "$card" 2>/dev/null
ip link set "$card" up || failed "$card does not go up"
mkdir -p /var/tmp/load && cd /var/tmp/load || failed "no folder"
files="--file-num=4 --file-total-size=16M --file-test-mode=rndrw --file-fsync-freq=20 --validate=on"
sysbench fileio $files prepare >/tmp/prepared 2>&1 || failed "sysbench: $(tail -3 /tmp/prepared)"
stress-ng --cpu 1 --vm 1 --vm-bytes 32M --pipe 1 --timer 1 --verify --timeout 3600 >/tmp/stress 2>&1 & stress=$!
sysbench fileio $files --time=3600 --threads=2 run >/tmp/files 2>&1 & files=$!
cyclictest -q -t 1 -p 80 -i 1000 >/tmp/cyclic 2>&1 & cyclic=$!
iperf3 -c 10.0.2.2 -p "$port" -t 3600 -b 20M >/tmp/stream 2>&1 & stream=$!
sleep 3
n=0
while [ $n -lt 10 ]; do
    bulkheadctl machine enable $here/system.img || failed "round $n: not enabled"
    sleep 1
    bulkheadctl status flight | grep -q running || failed "round $n: flight does not run"
    bulkheadctl stop flight >/dev/null || failed "round $n: flight does not stop"
    bulkheadctl machine disable || failed "round $n: not disabled"
    for one in stress files cyclic stream; do
        eval "kill -0 \$$one" 2>/dev/null || failed "round $n: $one has ended: $(tail -5 /tmp/$one)"
    done
    n=$((n + 1))
done
kill -INT $stress $cyclic $stream
kill -INT $files
sleep 2
grep -i -E 'fail|error|mismatch' /tmp/stress | grep -v 'failed: 0' && failed "stress-ng complains"
grep -E 'FATAL|Validation failed' /tmp/files && failed "sysbench complains"
grep -i 'error' /tmp/stream | grep -v interrupt && failed "iperf3 complains"
moved=$(grep -c 'bits/sec' /tmp/stream)
[ "$moved" -ge 10 ] || failed "iperf3 moved nothing: $(tail -5 /tmp/stream)"
dmesg -r | grep -E '^<[0-4]>' | grep -E 'WARNING: CPU|BUG: |Oops|Call Trace|I/O error|blocked for more' && failed "the kernel complains"
echo "under-linux: $n rounds; $(grep -o 'T: 0.*' /tmp/cyclic | tail -1); $moved seconds of iperf3"
echo "under-linux: done"
