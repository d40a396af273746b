//! The boundary around code in the kernel: what it may do ([`SandboxPolicy`]), the programs that enforce it, and the connection
//! to what runs inside.
//!
//! ```text
//! Policy ─ rules ─→ srt | bwrap ─ starts ─→ gateway (inside, hardened) ─ descriptors ─→ Sandbox
//! ```
//!
//! It knows neither Jupyter nor Python. A policy that cannot be enforced is refused: nothing ever runs
//! unsandboxed instead.

mod backend;
mod bwrap;
mod channel;
pub(crate) mod check;
mod command;
mod configured;
mod domain;
mod error;
mod exposed;
mod git;
mod hardening;
mod kernel_control;
mod mount_points;
mod mount_table;
mod open_places;
mod policy;
mod protocol;
mod proxy;
mod running;
mod settings;
mod srt;
mod stubs;
mod top_level;

pub use self::backend::Backend;
pub(crate) use self::bwrap::proxy_environment;
pub(crate) use self::channel::GatewayChannel;
pub(crate) use self::domain::DomainRule;
pub(crate) use self::error::Error;
pub(crate) use self::exposed::{Exposed, Exposure};
pub(crate) use self::hardening::Hardening;
pub(crate) use self::kernel_control::{KernelControl, KernelNews};
pub use self::policy::{PathProblem, Problem as PolicyProblem, SandboxPolicyError};
pub(crate) use self::policy::{PolicyPaths, Rules, SandboxPolicy};
pub(crate) use self::protocol::{
    Configuration, GatewayNotice, GatewayRequest, KernelProgram, Program, Service,
};
pub(crate) use self::running::Sandbox;
pub(crate) use self::settings::{Confinement, Inside};
pub(crate) use self::stubs::is_stub;
pub(crate) use self::top_level::TopLevel;
