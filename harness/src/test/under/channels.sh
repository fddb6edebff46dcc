# channels.sh: functions of channels come with an image, and go with it.
end() { echo "under: $1: $(cat /tmp/said) $(dmesg | tail -5) $(bulkheadctl list)"; exit 1; }
for driver in bulkhead bulkhead_virtio virtio_net; do modprobe $driver 2>/dev/null; done
[ -c /dev/bulkhead ] || end "no module"
dmesg -n 4
functions() { grep -l 0x110a /sys/bus/pci/devices/*/vendor; }
for image in 1 2; do
    echo >/tmp/said
    [ -z "$(functions)" ] || end "there are channels: $(functions)"
    bulkheadctl machine enable /late/channels.img >/tmp/said 2>&1 || end "not enabled"
    bhchannel list
    bhchannel talk channel=news role=woken ms=1000000 >/tmp/said 2>&1 || end "no news"
    cat /tmp/said
    echo "under: interrupts $(grep 'bulkhead$' /proc/interrupts)"
    tries=0
    while [ -z "$card" ] && [ $tries -lt 300 ]; do
        usleep 100000
        card=$(ls -d /sys/bus/pci/devices/0000:00:10.*/virtio*/net/* 2>/dev/null | sed 's,.*/,,' | head -1)
        tries=$((tries + 1))
    done
    [ -n "$card" ] || end "no card"
    ip addr add 10.9.0.1/24 dev "$card"
    ip link set "$card" up
    tries=0
    while ! ping -c 1 -W 1 10.9.0.2 >/dev/null && [ $tries -lt 30 ]; do tries=$((tries + 1)); done
    ping -c 20 -i 0.1 10.9.0.2 >/tmp/said 2>&1 || end "no answer"
    grep received /tmp/said
    bulkheadctl exits source >/dev/null || end "no report"
    bulkheadctl stop source >/tmp/said 2>&1
    bulkheadctl stop peer >/tmp/said 2>&1 || end "the peer does not stop"
    bulkheadctl machine disable >/tmp/said 2>&1 && end "disabled with a card that is up"
    dmesg | grep -q "its interface $card is up" || end "nobody says that $card is up"
    ip link set "$card" down
    bulkheadctl machine disable >/tmp/said 2>&1 || end "not disabled"
    [ ! -e /sys/class/net/"$card" ] || end "the card is still here"
    card=
done
[ -z "$(functions)" ] || end "there are channels: $(functions)"
dmesg -r | grep -E '^<[0-3]>' | grep -v "bulkhead: " | sed 's,^,under: log ,'
echo "under: done"
