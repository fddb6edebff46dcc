#!/usr/bin/env bash
# Lines of privileged code: everything that boot code and monitor link, crates
# of this repository and others alike, without blank lines, comments and unit
# tests. It counts whole crates, also what the linker drops.
#
#   tools/lines.sh       a table
#   tools/lines.sh -q    "monitor N", "boot N" (boot: what the monitor does not have), "vmx N" (VT-x' monitor: what
#                        SVM's does not have), "portable N" (lines of crates without x86 that name VT-x)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# Folders of the packages that a package links; linked PACKAGE
linked() {
    cargo tree --locked --offline -q -p "$1" --target x86_64-unknown-none -e normal,no-proc-macro --prefix none -f '{p}' |
        sed 's|^.* (\(/[^)]*\)).*|\1|; t; s|^|not of this repository: |' | sort -u
}

# Lines of a crate, those alone that match a pattern if there is one. Unit tests are the end of a file, from
# #[cfg(test)] before `mod tests` on.
lines() { # FOLDER, pattern
    find "$1/src" -path '*/src/late' -prune -o -name '*.rs' -exec awk -v wanted="${2:-}" '
        FNR == 1 { if (held) n++; held = 0; tests = 0 }
        /^#\[cfg\(test\)\]$/ { held = 1; next }
        held && /^mod tests/ { tests = 1; held = 0 }
        held { n++; held = 0 }
        tests || /^[[:space:]]*($|\/\/)/ { next }
        tolower($0) ~ wanted { n++ }
        END { print n + 0 }' {} +
}

table() { # PACKAGE, folders not to count
    local package=$1 sum=0 n folder
    while read -r folder; do
        [ -d "$folder" ] || die "$package links $folder"
        grep -qxF "$folder" <<<"${2:-}" && continue
        n=$(lines "$folder")
        [ "$quiet" ] || printf '  %-20s %6d\n' "${folder#"$ROOT"/}" "$n"
        sum=$((sum + n))
    done < <(linked "$package" | sort -u)
    package=${package#bulkhead-}
    package=${package%-svm}
    printf '%s %d\n' "${package#monitor-}" "$sum"
}

# Lines that name VT-x in crates which VT-x' monitor links and which know no x86.
portable() {
    local sum=0 folder
    while read -r folder; do
        case $folder in *x86*|*/monitor/vmx|*/decoder) continue ;; esac
        sum=$((sum + $(lines "$folder" 'vmx|vmcs|vt-x|intel')))
    done < <(linked bulkhead-monitor-vmx)
    printf 'portable %d\n' "$sum"
}

# Lines of the code that starts an image under a Linux, beside the boot code's files that it shares; of its module in C.
late() {
    printf 'late %d\n' "$(find boot/src/late -name '*.rs' -exec grep -hvcE '^[[:space:]]*($|//)' {} + | awk -F: '{ n += $NF } END { print n }')"
    printf 'module %d\n' "$(cat linux/enable/*.[chS] | grep -cvE '^[[:space:]]*($|//|/?\*)')"
}

quiet=
[ "${1:-}" = -q ] && quiet=1
table bulkhead-monitor-svm
table bulkhead-boot "$(linked bulkhead-monitor-svm)"
table bulkhead-monitor-vmx "$(linked bulkhead-monitor-svm)"
portable
late
