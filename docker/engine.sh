#!/usr/bin/env bash
# A private Docker Engine for the sandbox, and its image.
#
#   docker/engine.sh start   use the engine that answers, else start one (as root; installs docker.io if missing)
#   docker/engine.sh stop    stop the engine that `start` started, and no other
#   docker/engine.sh image   build sparring-sandbox:<content hash>; instantaneous when it is there
#   docker/engine.sh base    build only the debootstrap base image, for machines without an image registry
#
# SPARRING_ENGINE_DIR  data of the private engine and the cached base (default /var/lib/sparring-engine)
# DOCKER_HOST          the engine to use, as for every Docker client
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=${SPARRING_ENGINE_DIR:-/var/lib/sparring-engine}
default_socket=/var/run/docker.sock
pid_file=$dir/dockerd.pid
registry_base=python:3.11-slim
packages=$(sed -n 's/^ARG PACKAGES="\(.*\)"$/\1/p' docker/sandbox.Dockerfile)
local_base=sparring-base:bookworm-$(echo "$packages" | sha256sum | cut -c1-8)

die() { echo "engine.sh: $*" >&2; exit 1; }
answers() { command -v docker >/dev/null && timeout 5 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
listening() { ss -xlH 2>/dev/null | grep -qF " $1 "; }

# The private engine may listen on its own socket: later commands must find it without being told.
if [ -z "${DOCKER_HOST:-}" ] && ! answers && [ -S "$dir/docker.sock" ] && listening "$dir/docker.sock"; then
    export DOCKER_HOST=unix://$dir/docker.sock
fi

install_packages() {
    command -v "$1" >/dev/null && return
    [ "$(id -u)" = 0 ] || die "$1 is missing and only root can install it: apt-get install docker.io debootstrap"
    command -v apt-get >/dev/null || die "$1 is missing and there is no apt-get: install $1 yourself"
    timeout 300 apt-get update -qq || die "apt-get update failed"
    DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -qq --no-install-recommends "${@:2}" >/dev/null ||
        die "apt-get install ${*:2} failed"
}

start() {
    if answers; then echo "Docker Engine answers${DOCKER_HOST:+ at $DOCKER_HOST}"; return; fi
    [ "$(id -u)" = 0 ] || die "no Docker Engine answers, and only root can start one"
    [ -z "${DOCKER_HOST:-}" ] || die "no Docker Engine answers at DOCKER_HOST=$DOCKER_HOST"
    install_packages dockerd docker.io iproute2
    mkdir -p "$dir/data" "$dir/exec"
    local socket=$default_socket
    if [ -e "$socket" ] && listening "$socket"; then socket=$dir/docker.sock; fi
    # No bridge and no iptables: sandboxes have no network, and the host's rules stay as they are.
    dockerd --iptables=false --bridge=none --storage-driver=overlay2 --data-root "$dir/data" --exec-root "$dir/exec" \
        --pidfile "$pid_file" -H "unix://$socket" >"$dir/dockerd.log" 2>&1 </dev/null &
    local engine=$!
    disown "$engine"
    export DOCKER_HOST=unix://$socket
    for _ in $(seq 60); do
        if answers; then
            echo "Docker Engine started (pid $engine, data in $dir)"
            [ "$socket" = $default_socket ] || echo "export DOCKER_HOST=$DOCKER_HOST"
            return
        fi
        kill -0 "$engine" 2>/dev/null || die "dockerd ended: $(tail -n 1 "$dir/dockerd.log")"
        sleep 0.5
    done
    kill "$engine"
    die "dockerd did not answer within 30 s, see $dir/dockerd.log"
}

stop() {
    [ -f "$pid_file" ] || { echo "no engine of ours runs"; return; }
    local engine
    engine=$(cat "$pid_file")
    if ! tr '\0' ' ' <"/proc/$engine/cmdline" 2>/dev/null | grep -qF -- "--pidfile $pid_file"; then
        rm -f "$pid_file"; echo "no engine of ours runs"; return
    fi
    kill "$engine"
    for _ in $(seq 60); do
        kill -0 "$engine" 2>/dev/null || { echo "engine $engine stopped"; return; }
        sleep 0.5
    done
    die "dockerd $engine did not stop within 30 s"
}

base() {
    docker image inspect "$local_base" >/dev/null 2>&1 && return
    local tarball=$dir/${local_base#*:}.tar
    if [ ! -s "$tarball" ]; then
        [ "$(id -u)" = 0 ] || die "the base image is missing and only root can run debootstrap"
        install_packages debootstrap debootstrap
        mkdir -p "$dir"
        local root
        root=$(mktemp -d "$dir/rootfs.XXXXXX")
        echo "building a Debian base with debootstrap (a minute or two, once)"
        timeout 900 debootstrap --variant=minbase --include="python3,${packages// /,}" bookworm "$root" >"$dir/debootstrap.log" 2>&1 ||
            { rm -rf "$root"; die "debootstrap failed, see $dir/debootstrap.log"; }
        rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
        tar -C "$root" -c . -f "$tarball.part" && mv "$tarball.part" "$tarball"
        rm -rf "$root"
    fi
    timeout 300 docker import -c 'ENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8' "$tarball" "$local_base" >/dev/null
}

# The same hash is computed by sandbox_workers/backends.py: a changed runner is never judged by an old image.
content_hash() {
    LC_ALL=C; cat docker/sandbox.Dockerfile sandbox_workers/runner/*.py | sha256sum | cut -c1-16
}

image() {
    answers || die "no Docker Engine answers: start one (docker/engine.sh start)"
    local tag base_image network
    tag=sparring-sandbox:$(content_hash)
    if docker image inspect "$tag" >/dev/null 2>&1; then echo "$tag is up to date"; return; fi
    if docker image inspect "$registry_base" >/dev/null 2>&1 ||
        timeout 180 docker pull -q "$registry_base" >/dev/null 2>&1; then
        base_image=$registry_base network=host
    else
        echo "$registry_base cannot be pulled: using a debootstrap base"
        base
        base_image=$local_base network=none
    fi
    # The legacy builder needs no buildx plugin; the context is the runner alone, never the working tree.
    tar -c docker/sandbox.Dockerfile sandbox_workers/runner/*.py |
        DOCKER_BUILDKIT=0 timeout 900 docker build -q --network="$network" --build-arg BASE_IMAGE="$base_image" \
            --label "sparring.base=$base_image" -t "$tag" -f docker/sandbox.Dockerfile - >/dev/null 2>"${TMPDIR:-/tmp}/sparring-build.$$" ||
        die "docker build failed: $(tail -n 1 "${TMPDIR:-/tmp}/sparring-build.$$")"
    rm -f "${TMPDIR:-/tmp}/sparring-build.$$"
    echo "$tag built from $base_image"
}

case "${1:-}" in
start | stop | image) "$1" ;;
base) answers || die "no Docker Engine answers: start one (docker/engine.sh start)"; base ;;
*) die "usage: docker/engine.sh start|stop|image|base" ;;
esac
