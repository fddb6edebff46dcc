# release.sh: `flight` has `release = "ask"`, and `stays` has not. The manifest lets this Linux stop `stays`.
end() { echo "under: $1: $(cat /tmp/said) $(bulkheadctl list)"; exit 1; }
state() { bulkheadctl status "$1" | grep -q "$2"; }
modprobe bulkhead || end "no module"
bulkheadctl machine enable /late/ask.img >/tmp/said 2>&1 || end "not enabled: $(dmesg | tail -3)"
bulkheadctl machine disable >/tmp/said 2>&1 && end "stays was ended"
grep -q '`stays` would have to end first' /tmp/said || end "no name"
state flight running || end "flight was ended beside one that stays"
state stays running || end "stays was ended"
bulkheadctl stop stays >/tmp/said 2>&1 || end "stays does not stop"
state flight running || end "flight was ended"
bulkheadctl machine disable >/tmp/said 2>&1 || end "flight stays"
bulkheadctl machine disable 2>&1 | grep -q "no image runs" || end "disabled twice"
echo "under: done"
