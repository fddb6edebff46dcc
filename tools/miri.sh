#!/usr/bin/env bash
# The tests of the crates that reach shared memory, under Miri, which finds undefined behaviour in what they do. Needs
# rustup, with which it installs the nightly toolchain that has Miri.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# Pinned: Miri changes with the compiler.
NIGHTLY=nightly-2026-05-20

command -v rustup >/dev/null || die "Miri comes with a nightly toolchain, and there is no rustup to install one"
rustup run "$NIGHTLY" cargo miri --version >/dev/null 2>&1 ||
    limited 600 rustup toolchain install "$NIGHTLY" --profile minimal --component miri --component rust-src ||
    die "cannot install $NIGHTLY with miri"

# Tests keep regions as long as they run. Weak memory is loom's part: Miri's own gives up where bytes and words of
# one place are atomic. Properties take a few of their cases: Miri is a hundred times slower.
export MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-ignore-leaks -Zmiri-disable-isolation -Zmiri-disable-weak-memory-emulation" PROPTEST_CASES=3
export CARGO_TARGET_DIR=$ROOT/target/miri
say "memory as it is mapped: bulkhead-channel-memory"
limited 1800 rustup run "$NIGHTLY" cargo miri test --locked -q -p bulkhead-channel-memory --lib --tests
say "rings, mailboxes, bells: bulkhead-channel"
limited 1800 rustup run "$NIGHTLY" cargo miri test --locked -q -p bulkhead-channel --lib
