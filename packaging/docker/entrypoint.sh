#!/bin/sh
# Starts ipybox in the container, after a look at the one thing that is outside of it: the mounted workspace.
set -eu

workspace=/app/workspace
private=$workspace/.ipybox
packed=/usr/local/share/ipybox/kernel.tar.zst

fail() {
    printf 'ipybox: %s\n' "$1" >&2
    printf 'hint: %s\n' "$2" >&2
    exit 1
}

# Makes what ipybox needs below the workspace, or reports why that cannot be.
open_workspace() {
    if ! mkdir -p "$HOME" 2>/dev/null || ! [ -w "$private" ]; then
        mine=$(id -u):$(id -g)
        if [ -w "$workspace" ]; then
            fail "failed to write to $private: another user has made it, and the container runs as $mine" \
                "remove \`.ipybox\` from the workspace, or give it to $mine"
        fi
        owner=$(stat -c %u:%g "$workspace")
        said="failed to write to the workspace: the directory mounted at $workspace"
        case $owner in
        "$mine") fail "$said is read-only" "mount it without \`:ro\`" ;;
        0:0) fail "$said belongs to root, and the container runs as $mine" \
            "make the directory as yourself before the first start: Docker makes missing ones as root" ;;
        *) fail "$said belongs to $owner, and the container runs as $mine" \
            "build the image by docker-build.sh as that user, or start the container with \`--user $owner\`" ;;
        esac
    fi
    if ! [ -w /tmp ]; then
        fail 'failed to write to /tmp' "start the container with \`--tmpfs /tmp\`"
    fi
    # Environment, packages and caches are nothing to commit.
    [ -e "$private/.gitignore" ] || echo '*' >"$private/.gitignore"
}

# The environment, from the archive; the record, which says that it is whole, comes last. If this fails, the first cell
# has an environment made, as it does without an archive.
unpack() {
    rm -rf unpacking
    mkdir unpacking
    if tar -xf "$packed" -C unpacking --no-same-owner; then
        mv -T unpacking/python python && mv unpacking/python.json python.json
    fi
    rm -rf unpacking
}

# Unpacks the environment into a new workspace, behind the server that answers meanwhile. Who wants the environment
# waits for the lock, as for any installation; who holds it already is another container that does the same.
begin_unpacking() {
    place=$(cat /usr/local/share/ipybox/kernel.place)
    [ "${IPYBOX_STATE_DIR-}" = "$private/state" ] && ! [ -e "$place/python" ] || return 0
    (umask 077 && mkdir -p "$place")
    cd "$place"
    exec 9>>python.lock
    if flock --nonblock 9 && ! [ -e python ]; then
        # Nobody's child, so that nobody has to wait for it but process 1; stdout is the protocol's.
        (unpack </dev/null >/dev/null &)
    fi
    exec 9>&-
    cd "$workspace"
}

# `--help` and the like need no workspace.
case ${1-} in
-h | --help | -V | --version | apigen) ;;
*)
    open_workspace
    begin_unpacking
    ;;
esac

exec ipybox "$@"
