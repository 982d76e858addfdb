#!/usr/bin/env bash
# Build the API server of Kubernetes for the tests, get its etcd, and print the folder with both programs.
#
# Once per machine, in ${XDG_CACHE_HOME:-~/.cache}/fds-tests: Go builds kube-apiserver from its published modules, in
# five to ten minutes of two cores, with 700 MB of modules; etcd is Debian's. A build that is interrupted leaves nothing.
set -euo pipefail

version=1.36.3

home=${XDG_CACHE_HOME:-$HOME/.cache}/fds-tests/kubernetes-$version
fail() {
    printf 'kube_apiserver: %s\n' "$@" >&2
    exit 1
}

mkdir -p "$home"
build=$(mktemp -d "$home/build.XXXXXX")
trap 'rm -rf "$build"' EXIT

if [ ! -x "$home/etcd" ]; then
    if command -v etcd >/dev/null; then
        ln -sf "$(command -v etcd)" "$home/etcd"
    elif command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
        # unpacked, not installed, which needs no root
        (cd "$build" && apt-get -qq download etcd-server && dpkg-deb -x etcd-server_*.deb etcd) >"$build/log" 2>&1 ||
            fail "apt-get cannot download etcd-server: $(tail -n 1 "$build/log")" \
                "Run 'apt-get update' as root, or install etcd, and run make again."
        mv "$build/etcd/usr/bin/etcd" "$home/etcd"
    else
        fail "the tests of Kubernetes need etcd, which is not installed. Install it, and run make again."
    fi
fi

if [ ! -x "$home/kube-apiserver" ]; then
    command -v go >/dev/null ||
        fail "the tests of Kubernetes build its API server with Go, which is not installed." \
            "Install Go (https://go.dev/dl), and run make again."
    echo "kube_apiserver: building kube-apiserver $version once, in five to ten minutes" >&2
    mkdir "$build/source"
    cd "$build/source"
    module=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    # the module replaces others by folders of its own tree; they are published under the same minor version
    {
        printf 'module apiserver\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v%s\n' "$version"
        awk -v v="v0.${version#1.}" '/=> .\/staging/ {print "replace " $1 " => " $1 " " v}' "$module"
    } >go.mod
    cat >main.go <<'GO'
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
GO
    export GOMEMLIMIT=${GOMEMLIMIT:-2500MiB}
    if ! { go mod tidy && nice -n 10 go build -p 2 -ldflags "-s -w" -o ../kube-apiserver .; } >../log 2>&1; then
        tail -n 40 ../log >&2
        fail "Go could not build kube-apiserver $version, see above"
    fi
    # at once: another build may have ended meanwhile
    mv ../kube-apiserver "$home/kube-apiserver"
fi
echo "$home"
