//! The modules `resources` and `prompts` of a package: functions that list, and one for each template or prompt.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::overview::first_sentence;
use super::{FunctionForm, form_docstring, literal, run_forms};
use crate::resources::{Prompt, ResourceTemplate};
use crate::scope::{NameNumbering, NameScope};
use crate::uri_template::{self, TemplateVariable};
use crate::{Degradation, RunForm, identifier};

/// The part of a description that the module's docstring shows, in characters: it has one line for each function.
const SUMMARY_CHARS: usize = 120;

/// The most arguments of a prompt that becomes a function.
const ARGUMENTS_MAX: usize = 200;

/// Names that a module has besides its functions, and the built-in type that its annotations name.
const TAKEN: [&str; 3] = ["annotations", "builtins", "str"];

/// A module as text.
pub(crate) struct RenderedResources {
    pub(crate) text: String,
    /// The functions made of templates or prompts.
    pub(crate) functions: Vec<String>,
    /// Templates and prompts that have no function.
    pub(crate) degraded: Vec<Degradation>,
}

/// The package that a module is for, and the name that it has there.
#[derive(Clone, Copy)]
pub(crate) struct ModulePlace<'a> {
    pub(crate) server: &'a str,
    pub(crate) module: &'a str,
    pub(crate) form: RunForm,
}

/// The common parts of all modules of one kind.
struct ModuleKind {
    /// The name of the module, unless a tool has it, and of what it is about.
    name: &'static str,
    imports: &'static str,
    /// The object that the functions are called on: an instance of this class.
    object: &'static str,
    class: &'static str,
    /// The method that the functions call which are made of templates or prompts.
    method: &'static str,
    result: &'static str,
    fixed: &'static [Fixed],
}

/// A function that every module of a kind has.
struct Fixed {
    name: &'static str,
    parameters: &'static str,
    arguments: &'static str,
    result: &'static str,
    doc: &'static str,
}

const RESOURCES: ModuleKind = ModuleKind {
    name: "resources",
    imports: "from ipybox_modules import ToolModule\n\
              from ipybox_resources import ResourceTemplate, ServerResources\n\
              from ipybox_results import ResourceLink, ToolResult\n",
    object: "_RESOURCES",
    class: "ServerResources",
    method: "read_template",
    result: "ToolResult",
    fixed: &[
        Fixed {
            name: "list",
            parameters: "",
            arguments: "",
            result: "builtins.list[ResourceLink]",
            doc: "List the server's resources. Each can be read by its `read()`.",
        },
        Fixed {
            name: "read",
            parameters: "uri: str",
            arguments: "uri",
            result: "ToolResult",
            doc: "Read the resource at a URI.",
        },
        Fixed {
            name: "templates",
            parameters: "",
            arguments: "",
            result: "builtins.list[ResourceTemplate]",
            doc: "List the templates that the server has now.",
        },
    ],
};

const PROMPTS: ModuleKind = ModuleKind {
    name: "prompts",
    imports: "from ipybox_modules import ToolModule\n\
              from ipybox_resources import Prompt, PromptMessage, ServerPrompts\n",
    object: "_PROMPTS",
    class: "ServerPrompts",
    method: "get",
    result: "builtins.list[PromptMessage]",
    fixed: &[
        Fixed {
            name: "list",
            parameters: "",
            arguments: "",
            result: "builtins.list[Prompt]",
            doc: "List the prompts that the server has now, with their arguments.",
        },
        Fixed {
            name: "get",
            parameters: "name: str, /, **arguments: str | None",
            arguments: "name, arguments",
            result: "builtins.list[PromptMessage]",
            doc: "Get the messages of a prompt.",
        },
    ],
};

/// A function for a template or a prompt.
struct OfferFunction {
    name: String,
    /// The template, or the prompt's name.
    subject: String,
    doc: String,
    summary: String,
    parameters: Vec<Parameter>,
}

struct Parameter {
    name: String,
    wire: String,
    ty: &'static str,
    is_required: bool,
}

/// The module for resources with these templates.
pub(crate) fn render_resources(place: ModulePlace<'_>, templates: &[ResourceTemplate]) -> RenderedResources {
    let mut names = names(&RESOURCES, place.form);
    let mut functions = Vec::new();
    let mut degraded = Vec::new();
    for template in templates {
        match uri_template::variables(&template.uri_template) {
            Ok(variables) => functions.push(of_template(template, variables, &mut names, place.form)),
            Err(reason) => {
                let what = format!("its URI template has no function: {reason}");
                degraded.push(Degradation { path: template.name.clone(), what });
            }
        }
    }
    let needs_containers =
        functions.iter().flat_map(|function| &function.parameters).any(|parameter| parameter.ty != TEXT);
    let text = render(&RESOURCES, place, &functions, needs_containers);
    RenderedResources {
        text,
        functions: functions.into_iter().map(|function| function.name).collect(),
        degraded,
    }
}

/// The module for these prompts.
pub(crate) fn render_prompts(place: ModulePlace<'_>, prompts: &[Prompt]) -> RenderedResources {
    let mut names = names(&PROMPTS, place.form);
    let (usable, others): (Vec<_>, Vec<_>) =
        prompts.iter().partition(|prompt| prompt.arguments.len() <= ARGUMENTS_MAX);
    let functions: Vec<_> =
        usable.into_iter().map(|prompt| of_prompt(prompt, &mut names, place.form)).collect();
    let what = format!("it has no function, since it has more than {ARGUMENTS_MAX} arguments");
    let degraded =
        others.into_iter().map(|prompt| Degradation { path: prompt.name.clone(), what: what.clone() });
    let text = render(&PROMPTS, place, &functions, false);
    let functions = functions.into_iter().map(|function| function.name).collect();
    RenderedResources { text, functions, degraded: degraded.collect() }
}

const TEXT: &str = "str";
const TEXTS: &str = "str | Sequence[str] | Mapping[str, str]";

fn of_template(
    template: &ResourceTemplate,
    variables: Vec<TemplateVariable>,
    names: &mut NameScope,
    form: RunForm,
) -> OfferFunction {
    let words = words(template.description.as_deref(), template.title.as_deref());
    let mut doc = if words.is_empty() { "Read a resource.".to_owned() } else { words.clone() };
    let _infallible = write!(doc, "\n\nIts URI is `{}`.", template.uri_template);
    let parameters = variables.into_iter().map(|TemplateVariable { name, is_exploded, is_required }| {
        (name, if is_exploded { TEXTS } else { TEXT }, is_required)
    });
    OfferFunction {
        name: take(names, &template.name, form),
        subject: template.uri_template.clone(),
        doc,
        summary: summary(&words),
        parameters: self::parameters(parameters),
    }
}

fn of_prompt(prompt: &Prompt, names: &mut NameScope, form: RunForm) -> OfferFunction {
    let words = words(prompt.description.as_deref(), prompt.title.as_deref());
    let mut doc = match words.as_str() {
        "" => format!("Get the messages of the prompt `{}`.", prompt.name),
        words => words.to_owned(),
    };
    let mut seen = HashSet::new();
    let arguments: Vec<_> =
        prompt.arguments.iter().filter(|argument| seen.insert(argument.name.as_str())).collect();
    let parameters =
        parameters(arguments.iter().map(|argument| (argument.name.clone(), TEXT, argument.is_required)));
    let mut separator = "\n\n";
    for argument in arguments {
        let description = argument.description.as_deref().unwrap_or_default().trim();
        let parameter = parameters.iter().find(|parameter| parameter.wire == argument.name);
        if let (Some(parameter), false) = (parameter, description.is_empty()) {
            let _infallible = write!(doc, "{separator}{}: {description}", parameter.name);
            separator = "\n";
        }
    }
    let summary = summary(&words);
    let name = take(names, &prompt.name, form);
    OfferFunction { name, subject: prompt.name.clone(), doc, summary, parameters }
}

/// Parameters of these names and types, those first that are required.
fn parameters(declared: impl Iterator<Item = (String, &'static str, bool)>) -> Vec<Parameter> {
    let mut scope = NameScope::default();
    let mut parameters: Vec<_> = declared
        .map(|(wire, ty, is_required)| {
            let name = scope.take(identifier::field(&wire), NameNumbering::Underscore);
            Parameter { name, wire, ty, is_required }
        })
        .collect();
    parameters.sort_by_key(|parameter| !parameter.is_required);
    parameters
}

/// The names that a module of this kind has before functions are made.
fn names(kind: &ModuleKind, form: RunForm) -> NameScope {
    let fixed = kind
        .fixed
        .iter()
        .flat_map(|function| run_forms(form).map(|form| format!("{}{}", function.name, form.suffix)));
    NameScope::with(TAKEN.map(str::to_owned).into_iter().chain(fixed))
}

/// A name for the two forms of a function.
fn take(names: &mut NameScope, wire: &str, form: RunForm) -> String {
    let [_, FunctionForm { suffix, .. }] = run_forms(form);
    loop {
        let name = names.take(identifier::module(wire), NameNumbering::Underscore);
        let other = format!("{name}{suffix}");
        if !names.contains(&other) {
            names.take(other, NameNumbering::Underscore);
            return name;
        }
    }
}

fn words(description: Option<&str>, title: Option<&str>) -> String {
    [description, title]
        .into_iter()
        .flatten()
        .map(str::trim)
        .find(|text| !text.is_empty())
        .unwrap_or_default()
        .to_owned()
}

fn summary(words: &str) -> String {
    literal::comment(&first_sentence(words, SUMMARY_CHARS))
}

fn render(
    kind: &ModuleKind,
    place: ModulePlace<'_>,
    functions: &[OfferFunction],
    needs_containers: bool,
) -> String {
    let ModuleKind { imports, object, class, .. } = kind;
    let mut text = format!(
        "{}\n\nfrom __future__ import annotations\n\nimport builtins\n",
        literal::docstring(&overview(kind, place, functions), "")
    );
    if needs_containers {
        text.push_str("from collections.abc import Mapping, Sequence\n");
    }
    let _infallible = write!(text, "\n{imports}\nfrom . import CLIENT\n\n{object} = {class}(CLIENT)\n");
    for function in kind.fixed {
        let Fixed { name, parameters, arguments, result, doc } = *function;
        let method = &format!("{object}.{name}");
        write_function(
            &mut text,
            &WrittenFunction { name, doc, parameters, result, method, arguments },
            place.form,
        );
    }
    for OfferFunction { name, subject, doc, parameters, .. } in functions {
        let members: Vec<_> = parameters
            .iter()
            .map(|parameter| format!("{}: {}", literal::string(&parameter.wire), parameter.name))
            .collect();
        let arguments = format!("{}, {{{}}}", literal::string(subject), members.join(", "));
        let written = WrittenFunction {
            name,
            doc,
            parameters: &declared(parameters),
            result: kind.result,
            method: &format!("{object}.{}", kind.method),
            arguments: &arguments,
        };
        write_function(&mut text, &written, place.form);
    }
    text.push_str("\n\nToolModule.describe(__name__)\n");
    text
}

/// A function as Python text: it calls an asynchronous method, whose other form ends in `_sync`.
struct WrittenFunction<'a> {
    name: &'a str,
    doc: &'a str,
    parameters: &'a str,
    result: &'a str,
    method: &'a str,
    arguments: &'a str,
}

/// Writes the two forms of a function.
fn write_function(text: &mut String, function: &WrittenFunction<'_>, form: RunForm) {
    let WrittenFunction { name, doc, parameters, result, method, arguments } = function;
    for form in run_forms(form) {
        let FunctionForm { suffix, is_async } = form;
        let doc = form_docstring(name, doc, form);
        let (keyword, call) = if is_async {
            ("async def", format!("await {method}"))
        } else {
            ("def", format!("{method}_sync"))
        };
        let _infallible = write!(
            text,
            "\n\n{keyword} {name}{suffix}({parameters}) -> {result}:\n    {doc}\n    return {call}({arguments})\n"
        );
    }
}

/// Parameters as Python declares them.
fn declared(parameters: &[Parameter]) -> String {
    let declared = parameters.iter().map(|Parameter { name, ty, is_required, .. }| {
        if *is_required { format!("{name}: {ty}") } else { format!("{name}: {ty} | None = None") }
    });
    declared.collect::<Vec<_>>().join(", ")
}

/// The docstring of a module: what it has, in a line for each function.
fn overview(
    kind: &ModuleKind,
    ModulePlace { server, module, form }: ModulePlace<'_>,
    functions: &[OfferFunction],
) -> String {
    let name = kind.name;
    let mut title = name.to_owned();
    title[..1].make_ascii_uppercase();
    let mut text = format!("{title} of the MCP server `{server}`.\n");
    if module != name {
        let _infallible = write!(
            text,
            "\nThis module is called `{module}`, since a tool of the server has the module `{name}`.\n"
        );
    }
    for Fixed { name, parameters, result, doc, .. } in kind.fixed {
        let _infallible =
            write!(text, "\n{name}({parameters}) -> {}: {doc}", result.replace("builtins.", ""));
    }
    for OfferFunction { name, parameters, summary, .. } in functions {
        let _infallible =
            write!(text, "\n{name}({}) -> {}", declared(parameters), kind.result.replace("builtins.", ""));
        if !summary.is_empty() {
            let _infallible = write!(text, ": {summary}");
        }
    }
    let [_, FunctionForm { suffix, is_async }] = run_forms(form);
    let other = if is_async { "is a coroutine" } else { "waits" };
    let _infallible = write!(text, "\n\nEach has a second form, which {other}: `list{suffix}`.");
    text
}
