//! What is allowed, asked for or denied without anybody having been asked. `docs/approval-policy.md` has the format.
//!
//! ```text
//! file (TOML) → rules ┬ names, target    glob
//!                     ├ annotations
//!                     └ arguments        condition → operator → number, glob
//! ```
//!
//! A rule may hold, fail, or be in doubt (`verdict`), since some texts mean more than they say (`text`). In doubt, the
//! stricter outcome counts.

mod condition;
mod file;
mod glob;
mod number;
mod operator;
mod rules;
mod text;
mod verdict;

pub use self::file::PolicyError;
pub use self::rules::{Effect, Policy};
