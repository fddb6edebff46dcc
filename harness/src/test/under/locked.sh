# locked.sh: `flight` and `stays` have `release = "ask"`, and `stays` has locked itself. This Linux may stop `stays`.
end() { echo "under: $1: $(cat /tmp/said) $(bulkheadctl list)"; exit 1; }
state() { bulkheadctl status "$1" | grep -q "$2"; }
modprobe bulkhead || end "no module"
bulkheadctl machine enable /late/ask.img >/tmp/said 2>&1 || end "not enabled: $(dmesg | tail -3)"
n=0; until state stays locked; do sleep 1; n=$((n + 1)); [ $n -lt 20 ] || end "stays does not lock"; done
bulkheadctl stop stays >/tmp/said 2>&1 && end "stays was stopped"
grep -q '`stays` is locked: nobody but itself ends it' /tmp/said || end "no reason"
bulkheadctl machine disable >/tmp/said 2>&1 && end "stays was ended"
grep -q '`stays` is locked: nobody but itself ends it' /tmp/said || end "no name"
state flight running || end "flight was ended beside one that stays"
state stays locked || end "stays was ended"
echo "under: done"
