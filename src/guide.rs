//! The Rust code in the README and in `docs/`, as doctests: what a reader copies compiles.

#[doc = include_str!("../README.md")]
struct Readme;

#[doc = include_str!("../docs/api-generation.md")]
struct ApiGeneration;

#[doc = include_str!("../docs/remote-kernels.md")]
struct RemoteKernels;

#[doc = include_str!("../docs/rust.md")]
struct RustLibrary;

#[doc = include_str!("../docs/sandbox.md")]
struct SandboxGuide;
