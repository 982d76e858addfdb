#!/usr/bin/env bash
# Build the Unity Catalog server of the tests, unless this machine has it, and print its path.
#
# It is a crate (Rust), which cargo builds from the registry of its settings: four to eight minutes of two cores, 1.5 GB
# while it builds, 70 MB then, in ${XDG_CACHE_HOME:-~/.cache}/fds-tests. A build that is interrupted leaves nothing.
set -euo pipefail

version=0.0.11

home=${XDG_CACHE_HOME:-$HOME/.cache}/fds-tests/unity-catalog-$version
server=$home/uc-server
if [ -x "$server" ]; then
    echo "$server"
    exit 0
fi
if [ "${1:-}" = --only-print ]; then
    exit 0
fi
if ! command -v cargo >/dev/null; then
    printf 'unity_server: %s\n' "the tests of Unity Catalog build its server with cargo, which is not installed." \
        "Install Rust (https://rustup.rs), and run make again." >&2
    exit 1
fi

mkdir -p "$home"
build=$(mktemp -d "$home/build.XXXXXX")
trap 'rm -rf "$build"' EXIT
echo "unity_server: building olai-uc-server $version once, in four to eight minutes" >&2
export CARGO_TARGET_DIR=$build/target CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_STRIP=symbols
if ! cargo install olai-uc-server --version "=$version" --features bin --locked --debug --no-track \
    --root "$build" >"$build/log" 2>&1; then
    tail -n 40 "$build/log" >&2
    echo "unity_server: cargo could not build olai-uc-server $version, see above" >&2
    exit 1
fi
# at once: another build may have ended meanwhile
mv "$build/bin/uc-server" "$server"
echo "$server"
