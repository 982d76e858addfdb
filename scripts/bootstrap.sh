#!/usr/bin/env bash
# Make .venv with the pinned requirements of a group, and see that Java is there. Does nothing where nothing changed.
#
#   scripts/bootstrap.sh demo    what `make demo` needs
#   scripts/bootstrap.sh dev     what the tests, checks and benchmarks need (the demo's included)
#   scripts/bootstrap.sh ui      dev, and a Chromium for the tests of the page
#
# PYTHON=<interpreter> chooses the Python; the ordinary settings of pip and uv (index, proxy, certificates) apply.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

group=${1:-}
needs_browser=
case $group in
    demo | dev) ;;
    ui)
        group=dev
        needs_browser=yes
        ;;
    *)
        echo "usage: scripts/bootstrap.sh demo|dev|ui" >&2
        exit 2
        ;;
esac

say() { echo "bootstrap: $*"; }

fail() {
    printf 'bootstrap: %s\n' "$@" >&2
    exit 1
}

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    say "installing $* with apt-get"
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed; $(python3 --version 2>/dev/null || echo 'no python3') was found." \
        "Install it (Debian, Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.12;" \
        "others: https://www.python.org/downloads/), or name it: make ${group/dev/test} PYTHON=/path/to/python3.11"
}

# Prints the major version of the Java that Spark would start, nothing without a Java.
java_major() {
    local java=java
    [ -n "${JAVA_HOME:-}" ] && java=$JAVA_HOME/bin/java
    "$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

need_java() {
    local found
    found=$(java_major || true)
    if [ -n "$found" ] && [ "$found" -ge 17 ]; then
        return
    fi
    if [ -z "${JAVA_HOME:-}" ] && can_apt; then
        # Debian and Ubuntu carry 17, or only its successors
        apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || true
        found=$(java_major || true)
        if [ -n "$found" ] && [ "$found" -ge 17 ]; then
            return
        fi
    fi
    fail "Java 17 or newer is needed; ${found:+Java }${found:-none} was found${JAVA_HOME:+ in JAVA_HOME=$JAVA_HOME}." \
        "Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17;" \
        "others: https://adoptium.net), put it on PATH or point JAVA_HOME at it, and run make again."
}

# The names that tests/ui/conftest.py looks for.
has_chromium() {
    local name
    for name in ${FDS_CHROMIUM:-chromium chromium-browser google-chrome google-chrome-stable}; do
        command -v "$name" >/dev/null && return
    done
    return 1
}

need_chromium() {
    has_chromium || { [ -z "${FDS_CHROMIUM:-}" ] && can_apt && apt_install chromium && has_chromium; } ||
        fail "A Chromium or Chrome is needed; ${FDS_CHROMIUM:-none} was not found on PATH." \
            "Install it (Debian: apt-get install chromium), or name it: make ui-test FDS_CHROMIUM=/path/to/chrome"
}

make_venv() {
    local python=$1
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        local package
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        can_apt && apt_install "$package"
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            fail "$python cannot make virtual environments: install $package (Debian, Ubuntu: apt-get install $package)"
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv
}

# What the state of .venv depends on; a stamp in .venv with the same text means that nothing is to do.
inputs() {
    pwd -P
    .venv/bin/python --version
    cksum "requirements/$1.txt" requirements/build.txt requirements/uv.txt requirements/openlineage.txt pyproject.toml
}

is_current() { [ -f ".venv/.fds-$1" ] && [ "$(inputs "$1")" = "$(cat ".venv/.fds-$1")" ]; }

need_java
if [ -n "$needs_browser" ]; then
    need_chromium
fi

# the scripts in .venv name its absolute path: one that was moved with the folder does not work
if [ -f .venv/.fds-home ] && [ "$(cat .venv/.fds-home)" != "$(pwd -P)" ]; then
    say "this folder was moved, .venv is made anew"
    rm -rf .venv
fi
if ! is_new_enough .venv/bin/python; then
    python=$(find_python)
    rm -rf .venv
    make_venv "$python"
fi

# dev includes demo
if is_current dev || is_current "$group"; then
    exit 0
fi

say "installing requirements/$group.txt into .venv (about 1 GB the first time; pyspark is most of it)"
if ! .venv/bin/uv --version 2>/dev/null | grep -qF "uv $(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements/uv.txt)"; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
fi
index=$(scripts/package_index.sh)
if [ -n "$index" ]; then
    export UV_DEFAULT_INDEX=$index
fi
# the newest stamp alone is true
rm -f .venv/.fds-demo .venv/.fds-dev
# compiled once, as pip does it: else every process of Airflow compiles its modules where writing bytecode is off
.venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes --compile-bytecode \
    --build-constraints requirements/build.txt -r "requirements/$group.txt"
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps \
    --build-constraints requirements/build.txt --editable .

if [ "$group" = dev ]; then
    scripts/test_programs.sh
    # beside the environment: in it, every process of Airflow would load the listener
    rm -rf .venv/openlineage
    .venv/bin/uv pip install --quiet --python .venv/bin/python --target .venv/openlineage --no-deps --require-hashes \
        -r requirements/openlineage.txt
    say "fetching Delta's JARs and preparing Spark's start, once per machine"
    .venv/bin/fds admin prepare >/dev/null
else
    say "fetching Delta's JARs, once per machine"
    .venv/bin/python -c 'from airflow_provider_fds.spark.installation.jars import delta_jars; delta_jars()'
fi

pwd -P >.venv/.fds-home
inputs "$group" >".venv/.fds-$group"
say "done in $SECONDS s"
