#!/bin/sh
# Starts the ipybox of this bundle: a manifest can pass a switch on only as `true` or `false`, and an app that was
# started from a desktop does not have the shell's PATH, where uv, Node.js and the programs of MCP servers are. All
# arguments go on to ipybox.
set -eu

server=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

for directory in "${HOME:-}/.local/bin" "${HOME:-}/.cargo/bin" /opt/homebrew/bin /usr/local/bin; do
    case :$PATH: in
    *:"$directory":*) ;;
    *) PATH=$PATH:$directory ;;
    esac
done
export PATH

case ${IPYBOX_BUNDLE_SANDBOX:-false} in
true) set -- "$@" --sandbox ;;
false) ;;
*)
    echo "error: the setting \`Sandbox\` is \`$IPYBOX_BUNDLE_SANDBOX\`, and must be \`true\` or \`false\`" >&2
    exit 2
    ;;
esac
unset IPYBOX_BUNDLE_SANDBOX

# Not every app that unpacks a bundle keeps this.
[ -x "$server/ipybox" ] || chmod +x "$server/ipybox"
exec "$server/ipybox" "$@"
