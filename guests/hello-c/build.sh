#!/bin/sh
# Builds the bare guest in C of this folder: build.sh [OUTPUT [LIBRARY.a]...]; default
# target/x86_64-unknown-none/guest/guest-FOLDER. Other guests link to this file.
# SPDX-License-Identifier: Apache-2.0 OR MIT
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
output=${1:-$root/target/x86_64-unknown-none/guest/guest-$(basename "$here")}
[ $# -eq 0 ] || shift
exec "$root/sdk/c/cc.sh" guest "$output" "$here/main.c" "$@"
