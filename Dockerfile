# The image of ipybox: the server, and what MCP servers and the kernel need around it. `./docker-build.sh` builds it
# for your user; `docker run -i --rm -v /path/to/workspace:/app/workspace ipybox` runs it. docs/docker.md says more.
#
# Each base can be replaced by `--build-arg`, for a mirror for example. Tag and digest change together.
ARG RUST_IMAGE=rust:1.95.0-slim-trixie@sha256:e14e87345b4d5964ddcc3491d27ee046a0f23820f340c3c1e24da6880141f7c0
ARG DEBIAN_IMAGE=debian:trixie-20260918-slim@sha256:a99cfc517144bc59b1978475ec53b46ecabec7e43635402ee5b77cc54cd1b20a
ARG NODE_IMAGE=node:24.21.0-trixie-slim@sha256:173f125896c3b47ddf056734c7ea789d04595a6a08769a8f78e0df642781fb66
ARG UV_IMAGE=astral/uv:0.13.0@sha256:cdc6093146eb3ff6a40107b38f008b789e050e77ad87865e381d9917da55a168

FROM ${NODE_IMAGE} AS node
FROM ${UV_IMAGE} AS uv

# Everything that comes out of here is /out; `--build-context build=DIRECTORY` puts a finished DIRECTORY/out/ipybox in
# its place.
FROM ${RUST_IMAGE} AS build
WORKDIR /build
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/usr/local/cargo/git,sharing=locked \
    --mount=type=cache,target=/build/target,sharing=locked \
    cargo build --release --locked --bin ipybox \
    && install -D target/release/ipybox /out/ipybox

FROM ${DEBIAN_IMAGE}

# `curl` is for code in cells, `libatomic1` for Node.js on some processors, `zstd` for the kernel's environment. `tini`
# is process 1: ipybox waits for its own children only, and not for those of programs that went away.
# Debian's archive keeps the newest version of a package only, so that a pinned one could not be installed for long.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates curl git libatomic1 python-is-python3 python3 python3-venv tini tzdata zstd \
    && rm -rf /var/lib/apt/lists/*

COPY --from=uv /uv /uvx /usr/local/bin/
COPY --from=node /usr/local/bin/node /usr/local/bin/
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx

COPY --from=build /out/ipybox /usr/local/bin/ipybox

# A kernel's environment, made by ipybox where a container will need it, and packed: a new workspace gets it unpacked in
# about a second and without a network. It also shows that what has been put together here runs.
RUN --mount=type=bind,source=packaging/docker/pack-environment.py,target=/run/pack-environment.py \
    python3 /run/pack-environment.py /app/workspace /usr/local/share/ipybox

COPY packaging/docker/entrypoint.sh /usr/local/bin/ipybox-entrypoint

# Only the workspace outlives a container. Registered servers, the kernel's environment with its packages, and the
# home directory with what npx and uvx download are kept there: the container is the boundary.
ARG UID=1000
ARG GID=1000
# A UID or GID that is taken already (macOS has the group 20, root is 0) gets a second name or keeps its first one.
RUN (getent group "$GID" || groupadd --gid "$GID" ipybox) \
    && useradd --no-log-init --non-unique --uid "$UID" --gid "$GID" \
        --no-create-home --home-dir /app/workspace/.ipybox/home --shell /bin/bash ipybox \
    && install -d -o "$UID" -g "$GID" /app/workspace
ENV HOME=/app/workspace/.ipybox/home \
    IPYBOX_CONTAINER=1 \
    IPYBOX_STATE_DIR=/app/workspace/.ipybox/state \
    LANG=C.UTF-8 \
    USER=ipybox
USER ${UID}:${GID}
WORKDIR /app/workspace

LABEL org.opencontainers.image.title="ipybox" \
      org.opencontainers.image.description="A stateful IPython kernel with programmatic MCP tool calling for AI agents" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.authors="ipybox contributors" \
      org.opencontainers.image.url="https://ipybox-rs.github.io/ipybox/" \
      org.opencontainers.image.source="https://github.com/ipybox-rs/ipybox" \
      io.modelcontextprotocol.server.name="io.github.ipybox-rs/ipybox"

# `-s`: it reaps also where it is not process 1, below `docker run --init`.
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "ipybox-entrypoint"]
