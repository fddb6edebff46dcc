#!/usr/bin/env bash
# Puts what was built where other users and projects find it, and takes it away again; `make install` calls it.
#
#   tools/install.sh            installs to $DESTDIR$PREFIX; PREFIX is /usr/local if it is not given
#   tools/install.sh --remove   removes exactly what was installed there, by the list that was kept
#
# Everything is put together below target/install first, as whoever built it: cargo's cache is theirs. Only the copying
# needs the right to write to PREFIX, and takes sudo where that is missing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

PREFIX=${PREFIX:-/usr/local}
TO=${DESTDIR:-}$PREFIX
STAGE=$ROOT/target/install
SHARE=$STAGE/share/bulkhead
# Files and links of an installation, one a line.
LIST=lib/bulkhead/installed
VERSION=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
BARE=${CARGO_TARGET_DIR:-target}/x86_64-unknown-none/guest

[[ $PREFIX = /* ]] || die "PREFIX is $PREFIX, and has to be an absolute path"

# The nearest folder upwards that is there decides who may write.
as_owner() { # COMMAND...
    local folder=$TO
    until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
    if [ -w "$folder" ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "$folder cannot be written, and there is no sudo; run \`make install\` as root, or give another PREFIX"
    fi
}

# A list names files below TO alone; folders go once they are empty.
remove() {
    [ -f "$TO/$LIST" ] || return 0
    as_owner bash -s -- "$TO" "$LIST" <<'END'
set -euo pipefail
cd "$1"
while IFS= read -r file; do
    case /$file/ in
    */../* | //*) continue ;;
    esac
    rm -f -- "$file"
done <"$2"
rm -f -- "$2"
# Only folders that are Bulkhead's own.
for own in lib/bulkhead share/bulkhead src/bulkhead-*; do
    [ ! -d "$own" ] || find "$own" -depth -type d -empty -delete
done
END
}

if [ "${1:-}" = --remove ]; then
    [ -f "$TO/$LIST" ] || die "nothing of Bulkhead is installed in $TO: there is no $TO/$LIST"
    remove
    say "removed what was installed in $TO"
    exit 0
fi

for needed in target/release/bulkhead "$ARTIFACTS/boot" "$ARTIFACTS/kernel" "$BARE/libbulkhead_sdk_c.a"; do
    [ -e "$needed" ] || die "there is no $needed; run \`make build\` first"
done

rm -rf "$STAGE"
mkdir -p "$STAGE"/{bin,lib/bulkhead/artifacts,src} "$SHARE"/{systems,sdk/rust,sdk/c/lib}
cp target/release/bulkhead "$STAGE/bin"
strip --strip-debug "$STAGE/bin/bulkhead"

# What an image is made of, and the Linux of templates. Then the systems whose guests need no disk, with their guests.
artifacts=(boot late kernel kernel-trace plugin.so linux-6.12-cloud test.cpio)
for monitor in "$ARTIFACTS"/{,vmx-}monitor*; do
    artifacts+=("$(basename "$monitor")")
done
for system in systems/*.toml; do
    mapfile -t guests < <(grep -o 'artifact:[a-z0-9.-]*' "$system" | sed 's/artifact://' | sort -u)
    [[ " ${guests[*]} " = *.img* ]] && continue
    cp "$system" "$SHARE/systems"
    artifacts+=("${guests[@]}")
done
for artifact in $(printf '%s\n' "${artifacts[@]}" | sort -u); do
    cp "$ARTIFACTS/$artifact" "$STAGE/lib/bulkhead/artifacts"
done
cp -r machines "$SHARE"
cp -r docs/schema "$SHARE"

# The Rust SDK: the packages that a guest or a program is made of, in the folders that they have here. A test's
# dependencies are left out, because nobody tests the SDK there.
RUST=$SHARE/sdk/rust
mapfile -t packages < <(cargo tree --offline --locked -q -p bulkhead-sdk -p bulkhead-program -p bulkhead-build \
    -e normal,build --target x86_64-unknown-none --all-features --prefix none -f '{p}' |
    sed -n "s|.* ($ROOT/\([^)]*\)).*|\1|p" | sort -u)
for package in "${packages[@]}"; do
    mkdir -p "$RUST/$package"
    cp -r "$package/src" "$RUST/$package"
    awk '/^\[/ { dropped = /dev-dependencies/ || /^\[\[(test|bench|example)\]\]/ } !dropped' "$package/Cargo.toml" \
        >"$RUST/$package/Cargo.toml"
done
cp sdk/guest.ld "$RUST/sdk"
cp program/program.ld "$RUST/program"
{
    printf '# Made by `make install` of the root Cargo.toml of the source tree.\n[workspace]\nresolver = "3"\nmembers = [\n'
    printf '    "%s",\n' "${packages[@]}"
    printf ']\n\n'
    awk '/^\[/ { kept = /^\[workspace\.(package|lints)/ } kept && !/^#/' Cargo.toml
    printf '[workspace.dependencies]\n'
    # Those that a package here names.
    awk '/^\[/ { kept = /^\[workspace\.dependencies\]/; next } kept && NF' Cargo.toml | while IFS= read -r line; do
        ! grep -qrE --include=Cargo.toml "^${line%% *}( |\.)" "$RUST" || printf '%s\n' "$line"
    done
} >"$RUST/Cargo.toml"
# The versions of this tree; cargo drops those that nothing here needs.
cp Cargo.lock "$RUST"
(cd "$RUST" && cargo metadata --offline -q --format-version 1 >/dev/null)
(cd "$RUST" && cargo vendor --offline --locked -q "$SHARE/vendor" >/dev/null)

# The C SDK: headers, sources, link scripts and libraries, in the folders that they have here.
C=$SHARE/sdk/c
mkdir -p "$C"/{sdk/c/arch,program/c}
cp -r sdk/include sdk/guest.ld "$C/sdk"
cp sdk/c/*.[ch] sdk/c/cc.sh "$C/sdk/c"
cp sdk/c/arch/* "$C/sdk/c/arch"
cp -r program/include program/program.ld "$C/program"
cp program/c/*.c "$C/program/c"
cp "$BARE/libbulkhead_sdk_c.a" "$BARE/libbulkhead_program_c.a" "$C/lib"

ln -s ../share/bulkhead/sdk/c/sdk/c/cc.sh "$STAGE/bin/bulkhead-cc"

# Modules for Linux, where DKMS looks for sources.
for module in linux/*/dkms.conf; do
    folder=$(dirname "$module")
    name=$(sed -n 's/^PACKAGE_NAME="\(.*\)"/\1/p' "$module")
    mkdir "$STAGE/src/$name-$VERSION"
    for file in "$folder"/{*.[chS],Kbuild,Makefile,dkms.conf,LICENSE*}; do
        [ ! -f "$file" ] || cp "$file" "$STAGE/src/$name-$VERSION"
    done
done

chmod -R u=rwX,go=rX "$STAGE"
(cd "$STAGE" && find . ! -type d -printf '%P\n' | sort) >"$STAGE/$LIST.new"
mv "$STAGE/$LIST.new" "$STAGE/$LIST"
# What an older version had, and this one has not, goes.
remove
as_owner mkdir -p "$TO"
as_owner cp -rP --no-preserve=ownership "$STAGE/." "$TO"
say "installed in $TO; \`$TO/bin/bulkhead new NAME\` makes a project"
