//! The approval policy: rules that allow, ask about or deny actions. `docs/approval-policy.md` has the
//! format.
//!
//! ```text
//! file (TOML) → rules ┬ names, target    glob
//!                     ├ annotations
//!                     └ arguments        condition → operator → number, glob
//! ```
//!
//! A rule may hold, fail, or be in doubt (`verdict`), since some texts have more than one meaning (`text`).
//! In doubt, the stricter outcome counts.

mod approvers;
mod condition;
mod file;
mod glob;
mod number;
mod operator;
mod rules;
mod text;
mod verdict;

pub(crate) use self::approvers::NamedApprovers;
pub use self::file::PolicyError;
pub(super) use self::number::compare as compare_numbers;
pub(super) use self::rules::PolicyJudgement;
pub use self::rules::{ApprovalEffect, ApprovalPolicy};
