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

# Its own limits are higher than some machines let root set.
mkdir -p "$store"
printf '[containers]\ndefault_ulimits = []\n' >"$store/containers.conf"
CONTAINERS_CONF=$store/containers.conf
export CONTAINERS_CONF

verb=$1
shift
case $verb in
run)
    # The network is this machine's, unless it is to be none.
    case " $* " in
    *' --network '*) ;;
    *) set -- --network host "$@" ;;
    esac
    set -- run --cgroups disabled --ulimit host "$@"
    ;;
build) set -- build --isolation chroot --network host --layers "$@" ;;
*) set -- "$verb" "$@" ;;
esac
exec podman --root "$store/root" --runroot "$store/run" --storage-driver overlay --runtime crun \
    --cgroup-manager cgroupfs --events-backend file --log-level error "$@"
