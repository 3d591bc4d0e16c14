#!/usr/bin/env bash
# A private Docker Engine for the sandbox, its image, and that of the trainer.
#
#   docker/engine.sh start   use the engine that answers, else start one (as root; installs docker.io if missing)
#   docker/engine.sh stop    stop the engine that `start` started, and no other
#   docker/engine.sh image   build sparring-sandbox:<content hash>; instantaneous when it is there
#   docker/engine.sh trainer build sparring-trainer:LOCK of this tree, for the nodes of a cluster (minutes)
#   docker/engine.sh setup   the image if an engine answers; a word about it, and no failure, where that can't be done
#   docker/engine.sh base    build only the debootstrap base image, for machines without an image registry
#
# SPARRING_ENGINE_DIR  data of the private engine and the cached base (default /var/lib/sparring-engine)
# DOCKER_HOST          the engine to use, as for every Docker client
# LOCK TORCH_INDEX     of the trainer: see docker/trainer.Dockerfile; PIP_INDEX_URL and PIP_EXTRA_INDEX_URL as for pip
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=${SPARRING_ENGINE_DIR:-/var/lib/sparring-engine}
default_socket=/var/run/docker.sock
pid_file=$dir/dockerd.pid
registry_base=python:3.11-slim

# packages_of DOCKERFILE: sets what it needs beside Python, and the name of a base of our own that has it.
packages_of() {
    packages=$(sed -n 's/^ARG PACKAGES="\(.*\)"$/\1/p' "$1")
    local_base=sparring-base:bookworm-$(echo "$packages" | sha256sum | cut -c1-8)
}
packages_of docker/sandbox.Dockerfile

failure=1 consequence=''
die() { echo "engine.sh: $*$consequence" >&2; exit "$failure"; }

# limited SECONDS COMMAND: in a session of its own, so that Ctrl-C or a kill ends it with all that it started, at once.
job='' starting='' rootfs='' log=''
limited() {
    local status=0
    setsid timeout "$@" <&0 &
    job=$!
    wait "$job" || status=$?
    job=''
    return "$status"
}
end() {
    [ -z "$job" ] || { kill -KILL -- "-$job" && wait "$job"; } 2>/dev/null || true
    [ -z "$starting" ] || { kill "$starting" && wait "$starting"; } 2>/dev/null || true
    [ -z "$rootfs" ] || drop "$rootfs"
    rm -f "$log"
}
drop() {  # debootstrap mounts /proc and /sys in its tree
    awk -v "root=$1/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
    rm -rf --one-file-system "$1"
}
trap end EXIT
exec 3>&2  # a trap runs with the redirections of the command that it interrupts
trap 'echo "engine.sh: interrupted; the next call does this step again" >&3; exit 130' INT TERM HUP

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
    limited 300 apt-get update -qq || die "apt-get update failed"
    local install=(apt-get install -y -qq --no-install-recommends "${@:2}")
    limited 600 "${install[@]}" --download-only >/dev/null || die "apt-get cannot download ${*:2}"
    # Not to be cut off: half-configured packages would be left.
    DEBIAN_FRONTEND=noninteractive timeout 600 "${install[@]}" >/dev/null || die "apt-get install ${*:2} failed"
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
        --pidfile "$pid_file" -H "unix://$socket" >"$dir/dockerd.log" 2>&1 </dev/null 3>&- &
    starting=$!
    export DOCKER_HOST=unix://$socket
    for _ in $(seq 60); do
        if answers; then
            echo "Docker Engine started (pid $starting, data in $dir)"
            disown "$starting"
            starting=''
            [ "$socket" = $default_socket ] || echo "export DOCKER_HOST=$DOCKER_HOST"
            return
        fi
        kill -0 "$starting" 2>/dev/null || die "dockerd ended: $(tail -n 1 "$dir/dockerd.log")"
        sleep 0.5
    done
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
        exec 9>"$dir/lock"
        flock 9
    fi
    if [ ! -s "$tarball" ]; then
        local left
        for left in "$dir"/rootfs.*; do drop "$left"; done  # of a call that was killed
        rootfs=$(mktemp -d "$dir/rootfs.XXXXXX")
        echo "building a Debian base with debootstrap (a minute or two, once)"
        limited 900 debootstrap --variant=minbase --include="python3,${packages// /,}" bookworm "$rootfs" \
            >"$dir/debootstrap.log" 2>&1 || die "debootstrap failed: $(tail -n 1 "$dir/debootstrap.log") ($dir/debootstrap.log)"
        rm -rf "$rootfs"/var/cache/apt/archives/*.deb "$rootfs"/var/lib/apt/lists/*
        tar -C "$rootfs" -c . -f "$tarball.part" || { rm "$tarball.part"; die "$tarball could not be written"; }
        mv "$tarball.part" "$tarball"
        drop "$rootfs"
        rootfs=''
    fi
    limited 300 docker import -c 'ENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8' "$tarball" "$local_base" >/dev/null ||
        die "docker import of $tarball failed"
}

# The same hash is computed by sandbox_workers/backends.py: a changed runner is never judged by an old image.
content_hash() {
    LC_ALL=C; cat docker/sandbox.Dockerfile sandbox_workers/runner/*.py | sha256sum | cut -c1-16
}

# Sets base_image to what a registry has, or else to our own.
find_base() {
    if docker image inspect "$registry_base" >/dev/null 2>&1 ||
        { echo "pulling $registry_base" && limited 180 docker pull -q "$registry_base" >/dev/null 2>&1; }; then
        base_image=$registry_base
    else
        echo "$registry_base cannot be pulled: using a debootstrap base"
        base
        base_image=$local_base
    fi
}

image() {
    answers || die "no Docker Engine answers: start one (docker/engine.sh start)"
    local tag base_image network=host
    tag=sparring-sandbox:$(content_hash)
    if docker image inspect "$tag" >/dev/null 2>&1; then echo "$tag is up to date"; return; fi
    find_base
    [ "$base_image" = "$registry_base" ] || network=none  # all is there
    # The legacy builder needs no buildx plugin; the context is the runner alone, never the working tree.
    log=$(mktemp)
    DOCKER_BUILDKIT=0 limited 900 docker build -q --force-rm --network="$network" --build-arg BASE_IMAGE="$base_image" \
        --label "sparring.base=$base_image" -t "$tag" -f docker/sandbox.Dockerfile - >/dev/null 2>"$log" \
        < <(tar -c docker/sandbox.Dockerfile sandbox_workers/runner/*.py) ||
        die "docker build failed: $(tail -n 1 "$log")"
    echo "$tag built from $base_image"
}

trainer() {
    answers || die "no Docker Engine answers: start one (docker/engine.sh start)"
    local tag=sparring-trainer:${LOCK:=cpu} base_image name arguments=()
    [ -f "requirements/$LOCK.lock" ] || die "LOCK=$LOCK: there is no requirements/$LOCK.lock; cpu or gpu"
    packages_of docker/trainer.Dockerfile
    find_base
    for name in LOCK TORCH_INDEX PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
        [ -z "${!name:-}" ] || arguments+=(--build-arg "$name=${!name}")
    done
    echo "building $tag from $base_image (installs the packages of requirements/$LOCK.lock: many minutes)"
    DOCKER_BUILDKIT=0 limited 7200 docker build --force-rm --network=host --build-arg BASE_IMAGE="$base_image" \
        "${arguments[@]}" -t "$tag" -f docker/trainer.Dockerfile - < <(sed "s,/$,," .gitignore | tar -c --exclude-vcs -X - .) ||
        die "docker build failed, see above"
    echo "$tag built from $base_image"
}

case "${1:-}" in
start | stop | image | trainer) "$1" ;;
setup)
    answers || { echo "no Docker Engine answers: programs will be judged without one (make engine starts one)"; exit; }
    failure=0 consequence='; going on: programs will be judged without Docker'
    image
    ;;
base) answers || die "no Docker Engine answers: start one (docker/engine.sh start)"; base ;;
*) die "usage: docker/engine.sh start|stop|image|trainer|setup|base" ;;
esac
