#!/usr/bin/env bash
# Programs in plain C with newlib (programs/apps): target/artifacts/app-{threads,lua,sqlite,zlib}. Those with a library
# of others are built for the host, too, as host-NAME: a test compares what the two print.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

tools/newlib.sh
tools/libraries.sh
LIBRARIES=target/libraries
# The same for all of them; a change of it builds all anew.
COMMON=$(cat tools/apps.sh sdk/c/cc.sh sdk/c/text.[ch] program/c/program.c program/program.ld program/libc/*.[ch] \
    $(find program/libc/include program/include -name '*.h' | sort) "$ARTIFACTS/newlib/stamp" "$LIBRARIES/stamp" | sha256sum)

app() { # NAME FLAGS FILE...
    local name=$1 flags=$2 stamp=$ARTIFACTS/app-$1.stamp sum
    shift 2
    sum="$COMMON $flags $* $(sha256sum <"programs/apps/$name.c")"
    [ "$(cat "$stamp" 2>/dev/null)" != "$sum" ] || return 0
    say "building $name with newlib"
    CFLAGS="$flags" sdk/c/cc.sh app "$ARTIFACTS/app-$name" "programs/apps/$name.c" "$@"
    # The one without a library tests what is ours. The linker would warn of functions that nobody calls.
    # shellcheck disable=SC2086
    [ $# = 0 ] || "${CC:-gcc}" $flags -O0 -Wl,--no-warnings -o "$ARTIFACTS/host-$name" "programs/apps/$name.c" "$@" -lm
    echo "$sum" >"$stamp"
}
# A quarter of a million lines, beside the others; GCC takes half as long with -O1 as with -O2.
app sqlite "-w -O1 -I$LIBRARIES/sqlite -DSQLITE_OS_OTHER=1 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_TEMP_STORE=3" \
    $LIBRARIES/sqlite/sqlite3.c &
last=$!
app threads "-Wextra -Werror"
app lua "-w -I$LIBRARIES/lua" $LIBRARIES/lua/*.c
zlib=()
for part in adler32 compress crc32 deflate inffast inflate inftrees trees uncompr zutil; do
    zlib+=("$LIBRARIES/zlib/$part.c")
done
app zlib "-w -I$LIBRARIES/zlib" "${zlib[@]}"
wait "$last" || die "SQLite cannot be built"
