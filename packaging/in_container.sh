#!/bin/sh
# Holds the session of smoke.py in a container of the image $1, which must have Python; the rest is for smoke.py.
# This directory is /src there.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: packaging/in_container.sh IMAGE ARGUMENT …" >&2
    exit 2
fi
image=$1
shift
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
exec "${DOCKER:-docker}" run --rm --volume "$root:/src:ro" --workdir /src --entrypoint python3 \
    "$image" packaging/smoke.py "$@"
