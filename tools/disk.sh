#!/usr/bin/env bash
# target/artifacts/debian.img: a small Debian on an ext4 file system without
# partitions, for Linux guests that have a disk, and behind it a disk of 16 MiB of its
# own with a FAT partition, for guests that keep a log there; and target/artifacts/{iperf3,stress-ng,fio,httperf},
# trees with such a program and its libraries for those that have none. Debian 13's packages (or 12's,
# should a mirror have no others), unpacked, not installed: no maintainer script
# runs, nothing needs root, nothing is mounted. Kernel, drivers and our own
# programs come from the initramfs (tools/artifacts.sh), so the image depends on
# the packages alone. Nobody writes to it: runs have overlays.
#
# As with kernels, versions are those of the mirror's lists of that moment. What
# was fetched stays, below target/apt/disk, until `tools/disk.sh --refresh`; what
# is kept of it can change without another download.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

IMAGE=$ARTIFACTS/debian.img
STAMP=$ARTIFACTS/debian.stamp
# Programs with all that they link to.
ALONE=(iperf3 stress-ng fio httperf)
APT=$ROOT/target/apt/disk
DEBS=$APT/debs
FETCHED=$APT/debs.sha256
# Raise it when the recipe below changes.
FORMAT=4
# MiB of Debian, and of the disk for logs (systems/demo.toml has both in sectors).
SIZE=1008
LOG_SIZE=16
# ext4 holds the file system's identity; `bulkhead.root=` takes the device's name.
UUID=6a1f0c52-0f5e-4c8e-9d0b-b0c1bead0001

PROGRAMS=(sysbench iperf3 stress-ng cyclictest fio httperf)
PACKAGES=(
    base-files base-passwd libc6 libc-bin bash dash coreutils util-linux mount
    iproute2 procps hostname sed grep mawk findutils
    sysbench iperf3 stress-ng rt-tests fio httperf
)
# Dependencies that none of the programs links to, two thirds of the lot: Mesa's
# drivers, scripts' interpreters, what only maintainer scripts call. That nothing
# is missing is checked after unpacking. fio links to Ceph and Gluster: 20 MB.
LEFT_OUT='^(mesa-libgallium|libllvm.*|libz3-.*|libegl-mesa0|libgl1-mesa-dri|python3.*|libpython3.*|dpkg|perl-base|tar|debconf|passwd|adduser|tzdata|libsqlite3-0|libx11-data|mariadb-common|mysql-common|media-types|readline-common|libdb5.*|libsensors.*)$'
# What programs don't read.
UNWANTED=(./usr/share/{doc,man,info,locale,lintian,bash-completion,zsh} ./usr/lib/x86_64-linux-gnu/gconv)

fetched() { # and nothing else is wanted since
    [ "$(cat "$APT/wanted" 2>/dev/null)" = "${PACKAGES[*]}" ] && [ -f "$FETCHED" ] &&
        (cd "$DEBS" && sha256sum --check --status --strict "$FETCHED" 2>/dev/null)
}

# The packages of a release with all that they depend on, as `name=version`.
closure() {
    # An empty status file: what this machine has installed is of no account.
    private_apt disk 60 apt-get install -qq --print-uris --no-install-recommends \
        -o Debug::NoLocking=1 "${PACKAGES[@]}" |
        sed -n "s/^'[^']*' \([^_ ]*\)_\([^_ ]*\)_.*/\1=\2/p" | sed 's/%3a/:/' |
        awk -F= -v out="$LEFT_OUT" '$1 !~ out'
}

fetch_from() { # suite
    local -a packages
    private_apt_sources disk "$debian $1" ${security:+"$security $1-security"}
    private_apt disk 300 apt-get update -q >&2 || return 1
    mapfile -t packages < <(closure)
    [ ${#packages[@]} -gt ${#PACKAGES[@]} ] || return 1
    rm -rf "$DEBS" && mkdir -p "$DEBS"
    say "fetching ${#packages[@]} packages of Debian's $1"
    (cd "$DEBS" && private_apt disk 900 apt-get download -q "${packages[@]}" >&2) || return 1
    (cd "$DEBS" && sha256sum -- *.deb >"$FETCHED")
    echo "${PACKAGES[*]}" >"$APT/wanted"
    rm -rf "$APT/lists"
}

fetch() {
    [ -r "$KEYRING" ] || die "no $KEYRING; install debian-archive-keyring"
    local debian security suite
    debian=$(mirror_of main) || die "apt knows no Debian mirror (bookworm or trixie) on this machine"
    security=$(mirror_of security) || security=
    # Twice each: a mirror may replace a version between its list and its file.
    for suite in trixie trixie bookworm bookworm; do
        fetch_from "$suite" && return 0
        warn "could not fetch the packages of $suite"
    done
    die "no root file system from $debian"
}

unpack() { # tree
    local root=$1 deb dir
    local -a exclude
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
    for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$root/$dir"; done
    mapfile -t exclude < <(printf -- '--exclude=%s\n' "${UNWANTED[@]}")
    for deb in "$DEBS"/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" |
            tar -x -p --no-same-owner --keep-directory-symlink -C "$root" "${exclude[@]}"
    done
}

# What maintainer scripts would have done, as far as the programs want it.
configure() { # tree
    local root=$1
    mkdir -p "$root"/{proc,sys,dev,run,tmp,root,var/tmp,var/lib}
    chmod 1777 "$root/tmp" "$root/var/tmp"
    cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
    cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
    echo bulkhead >"$root/etc/hostname"
    echo "127.0.0.1 localhost bulkhead" >"$root/etc/hosts"
    ln -sf /proc/mounts "$root/etc/mtab"
    [ -e "$root/bin/sh" ] || ln -s dash "$root/bin/sh"
    [ -e "$root/bin/awk" ] || ln -s mawk "$root/bin/awk"
}

# Asks the image's own loader whether each program finds all its libraries.
check() { # tree
    local root=$1 program file libraries missing status=0
    libraries=$root/usr/lib/x86_64-linux-gnu
    # Ceph's are in a folder that its users name.
    for program in bash dash ls mount ip ps "${PROGRAMS[@]}"; do
        file=$(find "$root"/usr/{bin,sbin} -name "$program" -print -quit)
        [ -n "$file" ] || { warn "no program $program" && status=1 && continue; }
        missing=$(LD_LIBRARY_PATH=$libraries:$libraries/ceph "$libraries/ld-linux-x86-64.so.2" --list "$file" 2>&1 |
            grep -v "=> $libraries/" | grep '=>' || true)
        [ -z "$missing" ] || { warn "$program lacks ${missing//$'\n'/,}" && status=1; }
    done
    return "$status"
}

# A program and what it links to, for an initramfs.
alone() { # tree program
    local root=$1 name=$2 new=$ARTIFACTS/$2.new libraries=usr/lib/x86_64-linux-gnu
    rm -rf "$new" "${ARTIFACTS:?}/$name"
    mkdir -p "$new/bin" "$new/lib64" "$new/$libraries"
    cp "$root/usr/bin/$name" "$new/bin"
    cp -L "$root/$libraries/ld-linux-x86-64.so.2" "$new/lib64"
    # It ends threads, for which the C library loads one more.
    cp -L "$root/$libraries/libgcc_s.so.1" "$new/$libraries"
    LD_LIBRARY_PATH=$root/$libraries:$root/$libraries/ceph "$root/$libraries/ld-linux-x86-64.so.2" --list "$root/usr/bin/$name" |
        sed -n "s|.* => \($root/.*\) (.*|\1|p" | xargs cp -L -t "$new/$libraries"
    mv "$new" "$ARTIFACTS/$name"
}

# A disk for logs behind Debian's file system: a partition table, and an empty FAT16
# from its 64th sector on.
add_log() { # image
    local at=$((SIZE << 20)) first=64 count
    count=$(((LOG_SIZE << 11) - first))
    truncate -s $(((SIZE + LOG_SIZE) << 20)) "$1"
    # Kind 0x0E: FAT16, by block numbers.
    { printf '\0\0\0\0\x0e\0\0\0' && le32 $first && le32 $count; } | put $((at + 446)) "$1"
    printf '\x55\xaa' | put $((at + 510)) "$1"
    # The serial number, so that the image is the same each time.
    mformat -i "$1@@$((at + (first << 9)))" -T $count -h 16 -s 63 -c 4 -H $first -N b0b0b0b0 -v LOG :: ||
        die "mformat failed"
}

le32() { # number
    local byte
    for byte in 0 8 16 24; do printf "\\x$(printf %02x $((($1 >> byte) & 255)))"; done
}

put() { # offset file; bytes from the standard input
    dd of="$2" bs=1 seek="$1" conv=notrunc status=none
}

image() { # tree
    local root=$1 new=$IMAGE.new
    rm -f "$new"
    truncate -s "${SIZE}M" "$new"
    # Tables are written now: the kernel would do it in the background of what is
    # measured.
    mke2fs -q -F -t ext4 -b 4096 -m 0 -J size=8 -L bulkhead -U "$UUID" \
        -E "hash_seed=$UUID,root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0,nodiscard" -d "$root" "$new" ||
        die "mke2fs failed"
    # Files of a user's tree belong to that user; in the image all are root's.
    if [ "$(id -u)" != 0 ]; then
        (cd "$root" && find . -mindepth 1 -printf '%P\n') |
            sed 's/.*/set_inode_field "\/&" uid 0\nset_inode_field "\/&" gid 0/' |
            debugfs -w -f - "$new" >"$APT/debugfs.log" 2>&1 || die "debugfs failed; see $APT/debugfs.log"
    fi
    add_log "$new"
    mv "$new" "$IMAGE"
}

# Whoever writes to the image changes its time; to read all of it takes seconds.
state() { echo "$FORMAT $(stat -c '%s %.9Y' "$IMAGE" 2>/dev/null)"; }
complete() {
    local program
    for program in "${ALONE[@]}"; do [ -d "$ARTIFACTS/$program" ] || return 1; done
    [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(state)" ]
}

main() {
    [ "${1:-}" = --refresh ] && rm -f "$STAMP" "$FETCHED"
    if complete; then return 0; fi
    mkdir -p "$ARTIFACTS"
    fetched || fetch
    local root=$APT/root
    chmod -R u+w "$root" 2>/dev/null || true
    rm -rf "$root"
    say "making the root file system"
    unpack "$root"
    configure "$root"
    check "$root" || die "the root file system is not complete"
    local program
    for program in "${ALONE[@]}"; do alone "$root" "$program"; done
    image "$root"
    state >"$STAMP"
    rm -rf "$root"
    say "root file system: target/artifacts/debian.img, $(du -h "$IMAGE" | cut -f1) on disk"
}

main "$@"
