//! Model → Python text.

mod annotation;
mod literal;
mod module;
mod overview;
mod package;
mod resources;

pub(super) use module::{RenderedModule, render as render_module};
pub(super) use overview::call;
pub(super) use package::render as render_package;
pub(super) use resources::{
    ModulePlace, RenderedResources as RenderedFunctions, render_prompts, render_resources,
};

use crate::tools::codegen::RunForm;

/// The modules that the generated ones import from, by name, as they are.
pub(super) const SUPPORT: [(&str, &str); 4] = [
    ("_base", include_str!("base.py")),
    ("_results", include_str!("results.py")),
    ("_rules", include_str!("rules.py")),
    ("_values", include_str!("values.py")),
];

/// The endings of the names of a function's two forms, and which of them is asynchronous.
fn run_forms(form: RunForm) -> [(&'static str, bool); 2] {
    match form {
        RunForm::Sync => [("", false), ("_async", true)],
        RunForm::Async => [("", true), ("_sync", false)],
    }
}

/// The docstring of one of the two forms of a function called `name`.
fn form_docstring(name: &str, doc: &str, (suffix, is_async): (&str, bool)) -> String {
    let doc = match (suffix, is_async) {
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
        let runtime = include_str!("../../tool_server/ipybox_modules.py");
        assert!(runtime.contains(&format!("\n_SUPPORT = ({names})\n")));
    }
}
