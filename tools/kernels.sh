#!/usr/bin/env bash
# Debian's kernels as data: target/artifacts/linux-{6.1,6.12}[-cloud], bzImages
# straight out of Debian's packages, each with what it is packed from in linux-*.elf,
# its configuration and, in linux-*.modules, the drivers of disks and network cards as a tree that modprobe
# reads; in linux-*.disks those of disks without hardware; the KVM modules of linux-6.12; and in target/headers what a module is
# built with (tools/module.sh). Nothing is installed and no
# root is needed.
#
# Both releases get the same kernels: 6.1 is bookworm's, 6.12 that of
# bookworm-backports or trixie, whatever the machine itself runs. Should a mirror
# have no bookworm any more, 6.1 is left out with a warning and its tests are
# skipped; without a 6.12 there is nothing to run, and set-up fails.
#
# A kernel's package name changes with every update, so it is read from the meta
# package's dependency in the lists of that moment. What was fetched stays until
# `tools/kernels.sh --refresh`.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

STAMP=$ARTIFACTS/kernels.sha256
# Raise it when what is kept of a package changes.
FORMAT=7
SERIES="6.1 6.12"
FLAVOURS="amd64 cloud-amd64"
MODULES="kvm.ko kvm-amd.ko irqbypass.ko ccp.ko"
# What a guest with devices of its own, or channels, loads, with what these depend on. A kernel
# that has one built in, or not at all (6.1-cloud has no AHCI, cloud no e1000e),
# is none the worse for it.
DRIVERS="virtio_pci virtio_blk virtio_net virtio_rng virtio_console nvme ahci sd_mod e1000e ext4 crc32c_generic tun uio_pci_generic"
# Disks without hardware, in linux-*.disks: programs of ours serve them to other sandboxes, or
# have them from there (6.1 has no ublk_drv). One gives them checksums.
DISKS="brd loop nbd ublk_drv dm_integrity"
HEADERS=$ROOT/target/headers

name_of() { # series flavour -> artifact
    case $2 in
    amd64) echo "linux-$1" ;;
    cloud-amd64) echo "linux-$1-cloud" ;;
    esac
}

# resolve APT SERIES FLAVOUR -> "package=version" of the newest one on offer.
resolve() {
    private_apt "$1" 60 apt-cache show "linux-image-$3" 2>/dev/null | awk -v series="$2" -v flavour="$3" '
        $1 == "Version:" { version = $2 }
        $1 == "Depends:" && index(version, series ".") == 1 {
            if (match($0, /linux-image-[0-9][^ ,]*/)) {
                print version, substr($0, RSTART, RLENGTH) "=" version
            }
        }' | sort -V | tail -1 | cut -d' ' -f2
}

complete() {
    [ -f "$STAMP" ] && [ "$(head -1 "$STAMP")" = "# $FORMAT" ] && [ -d "$HEADERS" ] &&
        (cd "$ARTIFACTS" && sha256sum --check --status --strict "$STAMP" 2>/dev/null)
}

# What a module says of itself: `modinfo -F FIELD`, without that program.
module_info() { # file field
    tr '\0' '\n' <"$1" | sed -n "s/^$2=//p"
}

# Copies a module and what it depends on, uncompressed, as a kernel without
# user space's help wants it; nothing if there is no such module.
take_module() { # tree out name
    local file out name
    # Either character may stand in a file's name, and always _ in a dependency.
    file=$(find "$1" -name "${3//[-_]/[-_]}.ko*" -print -quit)
    [ -n "$file" ] || return 0
    out=$2/$(basename "${file%.xz}")
    [ ! -e "$out" ] || return 0
    case $file in
    *.xz) xz -dc "$file" >"$out" ;;
    *) cp "$file" "$out" ;;
    esac
    for name in $(module_info "$out" depends | tr ',' ' '); do take_module "$1" "$2" "$name"; done
}

# Drivers, with the tables that map devices' names to them.
take_drivers() { # tree out name...
    local tree=$1 modules=$2 version name
    version=$(basename "$tree"/lib/modules/*)
    rm -rf "$modules" && mkdir -p "$modules/lib/modules/$version"
    for name in "${@:3}"; do take_module "$tree/lib/modules" "$modules/lib/modules/$version" "$name"; done
    busybox depmod -b "$modules" "$version" || die "busybox depmod failed for $modules"
}

# Takes bzImage, configuration and drivers (and KVM's modules) out of a package.
unpack() { # deb artifact
    local deb=$1 name=$2 dir=$ROOT/target/apt/unpack
    rm -rf "$dir" && mkdir -p "$dir"
    # Debian 13's packages have their modules below /usr.
    dpkg-deb --fsys-tarfile "$deb" |
        tar -x -C "$dir" --wildcards --transform 's,^\./usr/lib,./lib,' './boot/*' '*/lib/modules/*'
    cp "$dir"/boot/config-* "$ARTIFACTS/$name.config"
    cp "$dir"/boot/vmlinuz-* "$ARTIFACTS/$name"
    "$ROOT/tools/vmlinux.sh" "$ARTIFACTS/$name" "$ARTIFACTS/$name.elf"
    take_drivers "$dir" "$ARTIFACTS/$name.modules" $DRIVERS
    take_drivers "$dir" "$ARTIFACTS/$name.disks" $DISKS
    if [ "$name" = linux-6.12 ]; then
        rm -rf "$ARTIFACTS/modules" && mkdir -p "$ARTIFACTS/modules"
        local module
        for module in $MODULES; do
            find "$dir" -name "$module*" -exec cp {} "$ARTIFACTS/modules/" \;
        done
        find "$ARTIFACTS/modules" -name '*.xz' -exec xz -d {} +
    fi
    rm -rf "$dir"
}

# A kernel's headers, with those and the tools that they are made of, each for all
# kernels of its version.
fetch_headers() { # apt package=version artifact
    local dir=$ROOT/target/apt/$1/archives deb headers=${2/linux-image-/linux-headers-}
    local -a parts
    mapfile -t parts < <(private_apt "$1" 60 apt-cache show "$headers" | sed -n 's/^Depends: //p' | head -1 |
        tr ',|' '\n\n' | grep -Eo 'linux-(headers-[^ ]*-common|kbuild-[^ ]*)')
    [ ${#parts[@]} -eq 2 ] || return 1
    (cd "$dir" && private_apt "$1" 900 apt-get download -q "$headers" "${parts[@]}" >&2) || return 1
    mkdir -p "$HEADERS"
    for deb in "$dir"/*.deb; do dpkg-deb -x "$deb" "$HEADERS"; done
    # It finds its parts by where packages are installed; here, by where it lies itself.
    headers=usr/src/${headers%%=*}
    sed -i 's,^include /usr/src,include $(dir $(lastword $(MAKEFILE_LIST)))..,' "$HEADERS/$headers/Makefile"
    ln -sfn "$headers" "$HEADERS/$3"
    rm -f "$dir"/*.deb
}

fetch() { # apt package=version artifact
    local dir=$ROOT/target/apt/$1/archives
    mkdir -p "$dir"
    rm -f "$dir"/*.deb
    say "fetching $3: $2"
    (cd "$dir" && private_apt "$1" 900 apt-get download -q "$2" >&2) || return 1
    unpack "$dir"/*.deb "$3"
    rm -f "$dir"/*.deb
    fetch_headers "$1" "$2" "$3" || return 1
}

main() {
    [ "${1:-}" = --refresh ] && rm -f "$STAMP"
    if complete; then return 0; fi
    [ -r "$KEYRING" ] || die "no $KEYRING; install debian-archive-keyring"
    mkdir -p "$ARTIFACTS"
    local debian security
    debian=$(mirror_of main) || die "apt knows no Debian mirror (bookworm or trixie) on this machine"
    security=$(mirror_of security) || security=

    # The smallest lists come first; the others only if a series is missing.
    private_apt_sources small ${security:+"$security bookworm-security"} "$debian bookworm-backports"
    private_apt_sources large "$debian bookworm" "$debian trixie" ${security:+"$security trixie-security"}
    local apt series flavour name package
    local -A todo=()
    for series in $SERIES; do for flavour in $FLAVOURS; do todo[$(name_of "$series" "$flavour")]="$series $flavour"; done; done
    for apt in small large; do
        [ ${#todo[@]} -gt 0 ] || break
        say "reading Debian's package lists ($apt set)"
        private_apt "$apt" 300 apt-get update -q >&2 || warn "some lists could not be read"
        for name in $(printf '%s\n' "${!todo[@]}" | sort); do
            read -r series flavour <<<"${todo[$name]}"
            package=$(resolve "$apt" "$series" "$flavour") || true
            [ -n "$package" ] || continue
            fetch "$apt" "$package" "$name" || continue
            echo "$package" >"$ARTIFACTS/$name.package"
            unset "todo[$name]"
        done
    done
    for name in "${!todo[@]}"; do
        case $name in
        linux-6.12*) die "no Debian package for $name on $debian" ;;
        *) warn "no Debian package for $name on $debian: its tests will be skipped" ;;
        esac
    done
    {
        echo "# $FORMAT"
        cd "$ARTIFACTS" && find linux-* modules -type f | sort | xargs sha256sum
    } >"$STAMP.new"
    mv "$STAMP.new" "$STAMP"
    rm -rf "$ROOT/target/apt/small" "$ROOT/target/apt/large"
    say "kernels in target/artifacts: $(cd "$ARTIFACTS" && cat linux-*.package | tr '\n' ' ')"
}

main "$@"
