#!/usr/bin/env bash
# Makes a Debian package of what was built; `make deb` calls it.
#
#   tools/deb.sh               target/deb/bulkhead_VERSION_amd64.deb
#   tools/deb.sh --fast FILE   that file, hardly compressed, as a test wants it
#
# It holds what `make install PREFIX=/usr` installs, without debhelper: all of it has been built by then, and
# dpkg-deb needs six small files beside it. tools/deb has those that no line here makes (decision 84).
# DEBFULLNAME and DEBEMAIL name its maintainer, as in Debian's tools; otherwise it is the author of the last commit.
set -euo pipefail
export LC_ALL=C
umask 022
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

for program in dpkg-deb dpkg-shlibdeps gzip md5sum; do
    command -v "$program" >/dev/null || die "no $program; \`apt install dpkg dpkg-dev\` installs it"
done

VERSION=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
ARCH=amd64
WORK=$ROOT/target/deb
PACKAGE=$WORK/bulkhead_${VERSION}_$ARCH.deb
COMPRESSION=(-Zxz)
if [ "${1:-}" = --fast ]; then
    PACKAGE=$(realpath -m "${2:?--fast needs a file}")
    COMPRESSION=(-Zgzip -z1)
    WORK=$PACKAGE.work
fi
TREE=$WORK/bulkhead
USR=$TREE/usr
DOC=$USR/share/doc/bulkhead

author=$(git log -1 --format='%an <%ae>' 2>/dev/null) || author=
MAINTAINER=$author
[ -z "${DEBEMAIL:-}" ] || MAINTAINER="${DEBFULLNAME:-$DEBEMAIL} <$DEBEMAIL>"
[ -n "$MAINTAINER" ] || die "this is no clone of git: DEBFULLNAME and DEBEMAIL have to name the package's maintainer"
# Two packages of one commit are equal, byte for byte.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH

rm -rf "$WORK"
mkdir -p "$TREE/DEBIAN"
tools/install.sh --stage "$USR"
# Debian's place for completions of packages.
mv "$USR/share/zsh/site-functions" "$USR/share/zsh/vendor-completions"
# Libraries that a linker reads are of an architecture.
mkdir -p "$USR/lib/bulkhead/c"
mv "$USR"/share/bulkhead/sdk/c/lib/*.a "$USR/lib/bulkhead/c"
rmdir "$USR/share/bulkhead/sdk/c/lib"
ln -s ../../../../lib/bulkhead/c "$USR/share/bulkhead/sdk/c/lib"
mv "$USR/share/bulkhead/sdk/c/newlib/lib" "$USR/lib/bulkhead/newlib"
ln -s ../../../../../lib/bulkhead/newlib "$USR/share/bulkhead/sdk/c/newlib/lib"
find "$USR/share/man" -name '*.1' -exec gzip -9n {} +

mkdir -p "$DOC" "$USR/share/lintian/overrides"
cp tools/deb/lintian "$USR/share/lintian/overrides/bulkhead"
gzip -9nc CHANGELOG.md >"$DOC/NEWS.gz"
cat <<END | gzip -9nc >"$DOC/changelog.gz"
bulkhead ($VERSION) unstable; urgency=medium

  * The changes of each version are in NEWS.gz.

 -- $MAINTAINER  $(date -uRd "@$SOURCE_DATE_EPOCH")
END
{
    cat tools/deb/copyright
    # Packages of others, as their own files say.
    for folder in "$USR"/share/bulkhead/vendor/*/; do
        field() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$folder/Cargo.toml" | head -1; }
        authors=$(sed -n '/^authors = \[/,/\]/{s/^[^"]*"\([^"]*\)".*/\1/p}' "$folder/Cargo.toml" | paste -sd,)
        printf '\nFiles: usr/share/bulkhead/vendor/%s/*\n' "$(basename "$folder")"
        printf 'Copyright: %s\n' "${authors:-The authors of $(field name)}"
        printf 'License: %s\n' "$(field license | sed 's|/| OR |g; s/ OR /~or~/g; s/ AND /~and~/g; s/ /-/g; s/~/ /g')"
    done
} >"$DOC/copyright"

size=$(du -k -s --apparent-size "$USR" | cut -f1)
# Libraries that the command links to, by Debian's own tool. It wants a source package around it.
mkdir -p "$WORK/source/debian"
printf 'Source: bulkhead\n\nPackage: bulkhead\nArchitecture: any\n' >"$WORK/source/debian/control"
depends=$(cd "$WORK/source" && dpkg-shlibdeps -O "$USR/bin/bulkhead" 2>"$WORK/shlibdeps.log" | sed 's/^shlibs:Depends=//') ||
    die "dpkg-shlibdeps does not say which libraries the command needs: $(cat "$WORK/shlibdeps.log")"
least=$(qemu_least)
cat >"$TREE/DEBIAN/control" <<END
Package: bulkhead
Version: $VERSION
Architecture: $ARCH
Maintainer: $MAINTAINER
Installed-Size: $size
Depends: $depends, qemu-system-x86 (>= 1:$least)
Recommends: gcc, binutils, make
Suggests: gdb, grub-common, grub-pc-bin, grub-efi-amd64-bin, xorriso, mtools, bochs, dkms, rustup
Section: devel
Priority: optional
Description: separation kernel that divides a machine into sandboxes
 A manifest divides one machine into sandboxes: Linux, bare programs, and a
 real-time kernel with programs of its own. Each has its cores, memory, devices
 and interrupts, and nothing else. A monitor on each core keeps it so.
 .
 This package has the command, which checks manifests, builds images and runs
 them in QEMU, the monitors, the SDKs for Rust and C, examples, and the sources
 of two modules for Linux, in a form for DKMS.
END
install -m 755 tools/deb/prerm "$TREE/DEBIAN/prerm"
(cd "$TREE" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$TREE/DEBIAN/md5sums"

mkdir -p "$(dirname "$PACKAGE")"
dpkg-deb --root-owner-group "${COMPRESSION[@]}" --build "$TREE" "$PACKAGE" >/dev/null
[ "${1:-}" != --fast ] || rm -rf "$WORK"
say "${PACKAGE#"$ROOT"/}: $(stat -c %s "$PACKAGE") bytes; as root, \`apt install ./${PACKAGE##*/}\` installs it"
