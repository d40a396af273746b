//! Model → Python text.

mod annotation;
mod literal;
mod module;
mod package;

pub(super) use module::render as render_module;
pub(super) use package::render as render_package;

use crate::codegen::RunForm;

/// The module that the generated ones import from, as it is.
pub(super) const BASE: &str = include_str!("base.py");

/// The file of [`BASE`] in the package.
pub(super) const BASE_FILE: &str = "_base.py";

/// Names that a generated module uses for itself: no class of a schema may have them.
pub(super) const RESERVED_NAMES: [&str; 19] = [
    "Annotated",
    "Any",
    "AnyEnum",
    "CLIENT",
    "Field",
    "Float",
    "FromList",
    "Int",
    "IntEnum",
    "Literal",
    "MultipleOf",
    "Nullable",
    "OneOf",
    "OpenModel",
    "StrEnum",
    "ToolModel",
    "ToolRoot",
    "UniqueItems",
    "None",
];

/// The two functions of a module, and whether the first of them is the asynchronous one.
pub(super) fn run_form(form: RunForm) -> [(&'static str, bool); 2] {
    match form {
        RunForm::Sync => [("run", false), ("run_async", true)],
        RunForm::Async => [("run", true), ("run_sync", false)],
    }
}
