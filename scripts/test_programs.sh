#!/usr/bin/env bash
# Unpack programs of Debian that tests run, once per machine: pgbouncer, promtool and faketime.
#
# In ${XDG_CACHE_HOME:-~/.cache}/fds-tests/programs (tests/programs.py looks there too). They are unpacked, not
# installed: that needs no root and starts no service. Nothing fails here: without a program its tests are skipped.
set -euo pipefail

home=${XDG_CACHE_HOME:-$HOME/.cache}/fds-tests/programs
mkdir -p "$home"

lacks() { [ ! -x "$home/$1" ] && ! command -v "$1" >/dev/null && [ ! -x "/usr/sbin/$1" ]; }

# unpack NAME PATH PACKAGE...: the program at PATH of the packages, with their libraries
unpack() {
    local name=$1 path=$2 build
    shift 2
    build=$(mktemp -d "$home/build.XXXXXX")
    if (cd "$build" && apt-get -qq download "$@" && for package in *.deb; do dpkg-deb -x "$package" files; done) \
        >"$build/log" 2>&1; then
        rm -rf "$home/$name.files"
        mv "$build/files" "$home/$name.files"
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' \
            "$home/$name.files/usr/lib/$(uname -m)-linux-gnu" "$home/$name.files/$path" >"$build/program"
        chmod +x "$build/program"
        mv "$build/program" "$home/$name"
    else
        echo "test_programs: tests that need $name are skipped: $(grep -m 1 '^E:' "$build/log" || tail -n 1 "$build/log")" >&2
    fi
    rm -rf "$build"
}

if ! { command -v apt-get && command -v dpkg-deb; } >/dev/null; then
    exit 0
fi
if lacks pgbouncer; then
    # libraries that few machines have, under the names of this Debian
    mapfile -t libraries < <(apt-cache depends pgbouncer | sed -n 's/^ *Depends: \(libc-\?ares2.*\|libevent-2.*\)/\1/p')
    unpack pgbouncer usr/sbin/pgbouncer pgbouncer "${libraries[@]}"
fi
if lacks promtool; then
    unpack promtool usr/bin/promtool prometheus
fi
if lacks faketime; then
    unpack faketime usr/bin/faketime faketime libfaketime
fi
