#!/usr/bin/env bash
# Builds newlib, a C library, for programs of the kernel, from the source that Debian's package newlib-source installs:
#   target/artifacts/newlib/{include,lib/libc.a,lib/libm.a,COPYING.NEWLIB}
# A second run finds the stamp of the source, of this script and of the compiler, and does nothing.
#
# Only newlib's own folder is configured: its top one would look for compilers, and libgloss is for boards. The host's
# GCC compiles it, without the host's headers and without what it defines for Linux.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

OUT=$ARTIFACTS/newlib
SOURCE=$(find /usr/src/newlib -name 'newlib-*.tar.*' 2>/dev/null | sort | tail -1) || true
[ -n "$SOURCE" ] || die "there is no source of newlib in /usr/src/newlib; run tools/setup.sh"
GCC=${CC:-gcc}
STAMP="$(sha256sum <"$SOURCE" | cut -d' ' -f1) $(sha256sum <tools/newlib.sh | cut -d' ' -f1) $($GCC -dumpfullversion)"
[ "$(cat "$OUT/stamp" 2>/dev/null)" != "$STAMP" ] || exit 0

say "building newlib for programs in C"
WORK=$ROOT/target/newlib
rm -rf "$WORK" "$OUT"
mkdir -p "$WORK"/{source,build} "$ARTIFACTS"
tar -xf "$SOURCE" -C "$WORK/source" --strip-components=1
# As `app` of sdk/c/cc.sh, which compiles what calls this. __DYNAMIC_REENT__: each thread has a state of its own, which
# __getreent finds.
CC="$GCC -m64 -nostdinc -isystem $($GCC -print-file-name=include)"
for name in __linux__ __linux linux __gnu_linux__ __unix__ __unix unix; do CC+=" -U$name"; done
CFLAGS="-O2 -w -std=gnu11 -fno-pic -fno-pie -fcf-protection=none -fno-stack-protector -fno-asynchronous-unwind-tables"
CFLAGS+=" -ffunction-sections -fdata-sections -D__DYNAMIC_REENT__"
options=(
    --host=x86_64-elf --target=x86_64-elf --prefix="$WORK/install" --with-cross-host=x86_64-linux-gnu
    --disable-multilib --disable-newlib-supplied-syscalls --disable-dependency-tracking --enable-silent-rules
    # Locks are ours (program/libc/lock.c), and all threads have one stdout.
    --enable-newlib-retargetable-locking --enable-newlib-global-stdio-streams --enable-newlib-global-atexit
    --enable-newlib-io-c99-formats --enable-newlib-io-long-long --enable-newlib-io-long-double
    --enable-newlib-long-time_t
)
build() {
    cd "$WORK/build"
    env -u MAKEFLAGS CC="$CC" CFLAGS="$CFLAGS" CCASFLAGS="$CFLAGS" AR=ar RANLIB=ranlib AS=as NM=nm \
        ../source/newlib/configure "${options[@]}"
    env -u MAKEFLAGS make -j2
    env -u MAKEFLAGS make install
}
(limited 900 bash -c "$(declare -f build); $(declare -p options WORK CC CFLAGS); set -e; build") >"$WORK/log" 2>&1 ||
    die "newlib cannot be built; $WORK/log says why"
mkdir -p "$OUT/lib"
cp -r "$WORK/install/x86_64-elf/include" "$OUT"
cp "$WORK/install/x86_64-elf/lib/"lib{c,m}.a "$OUT/lib"
cp "$WORK/source/COPYING.NEWLIB" "$OUT"
rm -rf "$WORK"
echo "$STAMP" >"$OUT/stamp"
