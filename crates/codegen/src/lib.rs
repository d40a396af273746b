#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! A schema is cut to a bounded depth (`bounded`), its references are found (`document`), and what is no JSON Schema is
//! rewritten (`dialect`). Then `lower`
//! makes types and `classes` of it (`model`), with the help of `merge`, `rules`, `regex`, `identifier`,
//! `scope` and `singular`; and `python` writes them down.
//!
//! For a tool without an output schema, `observed` infers a schema from observed results.
//!
//! Resource templates and prompts (`resources`) become functions of two modules of their own; `uri_template` finds the
//! variables of a template.
//!
//! Reasons: `docs/decisions/codegen.md`.

mod bounded;
mod classes;
mod dialect;
mod document;
mod identifier;
mod lower;
mod merge;
mod model;
mod observed;
mod package_name;
mod python;
mod regex;
mod reserved;
mod resources;
mod rules;
mod scope;
mod singular;
mod uri_template;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use classes::SchemaClasses;
use lower::{LoweredSchema, SchemaSide, lower};
pub use observed::{ObserveError, Observed};
pub use package_name::{PackageNameError, nearest_package_name, validate_package_name};
use python::{ModulePlace, RenderedFunctions};
pub use resources::{FunctionModule, Prompt, PromptArgument, ResourceTemplate, ResourcesAndPrompts};
use scope::{NameNumbering, NameScope};

/// One MCP tool as the server described it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The name under which the server knows the tool.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the tool, for models and users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of the arguments object.
    pub input_schema: Map<String, Value>,
    /// The JSON Schema of the structured result, if the tool has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map<String, Value>>,
    /// The observed shape of its results. With it, the module has `ParseResult` and `run_parsed` too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
}

/// The server to generate a package for: its Python name, and its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The name of the package, and of the server in the tool server's registry: see [`validate_package_name`].
    pub name: String,
    /// The server's description of itself.
    pub description: Option<String>,
}

/// Which form the function called `run` has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunForm {
    /// `run` waits for the tool, `run_async` is a coroutine.
    #[default]
    Sync,
    /// `run` is a coroutine, `run_sync` waits for the tool.
    Async,
}

/// The options of a generated package.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The form of `run`.
    pub form: RunForm,
}

impl Options {
    /// These options, with `run` in this form.
    #[must_use]
    pub fn form(self, form: RunForm) -> Self {
        Self { form, ..self }
    }
}

/// The overview of a tool's call, in few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOverview {
    /// The description of the tool, in one line; empty if it has none.
    pub summary: String,
    /// The parameters with types and defaults, and the result, in one line: `(path: str) -> ToolResult`.
    pub signature: String,
    /// A line for each class that the parameters are made of.
    pub classes: String,
    /// The docstring of its module.
    pub overview: String,
}

/// A generated Python package.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Package {
    /// All the files of the package.
    pub files: Vec<File>,
    /// The modules among them, one for each tool, in the order of the tools.
    pub modules: Vec<Module>,
    /// The modules for resources and prompts, if the server has them.
    pub others: Vec<FunctionModule>,
}

/// A file of a generated package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The name of the file in the package's directory.
    pub path: String,
    /// The content.
    pub text: String,
}

/// The module of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Module {
    /// The name under which the server knows the tool.
    pub tool: String,
    /// The name of the module in the package.
    pub name: String,
    /// Parts of the schemas that the module does not express, in the order of the schemas.
    pub degraded: Vec<Degradation>,
}

/// A spot in a tool's schemas that Python could not express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degradation {
    /// The path to the spot: `input`, `output` or `results`, then the names of properties, `[]` for items and
    /// `*` for the values of undeclared properties.
    pub path: String,
    /// The part that is left out there, and why.
    pub what: String,
}

impl std::fmt::Display for Degradation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.path, self.what)
    }
}

/// Generates the package for `server`. The same input gives the same bytes.
///
/// Never fails: a tool with invalid schemas still gets a module that accepts anything.
pub fn generate(server: &Server, tools: &[Tool]) -> Package {
    generate_with(server, tools, Options::default())
}

/// [`generate`], with a choice of form.
pub fn generate_with(server: &Server, tools: &[Tool], options: Options) -> Package {
    generate_all(server, tools, &ResourcesAndPrompts::default(), options)
}

/// [`generate_with`], with modules for the server's resources and prompts too.
pub fn generate_all(
    server: &Server,
    tools: &[Tool],
    others: &ResourcesAndPrompts,
    options: Options,
) -> Package {
    let modules = module_names(tools);
    let mut files = vec![File { path: "py.typed".to_owned(), text: String::new() }];
    let support = python::SUPPORT.into_iter();
    files.extend(support.map(|(name, text)| File { path: format!("{name}.py"), text: text.to_owned() }));
    let mut described = Vec::with_capacity(tools.len());
    for (tool, name) in tools.iter().zip(modules) {
        let (rendered, degraded) = module(tool, options);
        files.push(File { path: format!("{name}.py"), text: rendered.text });
        described.push(Module { tool: tool.name.clone(), name, degraded });
    }
    let functions = function_modules(server, &described, others, options.form, &mut files);
    let index: Vec<_> = tools.iter().zip(&described).collect();
    let text = python::render_package(server, &index, &functions);
    files.insert(0, File { path: "__init__.py".to_owned(), text });
    let others = functions.into_iter().map(|(_, module)| module).collect();
    Package { files, modules: described, others }
}

/// Adds the files of the modules `resources` and `prompts`. If a tool has the name, the module gets a number.
fn function_modules(
    server: &Server,
    tools: &[Module],
    others: &ResourcesAndPrompts,
    form: RunForm,
    files: &mut Vec<File>,
) -> Vec<(&'static str, FunctionModule)> {
    let mut scope = NameScope::with(tools.iter().map(|module| module.name.as_str()));
    let mut modules = Vec::new();
    let mut add = |kind: &'static str, render: &dyn Fn(ModulePlace<'_>) -> RenderedFunctions| {
        let name = scope.take(kind.to_owned(), NameNumbering::Underscore);
        let place = ModulePlace { server: &server.name, module: &name, form };
        let RenderedFunctions { text, functions, degraded } = render(place);
        files.push(File { path: format!("{name}.py"), text });
        modules.push((kind, FunctionModule { name, functions, degraded }));
    };
    if let Some(templates) = &others.resources {
        add("resources", &|place| python::render_resources(place, templates));
    }
    if let Some(prompts) = &others.prompts {
        add("prompts", &|place| python::render_prompts(place, prompts));
    }
    modules
}

/// A module for each tool. A tool whose name is a valid module name keeps it, whatever the names of other
/// tools become.
pub fn module_names(tools: &[Tool]) -> Vec<String> {
    let mut scope = NameScope::with(["__init__"].into_iter().chain(python::SUPPORT.map(|(name, _)| name)));
    let mut names = vec![None; tools.len()];
    for is_exact in [true, false] {
        for (tool, slot) in tools.iter().zip(&mut names) {
            let name = identifier::module(&tool.name);
            let may_take = !is_exact || (name == tool.name && !scope.contains(&name));
            if slot.is_none() && may_take {
                *slot = Some(scope.take(name, NameNumbering::Underscore));
            }
        }
    }
    names.into_iter().flatten().collect()
}

/// The text of the module of a tool with [`Tool::observed`], and the classes among it that were inferred.
pub fn generate_observed(tool: &Tool, options: Options) -> (String, String) {
    let rendered = module(tool, options).0;
    (rendered.text, rendered.last_classes)
}

/// The overview of calls of `tool`.
pub fn call_overview(tool: &Tool) -> CallOverview {
    python::call_overview(tool, &classes(tool).0)
}

/// A tool's module, and what it leaves out.
fn module(tool: &Tool, options: Options) -> (python::RenderedModule, Vec<Degradation>) {
    let (classes, degraded) = classes(tool);
    (python::render_module(tool, &classes, options.form), degraded)
}

/// The classes of a tool's schemas, the arguments first, and what they leave out.
fn classes(tool: &Tool) -> (Vec<SchemaClasses>, Vec<Degradation>) {
    let declared = tool.output_schema.as_ref().map(|declared| (declared.clone(), "Result", "output"));
    let observed = tool.observed.as_ref().map(|observed| (observed.schema(), "ParseResult", "results"));
    let outputs: Vec<_> = declared.into_iter().chain(observed).collect();
    let mut sides = vec![schema(&tool.input_schema, "Params", SchemaSide::Arguments, "input")];
    for (output, name, place) in &outputs {
        let output = schema(output, name, SchemaSide::Output, place);
        sides.push(output);
    }
    for at in 1..sides.len() {
        let (before, after) = sides.split_at_mut(at);
        before.iter().for_each(|side| after[0].classes.stand_beside(&side.classes));
    }
    let (mut classes, degraded): (Vec<_>, Vec<_>) =
        sides.into_iter().map(|side| (side.classes, side.degraded)).unzip();
    classes::settle_fields(&mut classes);
    (classes, degraded.concat())
}

/// One schema of a tool as classes, the first of which is called `name`. Reports give its path as `place`.
fn schema(schema: &Map<String, Value>, name: &str, side: SchemaSide, place: &str) -> LoweredSchema {
    let mut bounded = bounded::bounded(schema);
    document::complete_references(&mut bounded.value);
    dialect::rewrite(&mut bounded.value);
    let mut lowered = lower(&bounded.value, bounded.nodes, name, side);
    if bounded.is_cut {
        let what = "nested too deeply; left as Any below".to_owned();
        lowered.degraded.push(Degradation { path: String::new(), what });
    }
    lowered.degraded.iter_mut().for_each(|spot| spot.path.insert_str(0, place));
    lowered
}
