#!/usr/bin/env bash
# Bytes of text that each need costs in a monitor: of the whole one, of one without that need, and of one with no need
# but that. Needs are in crates/abi/monitor-abi/src/need.rs; features of monitor/svm and monitor/vmx have their names. The
# argument is the shell: svm (the default) or vmx.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

BARE=x86_64-unknown-none
shell=${1:-svm}
all=(devices cores links loads control channels linux watchdog ladder snapshot role mmio locks debug)

# Bytes of a monitor's text with these features, joined by commas; text FEATURES
text() {
    cargo build --locked -q --target $BARE --profile privileged -p "bulkhead-monitor-$shell" --no-default-features --features "$1"
    size -A "${CARGO_TARGET_DIR:-target}/$BARE/privileged/bulkhead-monitor-$shell" | awk '$1 == ".text" { print $2 }'
}

without() { # NEED
    local rest=()
    for need in "${all[@]}"; do
        [ "$need" = "$1" ] || rest+=("$need")
    done
    (IFS=, && echo "${rest[*]}")
}

whole=$(text "$(without '')")
least=$(text '')
printf '%-10s %12s %12s\n' need 'of the whole' 'alone'
for need in "${all[@]}"; do
    printf '%-10s %12d %12d\n' "$need" $((whole - $(text "$(without "$need")"))) $(($(text "$need") - least))
done
printf '%-10s %12d %12d\n' text "$whole" "$least"
