#!/bin/sh
# Starts ipybox in the container, after a look at the one thing that is outside of it: the mounted workspace.
set -eu

workspace=/app/workspace
private=$workspace/.ipybox

fail() {
    printf 'ipybox: %s\n' "$1" >&2
    printf 'hint: %s\n' "$2" >&2
    exit 1
}

# `--help` and the like need no workspace.
case ${1-} in
-h | --help | -V | --version | apigen) exec ipybox "$@" ;;
esac

if ! mkdir -p "$HOME" 2>/dev/null || ! [ -w "$private" ]; then
    owner=$(stat -c %u:%g "$workspace")
    mine=$(id -u):$(id -g)
    if [ "$owner" = "$mine" ]; then
        fail "failed to write to the workspace: the directory mounted at $workspace is read-only" \
            "mount it without \`:ro\`"
    fi
    fail "failed to write to the workspace: the directory mounted at $workspace belongs to $owner, and the container runs as $mine" \
        "build the image by docker-build.sh as that user, or start the container with \`--user $owner\`"
fi
# Environment, packages and caches are nothing to commit.
[ -e "$private/.gitignore" ] || echo '*' >"$private/.gitignore"

exec ipybox "$@"
