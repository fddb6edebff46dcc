#!/usr/bin/env bash
# C libraries of others, byte for byte as their packages have them: target/libraries/{lua,sqlite,zlib}. Cargo fetches the
# packages that programs/apps/sources/Cargo.lock names, and compares each with its sum there. Nothing of them is compiled
# here. Each run compares each file of the libraries with its package's list of sums.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

OUT=$ROOT/target/libraries
SOURCES=programs/apps/sources
STAMP="$(cat tools/libraries.sh $SOURCES/Cargo.lock | sha256sum)"
if [ "$(cat "$OUT/stamp" 2>/dev/null)" != "$STAMP" ]; then
    rm -rf "$OUT"
    mkdir -p "$OUT"
    # Only another first run than that of tools/build.sh needs a network here.
    limited 600 cargo vendor -q --locked --manifest-path $SOURCES/Cargo.toml "$OUT/vendor" >/dev/null ||
        die "cannot fetch the libraries of $SOURCES"
    ln -s vendor/lua-src/lua-5.4.9 "$OUT/lua"
    ln -s vendor/libsqlite3-sys/sqlite3 "$OUT/sqlite"
    ln -s vendor/libz-sys/src/zlib "$OUT/zlib"
    echo "$STAMP" >"$OUT/stamp"
fi

same() { # PACKAGE FOLDER: each file of the folder is as the package's list says
    local list
    list=$(cd "$OUT/vendor/$1" && grep -oE "\"$2/[^\"/]+\":\"[0-9a-f]{64}\"" .cargo-checksum.json | tr -d '"' |
        sed 's/\(.*\):\(.*\)/\2  \1/')
    [ -n "$list" ] || die "$1 has no sums of $2"
    (cd "$OUT/vendor/$1" && sha256sum --quiet -c - <<<"$list") || die "$1 is not as its package has it: remove $OUT"
}
same lua-src lua-5.4.9
same libsqlite3-sys sqlite3
same libz-sys src/zlib
