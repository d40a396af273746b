#!/bin/sh
# Starts the ipybox that belongs to this plugin, with whatever runs packages on this machine. uv comes first because it
# also brings the kernel a Python and its packages; npx needs a Python on the machine. $IPYBOX_PROGRAM names another
# program, one that was built here for instance. All arguments go on to ipybox.
set -eu

has() {
    command -v "$1" >/dev/null 2>&1
}

# A program named `ipybox` may be the Python original, or of another version.
is_ours() {
    [ "$("$1" --version 2>/dev/null </dev/null)" = "ipybox $version" ]
}

plugin=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
version=$(sed -n 's/^ *"version": *"\([^"]*\)".*/\1/p' "$plugin/.claude-plugin/plugin.json")

# A program that was started from a desktop does not have the shell's PATH.
for directory in "${HOME:-}/.local/bin" "${HOME:-}/.cargo/bin" /opt/homebrew/bin /usr/local/bin; do
    case :$PATH: in
    *:"$directory":*) ;;
    *) PATH=$PATH:$directory ;;
    esac
done
export PATH

if [ -n "${IPYBOX_PROGRAM:-}" ]; then
    if ! has "$IPYBOX_PROGRAM"; then
        echo "error: \$IPYBOX_PROGRAM is \`$IPYBOX_PROGRAM\`, and there is no such program" >&2
        exit 127
    fi
    exec "$IPYBOX_PROGRAM" "$@"
elif has uvx; then
    exec uvx "ipybox-rs@$version" "$@"
elif has npx; then
    # npx runs what is in `node_modules` of its directory first, and code in a sandbox may have written it there.
    program=$(cd / && npx -y --package="ipybox@$version" -c 'command -v ipybox' </dev/null)
    exec "$program" "$@"
elif has ipybox && is_ours ipybox; then
    exec ipybox "$@"
fi

cat >&2 <<EOF
error: nothing here can start ipybox $version: no \`uvx\`, no \`npx\`, and no \`ipybox\` of this version on PATH
hint: install uv (recommended, it brings Python too) or Node.js; or build ipybox and name it in \$IPYBOX_PROGRAM
EOF
exit 127
