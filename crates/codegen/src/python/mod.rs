//! Model → Python text.

mod annotation;
mod literal;
mod module;
mod overview;
mod package;
mod resources;

pub(super) use module::{RenderedModule, render as render_module};
pub(super) use overview::call_overview;
pub(super) use package::render as render_package;
pub(super) use resources::{
    ModulePlace, RenderedResources as RenderedFunctions, render_prompts, render_resources,
};

use crate::RunForm;

/// The modules that the generated ones import from, by name, as they are.
pub(super) const SUPPORT: [(&str, &str); 4] = [
    ("_base", include_str!("base.py")),
    ("_results", include_str!("results.py")),
    ("_rules", include_str!("rules.py")),
    ("_values", include_str!("values.py")),
];

/// One of the two forms of a function.
#[derive(Clone, Copy)]
struct FunctionForm {
    /// The ending of its name.
    suffix: &'static str,
    is_async: bool,
}

/// The two forms of a function.
fn run_forms(form: RunForm) -> [FunctionForm; 2] {
    let other = match form {
        RunForm::Sync => "_async",
        RunForm::Async => "_sync",
    };
    let is_async = form == RunForm::Async;
    [FunctionForm { suffix: "", is_async }, FunctionForm { suffix: other, is_async: !is_async }]
}

/// The docstring of one of the two forms of a function called `name`.
fn form_docstring(name: &str, doc: &str, form: FunctionForm) -> String {
    let doc = match (form.suffix, form.is_async) {
        ("", _) => doc.to_owned(),
        (_, true) => format!("Do the same as `{name}`, asynchronously."),
        (_, false) => format!("Do the same as `{name}`, and wait for it."),
    };
    literal::docstring(&doc, "    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_list_all_modules_but_these() {
        let names = SUPPORT.map(|(name, _)| format!("{name:?}")).join(", ");
        let runtime = include_str!("../../../../src/tools/tool_server/ipybox_modules.py");
        assert!(runtime.contains(&format!("\n_SUPPORT = ({names})\n")));
    }
}
