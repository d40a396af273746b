//! The boundary around code in the kernel: what it may do ([`SandboxPolicy`]), the programs that enforce it, and the connection
//! to what runs inside.
//!
//! ```text
//! Policy ─ rules ─→ srt | bwrap ─ starts ─→ gateway (inside, hardened) ─ descriptors ─→ Sandbox
//! ```
//!
//! It knows neither Jupyter nor Python. A policy that cannot be enforced is refused: nothing ever runs
//! unsandboxed instead.
//!
//! Reasons: `docs/decisions/sandbox.md`.

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

pub use self::backend::SandboxBackend;
pub(crate) use self::bwrap::{MountedCopy, proxy_environment};
pub(crate) use self::channel::GatewayChannel;
pub(crate) use self::domain::DomainRule;
pub(crate) use self::error::Error;
pub(crate) use self::exposed::{ExposedPlaces, Exposure};
pub(crate) use self::hardening::Hardening;
pub(crate) use self::kernel_control::{BranchInside, KernelControl, KernelNews};
pub(crate) use self::policy::{
    ClientPermissions, PolicyPaths, SandboxPolicy, SandboxRules, configures_programs,
};
pub use self::policy::{PathProblem, PolicyProblem, SandboxPolicyError};
pub(crate) use self::protocol::{
    GatewayConfiguration, GatewayNotice, GatewayRequest, HostService, KernelProgram, SandboxProgram,
};
pub(crate) use self::running::Sandbox;
pub(crate) use self::settings::{Confinement, SandboxPlan};
pub(crate) use self::stubs::is_stub;
pub(crate) use self::top_level::TopLevel;
