#!/usr/bin/env bash
# Our modules (linux/module, linux/enable) for Debian's kernels: target/artifacts/modules-*, what
# linux-*.modules and linux-*.disks have with them added, as trees that modprobe reads.
#
# The compiler is the one that the kernel was built with if it is there, else the
# machine's own: Debian 13 has no gcc 12, and the kernel's makefiles ask a compiler
# for what it knows. No BTF, which would need another program, and no debug
# information.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# A folder, and the module that is made of it.
MODULES=(module=bulkhead_virtio enable=bulkhead)
SOURCES=(linux/{module,enable}/*.[ch] linux/{module,enable}/Kbuild linux/enable/*.S)

build() { # artifact
    local headers=$ROOT/target/headers/$1 dir=$ROOT/target/module/$1 out=$ARTIFACTS/${1/linux-/modules-}
    local version compiler=gcc module folder
    version=$(basename "$ARTIFACTS/$1.modules"/lib/modules/*)
    rm -rf "$dir" "$out" && mkdir -p "$dir"
    command -v gcc-12 >/dev/null && compiler=gcc-12
    cp -a "$ARTIFACTS/$1.modules" "$out"
    cp -a "$ARTIFACTS/$1.disks/." "$out"
    for module in "${MODULES[@]}"; do
        folder=$dir/${module%=*} && mkdir "$folder"
        cp "linux/${module%=*}"/* "$folder"
        make -s -C "$headers" M="$folder" CC="$compiler" CONFIG_DEBUG_INFO_BTF_MODULES= KBUILD_MODPOST_WARN= modules \
            >"$folder/log" 2>&1 || { cat "$folder/log" >&2 && die "cannot build ${module#*=} for $1"; }
        strip -g -o "$out/lib/modules/$version/${module#*=}.ko" "$folder/${module#*=}.ko"
    done
    busybox depmod -b "$out" "$version" || die "busybox depmod failed for $1"
    stamp "$1" >"$dir/stamp"
}

# What it was made of.
stamp() { # artifact
    { cat "${SOURCES[@]}" tools/module.sh "$ARTIFACTS/$1.package" && grep -E "$1\.(modules|disks)/" "$ARTIFACTS/kernels.sha256"; } | sha256sum
}

# Drivers for tests, one that hangs and one that attacks: target/artifacts/bh{hang,strike}.ko.
test_module() { # folder artifact
    local dir=$ROOT/target/module/$1 compiler=gcc
    mkdir -p "$dir" && cp "linux/$1"/* "$dir"
    command -v gcc-12 >/dev/null && compiler=gcc-12
    make -s -C "$ROOT/target/headers/$2" M="$dir" CC="$compiler" CONFIG_DEBUG_INFO_BTF_MODULES= KBUILD_MODPOST_WARN= modules \
        >"$dir/log" 2>&1 || { cat "$dir/log" >&2 && die "cannot build linux/$1"; }
    strip -g -o "$ARTIFACTS/bh$1.ko" "$dir/bh$1.ko"
    cat "linux/$1"/* "$ARTIFACTS/$2.package" | sha256sum >"$dir/stamp"
}
TESTS=linux-6.12-cloud
for module in hang strike; do
    [ -f "$ARTIFACTS/bh$module.ko" ] && cat linux/$module/* "$ARTIFACTS/$TESTS.package" | sha256sum | cmp -s - "target/module/$module/stamp" ||
        test_module "$module" "$TESTS"
done

for kernel in linux-{6.1,6.12}{,-cloud}; do
    # A mirror may have no 6.1 any more.
    [ -d "target/headers/$kernel" ] || continue
    [ -d "$ARTIFACTS/${kernel/linux-/modules-}" ] && [ "$(cat "target/module/$kernel/stamp" 2>/dev/null)" = "$(stamp "$kernel")" ] && continue
    say "building the module for $kernel"
    build "$kernel"
done
