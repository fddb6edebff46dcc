#!/usr/bin/env bash
# Tries what README says on a fresh Debian 12 and a fresh Debian 13: a minimal system in a folder, a clean clone of what
# is committed here, `CI=true make run`, `make test`. `make test-fresh` calls it; it needs root.
#
#   tools/fresh.sh                       both releases: run, then all tests
#   tools/fresh.sh --run trixie          only `make run`, on one release
#   tools/fresh.sh --filter line trixie  `make run`, then only tests whose names have "line" (more of them: repeat it)
#   --no-run     skips `make run`
#   --keep       leaves the system in target/fresh/RELEASE, and uses one that is there
#   --dir DIR    makes the systems elsewhere
#
# Everything runs in namespaces of its own: what is mounted for it, and every process of it, is gone when it ends,
# however it ends. Mirrors, proxies and certificates are the machine's own. The output is also in DIR/RELEASE.log.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Seconds that each step may take, on a machine that has other work, too.
BOOTSTRAP_LIMIT=1200
RUN_LIMIT=5400
TEST_LIMIT=14400
CLONE=/root/bulkhead

run=yes all=yes keep= filters=() suites=() dir=$ROOT/target/fresh
while [ $# -gt 0 ]; do
    case $1 in
    --run) all= ;;
    --no-run) run= ;;
    --keep) keep=yes ;;
    --filter) filters+=("${2:?--filter wants a part of a name}") && shift ;;
    --dir) dir=${2:?--dir wants a folder} && shift ;;
    12 | bookworm) suites+=(bookworm) ;;
    13 | trixie) suites+=(trixie) ;;
    *) die "usage: tools/fresh.sh [--run | --filter NAME...] [--no-run] [--keep] [--dir DIR] [bookworm] [trixie]" ;;
    esac
    shift
done
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)

[ "$(id -u)" = 0 ] || die "a fresh Debian in a folder needs root: sudo make test-fresh"
if ! command -v mmdebstrap >/dev/null; then
    say "installing mmdebstrap"
    limited 600 apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends mmdebstrap >&2 ||
        die "cannot install mmdebstrap"
fi

# What runs in the background: a signal is acted on at once, and ends it with all that it started.
job=
stop() {
    trap '' INT TERM
    [ -z "$job" ] || { kill -TERM "$job" 2>/dev/null && wait "$job"; } || true
    job=
}
trap 'stop; warn "interrupted"; exit 130' INT TERM
trap stop EXIT

# waited SECONDS COMMAND...: as `limited`, for what may be interrupted.
waited() {
    local seconds=$1 status=0
    shift
    timeout -k 5 "$seconds" "$@" </dev/null &
    job=$!
    wait "$job" || status=$?
    job=
    [ "$status" -lt 124 ] || warn "it ended with status $status (limit: $seconds s): $*"
    return "$status"
}

# inside SECONDS SYSTEM COMMAND: a shell's line in the system. The first process there ends with `unshare`, and takes
# all others and the mounts along. /dev/shm holds the emulators' memory, /dev/pts is wanted by tests with a terminal.
inside() {
    local seconds=$1 system=$2
    local -a environment=(HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin CI=true)
    local name
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [ -z "${!name:-}" ] || environment+=("$name=${!name}")
    done
    waited "$seconds" unshare --mount --propagation private --pid --fork --kill-child \
        bash -euc '
            system=$1 line=$2
            shift 2
            mount -t proc proc "$system/proc"
            mount --rbind /sys "$system/sys"
            mount --rbind /dev "$system/dev"
            mount -t tmpfs -o mode=1777 tmpfs "$system/dev/shm"
            mountpoint -q "$system/dev/pts" ||
                mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$system/dev/pts"
            mount -t tmpfs -o mode=1777 tmpfs "$system/tmp"
            exec env -i "$@" chroot "$system" sh -c "$line"
        ' fresh "$system" "$3" "${environment[@]}"
}

make_system() { # suite system
    local suite=$1 system=$2 debian security settings=$dir/apt.conf
    local -a sources
    debian=$(mirror_of main) || die "apt knows no Debian mirror on this machine"
    security=$(mirror_of security) || security=
    sources=("deb [signed-by=$KEYRING] $debian $suite main" "deb [signed-by=$KEYRING] $debian $suite-updates main")
    [ -z "$security" ] || sources+=("deb [signed-by=$KEYRING] $security $suite-security main")
    # How this machine's apt reaches its mirrors.
    apt-config dump Acquire >"$settings"
    say "making a fresh $suite in $system"
    rm -rf --one-file-system "$system"
    printf '%s\n' "${sources[@]}" |
        timeout -k 5 "$BOOTSTRAP_LIMIT" mmdebstrap --quiet --variant=minbase --aptopt="$settings" \
            --include=make,git,ca-certificates,curl "$suite" "$system" - ||
        die "mmdebstrap failed for $suite"
}

# As this machine reaches its mirrors and registries, so does the system.
lead_out() { # system
    local system=$1
    rm -f "$system/etc/resolv.conf" # which may be a link that leads out of the system
    cat /etc/resolv.conf >"$system/etc/resolv.conf"
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        cp /usr/local/share/ca-certificates/*.crt "$system/usr/local/share/ca-certificates/"
        inside 60 "$system" 'update-ca-certificates >/dev/null' || die "no certificates in $system"
    fi
}

clone() { # system
    local system=$1 commit
    commit=$(git -C "$ROOT" rev-parse HEAD)
    [ -z "$(git -C "$ROOT" status --porcelain)" ] || warn "only what is committed is tried: $commit"
    # A clone that is kept goes on to the new commit, with what it has built.
    {
        [ -d "$system$CLONE" ] || git clone -q "file://$ROOT" "$system$CLONE"
    } && git -C "$system$CLONE" fetch -q "file://$ROOT" HEAD &&
        git -C "$system$CLONE" checkout -q --force --detach "$commit" || die "cannot clone $ROOT"
}

# Prints a line for each step's end into the summary.
step() { # suite name seconds system command
    local begun=$SECONDS result=passed
    say "$1: $2"
    # Not by a pipe: what waits for the step must be this shell, which has the traps.
    inside "$3" "$4" "cd $CLONE && $5" > >(tee -a "$dir/$1.log") 2>&1 || result=FAILED
    summary+=("$1: $2: $result after $((SECONDS - begun)) s")
    [ "$result" = passed ]
}

try() { # suite
    local suite=$1 system=$dir/$1 filter
    [ -n "$keep" ] && [ -d "$system$CLONE" ] || make_system "$suite" "$system"
    lead_out "$system"
    clone "$system"
    : >"$dir/$suite.log"
    if [ -n "$run" ]; then
        step "$suite" "make run" "$RUN_LIMIT" "$system" "make run" || return 1
    fi
    if [ ${#filters[@]} -gt 0 ]; then
        for filter in "${filters[@]}"; do
            step "$suite" "tests of $filter" "$TEST_LIMIT" "$system" "make test TEST='--filter $filter'" || failed=yes
        done
    elif [ -n "$all" ]; then
        step "$suite" "make test" "$TEST_LIMIT" "$system" "make test" || return 1
    fi
}

mkdir -p "$dir"
summary=() failed=
for suite in "${suites[@]}"; do
    try "$suite" || failed=yes
    [ -n "$keep" ] || rm -rf --one-file-system "${dir:?}/$suite"
done
printf '%s\n' "${summary[@]}"
[ -z "$failed" ]
