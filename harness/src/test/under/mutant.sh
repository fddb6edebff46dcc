# mutant.sh RULE: breaks a rule, if its monitor lacks it.
end() { echo "under: $1"; exit 1; }
strike() { insmod /late/bhstrike.ko act="$1" at=$(($2)) && rmmod bhstrike; }
modprobe bulkhead || end "no module"
dmesg -n 1
bulkheadctl machine enable /late/system.img || end "not enabled"
case $1 in
# Flight runs.
release-last)
    strike disable
    got=$(dmesg | sed -n 's/.*bhstrike: disable: got //p')
    case $got in
    0) echo "under: broken" ;;
    -16) echo "under: kept" ;;
    *) end "the module says $got" ;;
    esac
    ;;
# An entry whose message is no fixed one: 0xBAD. By the rule it is masked.
local-interrupts)
    strike write 0xFEE00340
    strike read 0xFEE00340
    got=$(dmesg | sed -n 's/.*bhstrike: read: got //p')
    case $got in
    $((0xBAD))) echo "under: broken" ;;
    $((0x100AD))) echo "under: kept" ;;
    *) end "the entry is $got" ;;
    esac
    ;;
esac
echo "under: done"
