#!/usr/bin/env bash
# Builds everything that `make run`, `make test` and `make bench` need. Cargo
# decides what is old; a second run takes a second.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# Fetching crates has a limit too; building needs no network then.
for manifest in Cargo.toml plugin/Cargo.toml fuzz/Cargo.toml programs/apps/sources/Cargo.toml; do
    fetch=(cargo fetch --locked --manifest-path "$manifest")
    limited 600 "${fetch[@]}" -q || limited 600 "${fetch[@]}" || die "cannot fetch crates"
done
[ -d target/release ] || say "building for the first time takes some minutes"

tools/artifacts.sh

say "building boot code, monitor, kernel, guests and programs"
BARE=x86_64-unknown-none
OUT=${CARGO_TARGET_DIR:-target}/$BARE
cargo build --locked -q --target $BARE --profile privileged -p bulkhead-boot -p bulkhead-monitor-svm -p bulkhead-monitor-vmx -p bulkhead-kernel-image
cp "$OUT/privileged/bulkhead-boot" "$ARTIFACTS/boot"
# Code that starts an image under a Linux. It can lie anywhere, so the compiler has to address it by its own place.
CARGO_TARGET_X86_64_UNKNOWN_NONE_RUSTFLAGS="-C relocation-model=pie" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/late \
    cargo build --locked -q --target $BARE --profile privileged -p bulkhead-boot --bin bulkhead-late
cp "${CARGO_TARGET_DIR:-target}/late/$BARE/privileged/bulkhead-late" "$ARTIFACTS/late"
cp "$OUT/privileged/bulkhead-monitor-svm" "$ARTIFACTS/monitor-registers"
cp "$OUT/privileged/bulkhead-monitor-vmx" "$ARTIFACTS/vmx-monitor-registers"
cp "$OUT/privileged/bulkhead-kernel-image" "$ARTIFACTS/kernel"
# The same monitors with code for less: the sets of `MONITORS` in crates/abi/monitor-abi/src/need.rs.
monitor() { # NAME FEATURES
    for shell in svm vmx; do
        cargo build --locked -q --target $BARE --profile privileged -p bulkhead-monitor-$shell --no-default-features --features "$2"
    done
    cp "$OUT/privileged/bulkhead-monitor-svm" "$ARTIFACTS/$1"
    cp "$OUT/privileged/bulkhead-monitor-vmx" "$ARTIFACTS/vmx-$1"
}
monitor monitor-small channels
monitor monitor-control channels,control,cores,loads
monitor monitor-control-locks channels,control,cores,loads,locks
monitor monitor-control-watched channels,control,cores,loads,watchdog,ladder
monitor monitor-control-warm channels,control,cores,loads,watchdog,ladder,snapshot
monitor monitor-control-standby channels,control,cores,loads,watchdog,ladder,snapshot,role
monitor monitor-control-registers channels,control,cores,loads,mmio,locks
monitor monitor-plain channels,control,cores,loads,links,linux
monitor monitor channels,control,cores,loads,links,linux,devices
monitor monitor-locks channels,control,cores,loads,links,linux,devices,locks
monitor monitor-watched channels,control,cores,loads,links,linux,devices,watchdog,ladder
monitor monitor-warm channels,control,cores,loads,links,linux,devices,watchdog,ladder,snapshot
monitor monitor-standby channels,control,cores,loads,links,linux,devices,watchdog,ladder,snapshot,role
monitor monitor-debug channels,control,cores,loads,links,linux,devices,watchdog,ladder,snapshot,role,mmio,locks,debug
monitor monitor-running channels,control,cores,linux,locks,running
monitor monitor-running-devices channels,control,cores,devices,linux,locks,running
# And once more that with code for all, with checks and in another layout: `monitor = "checked"`.
for shell in svm vmx; do
    cargo build --locked -q --target $BARE --profile privileged-checked -p bulkhead-monitor-$shell --features checked,debug
done
cp "$OUT/privileged-checked/bulkhead-monitor-svm" "$ARTIFACTS/monitor-checked"
cp "$OUT/privileged-checked/bulkhead-monitor-vmx" "$ARTIFACTS/vmx-monitor-checked"
# And one to measure with: it tells what it does, and has markers where it is entered and left.
cargo build --locked -q --target $BARE --profile privileged -p bulkhead-kernel-image --features trace
cp "$OUT/privileged/bulkhead-kernel-image" "$ARTIFACTS/kernel-trace"
guests=()
for manifest in guests/*/Cargo.toml; do
    guests+=("$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -1)")
done
cargo build --locked -q --target $BARE --profile guest $(printf -- '-p %s ' "${guests[@]}")
for guest in "${guests[@]}"; do
    cp "$OUT/guest/$guest" "$ARTIFACTS/${guest#guest-}"
done
# By itself: with guests in Rust it would get their `vectors`, which interrupts of guests in C do not save.
cargo build --locked -q --target $BARE --profile guest -p bulkhead-sdk-c
guests/talk-c/build.sh "$ARTIFACTS/talk-c" "$OUT/guest/libbulkhead_sdk_c.a"
guests/hang-c/build.sh "$ARTIFACTS/hang-c" "$OUT/guest/libbulkhead_sdk_c.a"
# Copies that a voter compares: built once more in another way, and in C; each also with faults planted in it.
cargo build --locked -q --target $BARE --profile guest-checked -p guest-copy -p guest-copy-rogue
for copy in copy copy-rogue; do
    cp "$OUT/guest-checked/guest-$copy" "$ARTIFACTS/$copy-checked"
done
guests/copy-c/build.sh "$ARTIFACTS/copy-c" "$OUT/guest/libbulkhead_sdk_c.a"
CC="${CC:-gcc} -DPLANTED" guests/copy-c/build.sh "$ARTIFACTS/copy-rogue-c" "$OUT/guest/libbulkhead_sdk_c.a"
packages=() programs=()
for manifest in programs/*/Cargo.toml; do
    packages+=("$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -1)")
    # A package may hold several programs.
    mapfile -t -O "${#programs[@]}" programs < <(sed -n '/^\[\[bin\]\]/,/^$/s/^name = "\(.*\)"/\1/p' "$manifest")
done
cargo build --locked -q --target $BARE --profile guest $(printf -- '-p %s ' "${packages[@]}")
for program in "${programs[@]}"; do
    cp "$OUT/guest/$program" "$ARTIFACTS/$program"
done
cargo build --locked -q --target $BARE --profile guest -p bulkhead-program-c
for main in programs/*/main.c; do
    program/c/build.sh "$ARTIFACTS/program-$(basename "$(dirname "$main")")" "$main" "$OUT/guest/libbulkhead_program_c.a"
done
tools/apps.sh
say "building QEMU's plugin"
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/plugin cargo build --locked -q --release --manifest-path plugin/Cargo.toml
cp "${CARGO_TARGET_DIR:-target}/plugin/release/libbulkhead_plugin.so" "$ARTIFACTS/plugin.so"
say "building the command and the measuring harness"
cargo build --locked -q --release -p bulkhead -p bulkhead-harness
