#!/bin/sh
# Builds the image `ipybox` for whoever runs this: its user gets your user and group id, so that what it writes into
# the mounted workspace is yours. Arguments go to `docker build` and win, such as `--tag` and `--build-arg UID=…`.
# $DOCKER is the program, `docker` without it. Below sudo, you are who called sudo.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
docker=${DOCKER:-docker}
if ! command -v "$docker" >/dev/null 2>&1; then
    printf "error: there is no program \`%s\`\\n" "$docker" >&2
    echo "hint: install Docker, or name a program like it in \$DOCKER, such as podman" >&2
    exit 1
fi

uid=$(id -u)
gid=$(id -g)
if [ "$uid" -eq 0 ]; then
    uid=${SUDO_UID:-0}
    gid=${SUDO_GID:-0}
fi
if [ "$uid" -eq 0 ]; then
    echo 'note: you are root, so the container will run as root' >&2
    echo 'hint: add --build-arg UID=1000 --build-arg GID=1000 for another user' >&2
fi

# The default tag gives way to any other one.
tag=ipybox
for argument do
    case $argument in
    -t | -t?* | --tag | --tag=*) tag= ;;
    esac
done

exec "$docker" build --build-arg "UID=$uid" --build-arg "GID=$gid" ${tag:+--tag "$tag"} "$@" "$here"
