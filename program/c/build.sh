#!/bin/sh
# Builds a program of the kernel in C: build.sh OUTPUT FILE.c... [LIBRARY.a]...
# SPDX-License-Identifier: Apache-2.0 OR MIT
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
exec "$root/sdk/c/cc.sh" program "$@"
