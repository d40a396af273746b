# Shortcuts; each line is a command that works without `just` too.

# All checks and tests, as CI runs them
check:
    tests/run

# A real session: register an MCP server, chain its tools in a cell
demo:
    cargo run --example demo

# Format everything
format:
    cargo fmt
    target/test-tools/lint/bin/ruff format src tests benches
    target/test-tools/lint/bin/ruff check --fix src tests benches

# The tests of one name, after `tests/tools/install`
test NAME:
    cargo test {{NAME}}

# Generate a package for every saved `tools/list` result in a directory, and tell how long it took
corpus SERVERS ROOT:
    cargo run --release --example corpus {{SERVERS}} {{ROOT}}

# How long schemas take
bench:
    cargo bench --bench codegen
