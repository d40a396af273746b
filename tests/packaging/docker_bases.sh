#!/bin/sh
# Makes stand-ins for the images that the Dockerfile begins with, where no image registry can be reached: Debian by
# debootstrap, and in it this machine's Rust, Node.js and uv. They lie where those of the official images lie, and trust
# the certificate authorities that this machine trusts. Prints the options that make `docker build` take them.
#
#     docker_bases.sh STORE NODE NPM UV
#
# NODE and UV are programs (uvx lies beside uv), NPM is npm's directory. What STORE has already is taken.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
store=$1 node=$2 npm=$3 uv=$4
IPYBOX_DOCKER_STORE=$store
export IPYBOX_DOCKER_STORE
suite=trixie

say() {
    printf 'bases: %s\n' "$*" >&2
}

docker() {
    "$here/docker_engine.sh" "$@"
}

# What the official slim image leaves out: documentation, translations, what apt has downloaded.
slim() {
    printf 'path-exclude /usr/share/%s/*\n' doc info lintian locale man >"$1/etc/dpkg/dpkg.cfg.d/docker"
    echo 'path-include /usr/share/doc/*/copyright' >>"$1/etc/dpkg/dpkg.cfg.d/docker"
    # shellcheck disable=SC2016 # dpkg's shell expands it
    printf '%s\n' 'APT::Keep-Downloaded-Packages "false";' \
        'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };' \
        'Acquire::Languages "none";' >"$1/etc/apt/apt.conf.d/docker-clean"
    find "$1/usr/share/doc" -type f ! -name copyright -delete
    rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/usr/share/man/* "$1"/usr/share/locale/* \
        "$1"/usr/share/info/* "$1"/usr/share/lintian/*
}

# This machine's own authorities, where programs look for them that bring a list of their own.
trust() {
    mkdir -p "$1/usr/local/share/ca-certificates" "$1/etc/uv"
    for certificate in /usr/local/share/ca-certificates/*.crt; do
        [ ! -e "$certificate" ] || cp "$certificate" "$1/usr/local/share/ca-certificates/"
    done
    echo 'system-certs = true' >"$1/etc/uv/uv.toml"
}

import() {
    tar -C "$2" -c . | docker import -q - "localhost/standin/$1" >/dev/null
}

is_there() {
    docker image exists "localhost/standin/$1"
}

mkdir -p "$store"
scratch=$(mktemp -d "$store/bases.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

make_debian() {
    say "debian: debootstrap of $suite"
    debootstrap --variant=minbase "$suite" "$scratch/debian" >"$scratch/log" 2>&1 || {
        tail -n 20 "$scratch/log" >&2
        exit 1
    }
    slim "$scratch/debian"
    trust "$scratch/debian"
    import debian "$scratch/debian"
}

# The toolchain that builds this project here, and a C compiler.
make_rust() {
    say 'rust: Debian with gcc, and the toolchain of this machine'
    cargo=$(rustup which cargo)
    toolchain=$(CDPATH='' cd -P -- "${cargo%/*}/.." && pwd)
    mkdir -p "$scratch/rust/usr/local/toolchain/lib" "$scratch/rust/usr/local/cargo"
    cp -a "$toolchain/bin" "$scratch/rust/usr/local/toolchain/"
    cp -a "$toolchain"/lib/*.so* "$scratch/rust/usr/local/toolchain/lib/"
    mkdir "$scratch/rust/usr/local/toolchain/lib/rustlib"
    cp -a "$toolchain/lib/rustlib/$(uname -m)-unknown-linux-gnu" "$scratch/rust/usr/local/toolchain/lib/rustlib/"
    cat >"$scratch/rust.Dockerfile" <<'END'
FROM localhost/standin/debian
RUN apt-get update && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends ca-certificates gcc libc6-dev
ENV CARGO_HOME=/usr/local/cargo
ENV PATH=/usr/local/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY . /
RUN cargo --version && rustc --version
END
    docker build -q -t localhost/standin/rust -f "$scratch/rust.Dockerfile" "$scratch/rust" >"$scratch/log" 2>&1 || {
        tail -n 20 "$scratch/log" >&2
        exit 1
    }
}

make_node() {
    say "node: $("$node" --version)"
    mkdir -p "$scratch/node/usr/local/bin" "$scratch/node/usr/local/lib/node_modules"
    cp -L "$node" "$scratch/node/usr/local/bin/node"
    cp -R "$npm" "$scratch/node/usr/local/lib/node_modules/npm"
    echo 'cafile=/etc/ssl/certs/ca-certificates.crt' >>"$scratch/node/usr/local/lib/node_modules/npm/npmrc"
    import node "$scratch/node"
}

make_uv() {
    say "uv: $("$uv" --version)"
    mkdir "$scratch/uv"
    cp -L "$uv" "${uv%/*}/uvx" "$scratch/uv/"
    import uv "$scratch/uv"
}

for base in debian rust node uv; do
    is_there "$base" || "make_$base"
done
for base in DEBIAN RUST NODE UV; do
    printf -- '--build-arg\n%s_IMAGE=localhost/standin/%s\n' "$base" "$(echo "$base" | tr '[:upper:]' '[:lower:]')"
done
