#!/usr/bin/env bash
# Puts what was built where other users and projects find it, and takes it away again; `make install` calls it.
#
#   tools/install.sh            installs to $DESTDIR$PREFIX; PREFIX is /usr/local if it is not given
#   tools/install.sh --remove   removes exactly what was installed there, by the list that was kept
#   tools/install.sh --stage FOLDER   makes the folder anew, and only puts it together there, for tools/deb.sh
#
# Folders go where the installation made them and nothing is left in them.
#
# Everything is put together below target/install first, as whoever built it: cargo's cache is theirs. Only the copying
# needs the right to write to PREFIX, and takes sudo where that is missing.
set -euo pipefail
# Letters have one meaning and one order, and everyone may read what is installed.
export LC_ALL=C
umask 022
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

PREFIX=${PREFIX:-/usr/local}
TO=${DESTDIR:-}$PREFIX
STAGE=$ROOT/target/install
[ "${1:-}" != --stage ] || STAGE=$(realpath -m "${2:?--stage needs a folder}")
SHARE=$STAGE/share/bulkhead
# Files, links and made folders of an installation, one a line; a folder ends with `/`.
LIST=lib/bulkhead/installed
BUILT=${CARGO_TARGET_DIR:-target}
BARE=$BUILT/x86_64-unknown-none/guest

[[ $PREFIX = /* ]] || die "PREFIX is $PREFIX, and has to be an absolute path"
# As `plain` in cli/src/cmd/new.rs: projects name these paths in Makefiles.
for variable in PREFIX DESTDIR; do
    value=${!variable:-}
    [[ $value != *[^a-zA-Z0-9/._+~,-]* ]] ||
        die "$variable is \`$value\`; a Makefile can name a path of letters, digits and \`/._-+~,\` alone"
done

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

# Puts the names of a list in place of those of the list that was kept in TO; with an empty one, all of them go.
replace() { # NAMES
    as_owner bash -s -- "$STAGE" "$TO" "$LIST" "$1" <<'END'
set -euo pipefail
export LC_ALL=C
umask 022
stage=$1 list=$3 names=$4
mkdir -p "$2"
cd "$2"
refuse() {
    printf 'error: %s; nothing was changed; make room, or give another PREFIX\n' "$*" >&2
    exit 1
}
keep() { # TEXT
    mkdir -p "${list%/*}"
    sort -u <<<"$1" | sed '/^$/d' >"$list.new"
    mv "$list.new" "$list"
}
old=
[ ! -f "$list" ] || old=$(sort "$list")
# What does not fit is found before anything is changed. Folders of others do not get into the new list.
new=
while IFS= read -r name; do
    place=${name%/}
    if [ "$place" = "$name" ]; then
        [ -L "$place" ] || [ ! -d "$place" ] || refuse "$PWD/$place is a folder, and a file has to be there"
    elif [ -L "$place" ] || { [ -e "$place" ] && [ ! -d "$place" ]; }; then
        refuse "$PWD/$place is a link or a file, and a folder has to be there"
    elif [ -d "$place" ] && ! grep -qxF -e "$name" <<<"$old"; then
        continue
    fi
    new+=$name$'\n'
done <"$names"
# Both lists are kept until the copying ends. Whatever ends it early, all that is there can be removed.
[ -z "$new" ] || keep "$old"$'\n'"$new"
while IFS= read -r name; do
    [ "${name%/}" != "$name" ] || continue
    mkdir -p "$name"
    # A command that runs keeps its file.
    find "$stage/$name" -maxdepth 1 ! -type d -exec cp -P --remove-destination -t "$name" {} +
done <"$names"
# Names below TO alone.
gone=$(sort -r <<<"$old" | grep -vxF -e "$new" | grep -vE '^/|//|(^|/)\.\.(/|$)') || true
while IFS= read -r name; do
    [ -z "$name" ] || [ "${name%/}" != "$name" ] || rm -f -- "$name"
done <<<"$gone"
if [ -n "$new" ]; then keep "$new"; else rm -f -- "$list"; fi
while IFS= read -r name; do
    [ "${name%/}" = "$name" ] || rmdir -- "$name" 2>/dev/null || true
done <<<"$gone"
END
}

if [ "${1:-}" = --remove ]; then
    [ -f "$TO/$LIST" ] || die "nothing of Bulkhead is installed in $TO: there is no $TO/$LIST"
    replace /dev/null
    say "removed what was installed in $TO"
    exit 0
fi

CTL=$BUILT/x86_64-unknown-linux-musl/linux/bulkheadctl
for needed in "$BUILT/release/bulkhead" "$CTL" "$ARTIFACTS/boot" "$ARTIFACTS/kernel" "$ARTIFACTS/newlib/stamp" "$BARE/libbulkhead_sdk_c.a"; do
    [ -e "$needed" ] || die "there is no $needed; run \`make build\` first"
done

rm -rf "$STAGE"
mkdir -p "$STAGE"/{bin,lib/bulkhead/artifacts,src} "$SHARE"/{systems,sdk/rust,sdk/c/lib}
# The second one is static: it goes into the Linux of a sandbox, too.
cp "$BUILT/release/bulkhead" "$CTL" "$STAGE/bin"
strip --strip-all "$STAGE"/bin/*
"$BUILT/release/bulkhead" pages "$STAGE/share"

# What an image is made of, and the Linux of templates. Then the systems whose guests need no disk, with their guests.
artifacts=(boot late kernel kernel-trace plugin.so linux-6.12-cloud guest.cpio)
for monitor in "$ARTIFACTS"/{,vmx-}monitor*; do
    artifacts+=("$(basename "$monitor")")
done
for system in systems/*.toml; do
    found=$(grep -o 'artifact:[a-z0-9.-]*' "$system" | sed 's/artifact://' | sort -u) || die "$system names no artifact"
    mapfile -t guests <<<"$found"
    [[ " ${guests[*]} " = *.img* ]] && continue
    cp "$system" "$SHARE/systems"
    artifacts+=("${guests[@]}")
done
for artifact in $(printf '%s\n' "${artifacts[@]}" | sort -u); do
    cp "$ARTIFACTS/$artifact" "$STAGE/lib/bulkhead/artifacts"
done
strip --strip-unneeded "$STAGE/lib/bulkhead/artifacts/plugin.so"
cp -r machines "$SHARE"
cp -r docs/schema "$SHARE"

# The Rust SDK: the packages that a guest or a program is made of, in the folders that they have here. A test's
# dependencies are left out, because nobody tests the SDK there.
RUST=$SHARE/sdk/rust
found=$(cargo tree --offline --locked -q -p bulkhead-sdk -p bulkhead-program -p bulkhead-build \
    -e normal,build --target x86_64-unknown-none --all-features --prefix none -f '{p}' |
    sed -n "s|.* ($ROOT/\([^)]*\)).*|\1|p" | sort -u)
[ -n "$found" ] || die "cargo names no package of the SDK in $ROOT"
mapfile -t packages <<<"$found"
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
# The C library, with its licence, and our part of it.
cp -r program/libc "$C/program"
cp -r "$ARTIFACTS/newlib" "$C"
rm "$C/newlib/stamp"
cp "$BARE/libbulkhead_sdk_c.a" "$BARE/libbulkhead_program_c.a" "$C/lib"

ln -s ../share/bulkhead/sdk/c/sdk/c/cc.sh "$STAGE/bin/bulkhead-cc"

# Modules for Linux: `dkms add PREFIX/src/NAME-VERSION` copies one to /usr/src, where DKMS looks.
for module in linux/*/dkms.conf; do
    folder=$(dirname "$module")
    name=$(sed -n 's/^PACKAGE_NAME="\(.*\)"/\1/p' "$module")
    version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$module")
    [ -n "$name" ] && [ -n "$version" ] || die "$module names no PACKAGE_NAME or no PACKAGE_VERSION"
    mkdir "$STAGE/src/$name-$version"
    for file in "$folder"/{*.[chS],Kbuild,Makefile,dkms.conf,LICENSE*}; do
        [ ! -f "$file" ] || cp "$file" "$STAGE/src/$name-$version"
    done
done

chmod -R u=rwX,go=rX "$STAGE"
[ "${1:-}" != --stage ] || exit 0
(cd "$STAGE" && find . -mindepth 1 \( -type d -printf '%P/\n' -o -printf '%P\n' \) | sort) >"$STAGE.list"
replace "$STAGE.list"
say "installed in $TO; \`$TO/bin/bulkhead new NAME\` makes a project"
say "\`dkms add $PREFIX/src/NAME-VERSION\` makes a Linux module known to DKMS"
