//! Model → Python text.

mod annotation;
mod literal;
mod module;
mod package;

pub(super) use module::render as render_module;
pub(super) use package::render as render_package;

use crate::codegen::RunForm;

/// The modules that the generated ones import from, by file name, as they are.
pub(super) const SUPPORT: [(&str, &str); 2] =
    [("_base.py", include_str!("base.py")), ("_rules.py", include_str!("rules.py"))];

/// The two functions of a module, and whether the first of them is the asynchronous one.
pub(super) fn run_form(form: RunForm) -> [(&'static str, bool); 2] {
    match form {
        RunForm::Sync => [("run", false), ("run_async", true)],
        RunForm::Async => [("run", true), ("run_sync", false)],
    }
}
