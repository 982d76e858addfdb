#!/usr/bin/env bash
# Build the image of docker/Dockerfile with buildah, without a Docker engine and without a registry of images.
#
#   scripts/docker_image.sh NAME
#
# BASE=<image> is the base image, which must be there or can be pulled. Without it, debootstrap makes one from Debian's
# packages; it trusts the certificates that this machine trusts. DEBIAN=<release> chooses another one than bookworm.
# BUILD_ARGS="JAVA=21 …" are further arguments of the build.
set -Eeuo pipefail
trap 'echo "docker: failed in line $LINENO of scripts/docker_image.sh" >&2' ERR

cd "$(dirname "${BASH_SOURCE[0]}")/.."

image=${1:?usage: scripts/docker_image.sh NAME}
debian=${DEBIAN:-bookworm}

say() { echo "docker: $*"; }

need() { # need <program> <package> …
    local missing=()
    while [ $# -gt 0 ]; do
        command -v "$1" >/dev/null || missing+=("$2")
        shift 2
    done
    [ ${#missing[@]} = 0 ] && return
    if command -v apt-get >/dev/null; then
        say "installing ${missing[*]} with apt-get"
        apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
        return
    fi
    echo "docker: not installed, and there is no apt-get: ${missing[*]}" >&2
    exit 1
}

make_base() {
    local root container
    root=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf --one-file-system '$root'" EXIT
    say "making a base image of Debian $debian with debootstrap"
    debootstrap --variant=minbase --include=ca-certificates,python3 "$debian" "$root" >"$root.log" ||
        { tail -n 20 "$root.log" >&2; exit 1; }
    rm -f "$root.log"
    if [ -d /usr/local/share/ca-certificates ]; then
        cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
        # folders of this machine, such as TMPDIR, are not in there
        chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin update-ca-certificates >"$root.log"
        rm -f "$root.log"
    fi
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$root" / >/dev/null
    buildah commit --quiet --rm "$container" "$base" >/dev/null
    rm -rf "$root"
    trap - EXIT
}

if [ "$(id -u)" != 0 ]; then
    echo "docker: needs root: buildah runs without an engine here, and the services get a network of their own" >&2
    exit 1
fi
need buildah buildah debootstrap debootstrap ip iproute2 unshare util-linux

base=${BASE:-localhost/fds-base-$debian}
if [ -z "${BASE:-}" ] && ! buildah inspect --type image "$base" >/dev/null 2>&1; then
    make_base
fi

arguments=(--build-arg "BASE=$base")
for argument in ${BUILD_ARGS:-}; do
    arguments+=(--build-arg "$argument")
done
index=$(scripts/package_index.sh)
if [ -n "$index" ]; then
    arguments+=(--build-arg "PIP_INDEX_URL=$index" --build-arg "UV_DEFAULT_INDEX=$index")
fi
say "building $image"
buildah bud --isolation chroot --network host --layers --format docker "${arguments[@]}" \
    --file docker/Dockerfile --tag "$image" .
