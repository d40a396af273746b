#!/bin/sh
# `docker` for machines without a Docker engine: podman, with settings that need neither a daemon, nor cgroups, nor a
# network of its own. As root, on Linux, with Debian's podman and crun. Images are kept in $IPYBOX_DOCKER_STORE.
set -eu

store=${IPYBOX_DOCKER_STORE:?names the directory for images}
if [ "${1-}" != in-namespace ]; then
    # crun refuses version 2 beside version 1; here, nobody else misses it.
    exec unshare --mount -- "$0" in-namespace "$@"
fi
shift
if mountpoint -q /sys/fs/cgroup/unified; then
    umount /sys/fs/cgroup/unified
fi

verb=$1
shift
case $verb in
run) set -- run --cgroups disabled --network host --ulimit host "$@" ;;
build) set -- build --isolation chroot --network host --layers "$@" ;;
*) set -- "$verb" "$@" ;;
esac
exec podman --root "$store/root" --runroot "$store/run" --storage-driver overlay --runtime crun \
    --cgroup-manager cgroupfs --events-backend file --log-level error "$@"
