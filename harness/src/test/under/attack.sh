# attack.sh ACT...: root attacks the others and the monitors. An act is NAME, NAME@OFFSET in the block or NAME=ADDRESS,
# both in hexadecimal. The last one can end this Linux.
end() { echo "under: $1"; exit 1; }
modprobe bulkhead || end "no module"
dmesg -n 1
bulkheadctl machine enable /late/system.img || end "not enabled"
block=$(bulkheadctl machine status | sed 's/.* at \(0x[0-9a-f]*\) .*/\1/')
echo "under: block $block"
# The module's own messages.
dmesg -n 2
for act in "$@"; do
    at=0 name=$act
    case $act in
    *@*) name=${act%@*} at=$((block + 0x${act#*@})) ;;
    *=*) name=${act%=*} at=$((0x${act#*=})) ;;
    esac
    echo "under: $name begins at $(printf '%#x' $at)"
    case $name in
    mem-read) dd if=/dev/mem bs=8 skip=$((at / 8)) count=1 2>&1 | hexdump -C ;;
    mem-write) echo -n 12345678 | dd of=/dev/mem bs=8 seek=$((at / 8)) count=1 conv=notrunc 2>&1 ;;
    *) insmod /late/bhstrike.ko act="$name" at=$at core=1 && rmmod bhstrike ;;
    esac
    echo "under: $name is over"
done
echo "under: done"
# The host looks at the machine.
sleep 10
