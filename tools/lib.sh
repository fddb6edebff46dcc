# Shared by the set-up scripts; sourced, not run.
# Every wait in here has a limit, and every step that takes time says what it does.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ARTIFACTS=$ROOT/target/artifacts
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# Where rustup keeps the pinned toolchain.
toolchain_dir() {
    local channel
    channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' "$ROOT/rust-toolchain.toml")
    echo "${RUSTUP_HOME:-$HOME/.rustup}/toolchains/$channel-x86_64-unknown-linux-gnu"
}
# The pinned tools come first: neither another default toolchain nor the absence
# of rustup then matters.
PATH=$(toolchain_dir)/bin:$PATH
# Emulators and mkrescue's helpers lie where a plain user's PATH may not lead.
PATH=$PATH:/usr/sbin:/sbin
export PATH

# The least version of QEMU, which stands in the command's own source.
qemu_least() {
    local least
    least=$(sed -n 's/^pub const LEAST: u32 = \([0-9]*\);$/\1/p' "$ROOT/crates/host/qemu/src/machine.rs")
    [ -n "$least" ] || die "crates/host/qemu/src/machine.rs names no least version of QEMU"
    echo "$least"
}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
warn() { printf '\033[1;33mwarning:\033[0m %s\n' "$*" >&2; }
die() {
    printf '\033[1;31merror:\033[0m %s\n' "$*" >&2
    exit 1
}

# limited SECONDS COMMAND...: a command that must end in time; says so if it did not.
limited() {
    local seconds=$1 status=0
    shift
    timeout -k 10 "$seconds" "$@" || status=$?
    [ "$status" -ne 124 ] || warn "gave up after $seconds s: $*"
    return "$status"
}

# The mirrors this machine already uses, so that a local one is respected:
# `mirror_of main` and `mirror_of security`.
mirror_of() {
    local wanted=$1 uri suite
    while read -r uri suite; do
        case "$wanted:$suite" in
        main:bookworm | main:trixie) ;;
        security:bookworm-security | security:trixie-security) ;;
        *) continue ;;
        esac
        printf '%s\n' "${uri%/}"
        return 0
    done < <(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null)
    return 1
}

# A private apt: its own sources, lists and (empty) status below target/apt, so
# that packages of either Debian release can be fetched as data, without root
# and without touching the machine's own configuration.
# private_apt_sources NAME "MIRROR SUITE"...; then private_apt NAME SECONDS COMMAND...
private_apt_sources() {
    local dir=$ROOT/target/apt/$1 line
    shift
    mkdir -p "$dir/lists/partial" "$dir/archives/partial"
    : >"$dir/status"
    for line in "$@"; do
        printf 'deb [arch=amd64 signed-by=%s] %s main\n' "$KEYRING" "$line"
    done >"$dir/sources.list"
    cat >"$dir/apt.conf" <<END
Dir::State "$dir";
Dir::State::lists "$dir/lists";
Dir::State::status "$dir/status";
Dir::Cache "$dir";
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "amd64";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "4";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
END
}

private_apt() {
    local conf=$ROOT/target/apt/$1/apt.conf seconds=$2
    shift 2
    APT_CONFIG=$conf limited "$seconds" "$@"
}
