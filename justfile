# Shortcuts; each line is a command that works without `just` too.

# All checks and tests, as CI runs them
check:
    tests/run

# Lints, unit tests, and the end-to-end tests that need neither a sandbox nor a Jupyter server
quick:
    tests/run --quick

# A real session: register an MCP server, chain its tools in a cell
demo:
    python3 examples/demo.py

# Format everything
format:
    cargo fmt
    target/test-tools/lint/bin/ruff format crates src python tests benches packaging examples
    target/test-tools/lint/bin/ruff check --fix crates src python tests benches packaging examples

# The tests of one name, after `tests/tools/install`
test NAME:
    cargo test {{NAME}}

# Generate a package for every saved `tools/list` result in a directory, and report how long it took
corpus SERVERS ROOT:
    cargo bench --bench corpus -- {{SERVERS}} {{ROOT}}

# How long schemas take
bench:
    cargo bench --bench generate

# 10,000 cells in one session
soak:
    IPYBOX_SOAK_CELLS=10000 cargo test --release --test soak -- --nocapture

# The tests of the Python library that have a name in them, by the program of `cargo build`
python-test NAME='':
    target/test-tools/python/bin/python -m pytest -q -p no:cacheprovider tests/python -k '{{NAME}}'

# All channels that take too long for CI: `package-test`, `docker-test`, `claude-test`
channel-test: package-test docker-test claude-test codex-test

# The crate and the wheel, built and installed by cargo, uvx, uv and pip
package-test:
    tests/tools/install
    target/test-tools/mcp1/bin/python tests/packaging/cargo.py --kernel-python target/test-tools/kernel/bin/python
    target/test-tools/mcp1/bin/python tests/packaging/wheel.py --maturin target/test-tools/packaging/bin/maturin \
        --uv-bin "$(dirname "$(readlink -f target/test-tools/bin/uv)")" \
        --kernel-python target/test-tools/kernel/bin/python \
        --time-server target/test-tools/servers/bin/mcp-server-time

# The image, built and tried as a user would; without a Docker engine by podman, as root on Debian
docker-test *ARGS:
    tests/tools/install
    docker info >/dev/null 2>&1 || apt-get install -y -qq podman crun conmon catatonit debootstrap
    target/test-tools/mcp1/bin/python tests/packaging/docker.py {{ARGS}}

# The plugins in a real Claude Code, whose model is a script: 380 MB of disk
claude-test:
    tests/tools/install
    cargo build
    python3 tests/packaging/claude.py --claude "$(tests/tools/agent claude)" --ipybox target/debug/ipybox --tools target/test-tools

# A real Codex, whose model is a script and whose sandbox ipybox obeys: 420 MB of disk
codex-test:
    tests/tools/install
    cargo build
    python3 tests/packaging/codex.py --codex "$(tests/tools/agent codex)" --ipybox target/debug/ipybox \
        --python target/test-tools/kernel/bin/python

# The documentation as a site in `target/book`, with the texts for models
book:
    command -v mdbook || cargo install mdbook --locked --version 0.5.4 --no-default-features --features search
    PATH="$HOME/.cargo/bin:$PATH" mdbook build
    python3 packaging/book.py llms target/book
    python3 tests/docs/prose.py --book target/book
