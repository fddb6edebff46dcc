#!/usr/bin/env bash
# Installs what building and running needs, on Debian 12 and 13; `make` calls it.
#
#   tools/setup.sh            packages, toolchain, kernels: only what is missing
#   tools/setup.sh --check    says what is missing; exit 1 if anything is
#
# Packages need root (or sudo); without either the one line to run is printed.
# The pinned Rust toolchain goes where rustup keeps toolchains and needs no root,
# and kernels and the guests' Debian are data (tools/kernels.sh, tools/disk.sh). A run that finds all of it downloads
# nothing and takes a fraction of a second: it looks at the things themselves, so
# there is no stamp that could be wrong.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

QEMU_LEAST=$(qemu_least)
# ipxe-qemu holds the boot ROM of QEMU's default network card; bochs is the
# second emulator of the tests; iperf3 is the host's end of the guests' network;
# dmsetup and e2fsck go into a guest; parallel runs shards of a campaign; newlib is the C library of programs.
# gdb looks into sandboxes.
PACKAGES=(
    gcc libc6-dev make ca-certificates xz-utils zstd lz4
    grub-common grub-pc-bin grub-efi-amd64-bin xorriso mtools
    ovmf seabios ipxe-qemu busybox-static
    bochs bochsbios bochs-term vgabios
    e2fsprogs iperf3 dmsetup parallel newlib-source gdb
)
# Patience, but not for ever: for another apt's lock, and for a mirror.
APT_SETTINGS='DPkg::Lock::Timeout "300"; Acquire::Retries "4"; Acquire::http::Timeout "30"; Acquire::https::Timeout "30";'

release() {
    # shellcheck source=/dev/null
    (. /etc/os-release 2>/dev/null && echo "${ID:-}-${VERSION_ID:-}") || true
}

installed() { # of the packages named, those that are installed
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p'
}

missing_packages() {
    comm -13 <(installed "${PACKAGES[@]}" | sort -u) <(printf '%s\n' "${PACKAGES[@]}" | sort -u)
}

qemu_is_recent() {
    local version
    version=$(qemu-system-x86_64 --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge "$QEMU_LEAST" ]
}

# The shell line that root has to run, from what is missing now.
root_line() {
    local -a packages
    local line="" from="" mirror
    mapfile -t packages < <(missing_packages)
    if ! qemu_is_recent; then
        packages+=(qemu-system-x86)
        if [ "$(release)" = debian-12 ]; then
            # Plain bookworm has QEMU 7.2, whose emulation has no x2APIC.
            from="-t bookworm-backports"
            if ! apt-get indextargets --format '$(RELEASE)' 'Created-By: Packages' | grep -qx bookworm-backports; then
                mirror=$(mirror_of main) || die "apt knows no Debian mirror on this machine"
                line="echo \"deb [signed-by=$KEYRING] $mirror bookworm-backports main\" >/etc/apt/sources.list.d/bookworm-backports.list && "
            fi
        fi
    fi
    # Of all packages that we name only QEMU and its firmware differ in backports.
    # Timeouts come through APT_CONFIG, so that the line stays readable.
    printf '%s' "${line}apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $from ${packages[*]}"
}

apt_patiently() {
    local settings=$ROOT/target/apt/patient.conf
    mkdir -p "$(dirname "$settings")"
    echo "$APT_SETTINGS" >"$settings"
    APT_CONFIG=$settings limited 1800 "$@" >&2
}

install_packages() {
    if [ -z "$(missing_packages)" ] && qemu_is_recent; then return 0; fi
    case $(release) in
    debian-12 | debian-13) ;;
    *) die "this is not Debian 12 or 13; install by hand: $(missing_packages | tr '\n' ' ') and QEMU >= $QEMU_LEAST" ;;
    esac
    local line
    line=$(root_line)
    if [ "$(id -u)" = 0 ]; then
        say "installing packages"
        apt_patiently sh -c "$line" || die "apt failed; see above"
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && [ -z "${CI:-}" ]; }; }; then
        say "installing packages with sudo"
        apt_patiently sudo env "APT_CONFIG=$ROOT/target/apt/patient.conf" sh -c "$line" || die "apt failed; see above"
    else
        die "packages are missing and there is neither root nor sudo; as root, run:
$line"
    fi
    qemu_is_recent || die "QEMU is still older than $QEMU_LEAST: $(command -v qemu-system-x86_64)"
}

# Pinned in one place only.
pinned() { sed -n "s/^$1 = //p" rust-toolchain.toml | tr -d '[]",'; }

toolchain_is_complete() {
    local dir target
    dir=$(toolchain_dir)
    for tool in rustc cargo rustfmt cargo-clippy; do [ -x "$dir/bin/$tool" ] || return 1; done
    for target in $(pinned targets); do [ -d "$dir/lib/rustlib/$target/lib" ] || return 1; done
}

# Sets RUSTUP to a command to install with: the user's rustup, or else Debian
# 13's package with the libraries it wants, unpacked and run in place (Debian 12
# has none), so that nothing of the machine changes but rustup's own directory.
find_rustup() {
    local dir=$ROOT/target/apt/rustup libraries debian deb
    if command -v rustup >/dev/null; then
        RUSTUP=(rustup)
        return
    elif [ -x "$HOME/.cargo/bin/rustup" ]; then
        RUSTUP=("$HOME/.cargo/bin/rustup")
        return
    fi
    debian=$(mirror_of main) || die "apt knows no Debian mirror on this machine"
    private_apt_sources rustup "$debian trixie"
    say "fetching Debian's rustup"
    private_apt rustup 300 apt-get -q update >&2 || die "cannot read the package lists of $debian"
    private_apt rustup 600 apt-get -q install -y --download-only --no-install-recommends \
        -o Debug::NoLocking=1 rustup >&2 || die "cannot fetch rustup"
    for deb in "$dir"/archives/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
    libraries=$dir/root/usr/lib/x86_64-linux-gnu
    RUSTUP=("$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$dir/root/usr/bin/rustup")
}

install_toolchain() {
    if toolchain_is_complete; then return 0; fi
    local -a options=(--profile minimal --no-self-update)
    local word
    for word in $(pinned components); do options+=(--component "$word"); done
    for word in $(pinned targets); do options+=(--target "$word"); done
    find_rustup
    say "installing Rust $(pinned channel)"
    local try
    for try in 1 2 3; do
        limited 600 "${RUSTUP[@]}" toolchain install "$(pinned channel)" "${options[@]}" >&2 && break
        [ "$try" -lt 3 ] || die "rustup failed; see above"
        warn "trying again"
    done
    toolchain_is_complete || die "the toolchain in $(toolchain_dir) is not complete"
    rm -rf "$ROOT/target/apt/rustup"
}

check() {
    local status=0 package
    for package in $(missing_packages); do echo "missing: $package" && status=1; done
    qemu_is_recent || { echo "missing: QEMU >= $QEMU_LEAST" && status=1; }
    toolchain_is_complete || { echo "missing: Rust $(pinned channel)" && status=1; }
    return $status
}

case ${1:-} in
--check) check ;;
"")
    [ "$(uname -m)" = x86_64 ] || die "an x86-64 machine is needed"
    install_packages
    install_toolchain
    "$ROOT/tools/kernels.sh"
    "$ROOT/tools/disk.sh"
    ;;
*) die "usage: tools/setup.sh [--check]" ;;
esac
