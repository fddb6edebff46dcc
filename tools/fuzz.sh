#!/usr/bin/env bash
# libFuzzer on the targets of crates/testing/fuzz, by cargo-fuzz, which is installed into
# target/tools if it is not there.
#
#   tools/fuzz.sh [SECONDS] [TARGET...]     each for so long (60 s); starts with the
#                                           corpora in fuzz/corpus, adds to target/fuzz/corpus
#   tools/fuzz.sh --minimise [TARGET...]    makes fuzz/corpus anew, as small as it can be,
#                                           from itself and target/fuzz/corpus
#
# What a target must not do is left in target/fuzz/artifacts; the exit status is 1.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

VERSION=0.13.1
TOOLS=$ROOT/target/tools
FOUND=$ROOT/target/fuzz
# Longer inputs would only repeat themselves, and files of a corpus should be small.
LEN=256
# No AddressSanitizer: there is no unsafe code in the targets, and it needs a nightly toolchain.
# The profile's checks of arithmetic stay (--release is cargo-fuzz's default).
OPTIONS=(--sanitizer none --target-dir "$ROOT/target/fuzz/build")

command -v g++ >/dev/null || command -v c++ >/dev/null ||
    die "libFuzzer needs a C++ compiler, and there is none; as root: apt-get install g++ (make test runs the same targets without libFuzzer)"
if [ "$("$TOOLS/bin/cargo-fuzz" --version 2>/dev/null)" != "cargo-fuzz $VERSION" ]; then
    say "installing cargo-fuzz $VERSION into target/tools"
    limited 1200 cargo install -q cargo-fuzz --version "=$VERSION" --locked --root "$TOOLS" ||
        die "cannot install cargo-fuzz"
fi
export PATH=$TOOLS/bin:$PATH
export BULKHEAD_ARTIFACTS=$ARTIFACTS

fuzz() { cargo fuzz "$1" "${OPTIONS[@]}" "${@:2}"; }

# Folders to start with: of manifests all that there are.
seeds() { # target
    case $1 in
    manifest) printf '%s\n' systems systems/bench tests/manifests tests/manifests/bad ;;
    *) echo "fuzz/corpus/$1" ;;
    esac
}

# libFuzzer's options for a target: text is longer, and has words.
limits() { # target
    case $1 in
    manifest) printf '%s\n' -max_len=8192 "-dict=$ROOT/fuzz/manifest.dict" ;;
    kernel) echo "-max_len=4096" ;; # a call takes about 20 bytes
    *) echo "-max_len=$LEN" ;;
    esac
}

mode=run
seconds=60
case ${1:-} in
--minimise) mode=minimise && shift ;;
[0-9]*) seconds=$1 && shift ;;
esac
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n '/^\[\[bin\]\]/{n;s/name = "\(.*\)"/\1/p}' fuzz/Cargo.toml)

cargo fetch -q --locked --manifest-path fuzz/Cargo.toml || die "cannot fetch crates"
say "building the targets with libFuzzer"
fuzz build
status=0
for target in "${targets[@]}"; do
    corpus=$FOUND/corpus/$target artifacts=$FOUND/artifacts/$target
    mkdir -p "$corpus" "$artifacts"
    mapfile -t folders < <(seeds "$target")
    mapfile -t limits < <(limits "$target")
    if [ $mode = minimise ] && [ "$target" = manifest ]; then
        continue # the tree's manifests are its corpus
    elif [ $mode = minimise ]; then
        say "$target: the smallest corpus that reaches as much"
        mkdir -p "fuzz/corpus/$target"
        find "fuzz/corpus/$target" -type f -exec cp {} "$corpus" \;
        # How often a place is reached is of no account: that would keep ten times as much.
        fuzz cmin "$target" "$corpus" -- -max_len="$LEN" -use_counters=0 >/dev/null 2>&1 ||
            die "cargo fuzz cmin failed for $target"
        rm -f "fuzz/corpus/$target"/*
        cp "$corpus"/* "fuzz/corpus/$target"
        du -b --apparent-size -c "fuzz/corpus/$target"/* | tail -1
        continue
    fi
    say "$target: $seconds s"
    # libFuzzer's own limits: of a single input, and of memory.
    fuzz run "$target" "$corpus" "${folders[@]}" -- -max_total_time="$seconds" -timeout=20 \
        "${limits[@]}" -artifact_prefix="$artifacts/" -verbosity=0 -print_final_stats=1 ||
        { warn "$target: found something; the input is in ${artifacts#"$ROOT"/}" && status=1; }
done
exit $status
