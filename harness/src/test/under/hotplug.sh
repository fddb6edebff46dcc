# hotplug.sh [IMAGE]: functions of channels to a bay come with a part, and go with it. IMAGE is enabled first.
end() { echo "under: $1: $(cat /tmp/said) $(dmesg | tail -5) $(bulkheadctl list)"; exit 1; }
echo >/tmp/said
for driver in bulkhead bulkhead_virtio virtio_net; do modprobe $driver 2>/dev/null; done
[ -c /dev/bulkhead ] || end "no module"
dmesg -n 4
dmesg -c >/dev/null
functions() { bhchannel list | sed -n 's/^\(news\|lan\) .*/\1/p' | sort | tr '\n' ' '; }
# WANTED FUNCTIONS WHEN
there() { [ "$(functions)" = "$1" ] || end "$2 there is: $(functions)"; }
if [ -n "$1" ]; then
    bulkheadctl machine enable "$1" >/tmp/said 2>&1 || end "not enabled"
else
    # Its boot has found them all.
    there "lan news " "at the boot"
    bulkheadctl plug >/tmp/said 2>&1 || end "not plugged"
fi
there "" "while the bay is vacant"
for round in 1 2 3; do
    bulkheadctl create /late/card.toml >/tmp/said 2>&1 || end "not created"
    cat /tmp/said
    there "lan news " "with a card"
    tries=0 card=
    while [ -z "$card" ] && [ $tries -lt 300 ]; do
        usleep 100000
        # A machine can have cards of its own.
        for device in /sys/bus/pci/devices/*; do
            grep -q 0x110a "$device/vendor" || continue
            card=$(ls "$device"/virtio*/net 2>/dev/null)
            [ -z "$card" ] || break
        done
        tries=$((tries + 1))
    done
    [ -n "$card" ] || end "no card: $(bhchannel list)"
    ip addr add 10.9.0.1/24 dev "$card"
    ip link set "$card" up
    ping -c 10 -i 0.1 10.9.0.2 >/tmp/said 2>&1 || end "no answer"
    grep received /tmp/said
    bulkheadctl destroy card >/tmp/said 2>&1 && end "destroyed with a card that is up"
    grep -q 'PCI functions of channel `lan`' /tmp/said || end "nobody says which channel"
    dmesg | grep -q "its interface $card is up" || end "nobody says that $card is up"
    there "lan news " "after a refusal"
    ping -c 1 -W 5 10.9.0.2 >/tmp/said 2>&1 || end "no answer after a refusal"
    ip link set "$card" down
    bulkheadctl destroy card >/tmp/said 2>&1 || end "not destroyed"
    there "" "when it is gone"
    [ ! -e /sys/class/net/"$card" ] || end "the card is still here"
    bulkheadctl create /late/source.toml >/tmp/said 2>&1 || end "not created"
    there "lan news " "with a source"
    bhchannel talk channel=news role=woken ms=1000000 >/tmp/said 2>&1 || end "no news"
    cat /tmp/said
    bulkheadctl destroy source >/tmp/said 2>&1 || end "not destroyed"
    there "" "when the source is gone"
done
if [ -n "$1" ]; then
    bulkheadctl stop flight >/tmp/said 2>&1 || end "flight does not stop"
    bulkheadctl machine disable >/tmp/said 2>&1 || end "not disabled"
    bulkheadctl machine enable "$1" >/tmp/said 2>&1 || end "not enabled again"
    there "" "in the next image"
fi
dmesg -r | grep -E '^<[0-3]>' | grep -v "bulkhead: " | sed 's,^,under: log ,'
echo "under: done"
