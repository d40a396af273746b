//! The module of one tool: first what a caller needs, then the classes that it is made of.

use std::fmt::Write as _;

use serde_json::Value;

use super::annotation::{ModuleImports, is_literally};
use super::overview::{overview, result_name};
use super::{FunctionForm, form_docstring, literal, run_forms};
use crate::classes::SchemaClasses;
use crate::model::{ClassBody, ClassModel, EnumMember, ExtraProperties, ModelField, PythonClass, PythonType};
use crate::{RunForm, Tool};

/// A module as text.
pub(crate) struct RenderedModule {
    pub(crate) text: String,
    /// The classes of the last schema among it.
    pub(crate) last_classes: String,
}

/// The module for `tool`, whose schemas came to these classes.
pub(crate) fn render(tool: &Tool, sides: &[SchemaClasses], form: RunForm) -> RenderedModule {
    let mut imports = ModuleImports::default();
    let mut first = String::new();
    let mut rest = String::new();
    let mut last_classes = String::new();
    for classes in sides {
        let mut texts = classes.0.iter().map(|class| render_class(class, classes, &mut imports));
        let own = texts.next().unwrap_or_default();
        let others: String =
            texts.filter(|text| !text.is_empty()).map(|text| format!("\n\n{text}")).collect();
        if !own.is_empty() {
            let _ = write!(first, "\n\n{own}");
        }
        rest.push_str(&others);
        last_classes = own + &others;
    }
    let functions = render_functions(tool, sides, form, &mut imports);
    let doc = literal::docstring(&overview(tool, sides), "");
    let [run, other] = run_forms(form).map(|form| format!("run{}", form.suffix));
    let describe = format!("\n\n{}.describe(__name__, {run}, {other})\n", imports.base("ToolModule"));
    let text = format!("{doc}\n\n{}{first}{functions}{rest}{describe}", render_imports(&imports));
    RenderedModule { text, last_classes }
}

fn render_imports(imports: &ModuleImports) -> String {
    let mut text = "from __future__ import annotations\n\n".to_owned();
    for (module, names) in [("typing", &imports.typing), ("pydantic", &imports.pydantic)] {
        if !names.is_empty() {
            let _ = writeln!(text, "{}\n", literal::import(module, names.iter().copied()));
        }
    }
    let _ =
        writeln!(text, "from . import CLIENT\n{}", literal::import("._base", imports.base.iter().copied()));
    text
}

fn render_functions(
    tool: &Tool,
    sides: &[SchemaClasses],
    form: RunForm,
    imports: &mut ModuleImports,
) -> String {
    let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default().trim();
    let doc = match description {
        "" => format!("Call the tool `{}`.", tool.name),
        description => description.to_owned(),
    };
    let (result, model) = match result_name(tool, sides) {
        name @ "Result" => (name, ", Result"),
        name @ "Result | None" => (name, ", Result, is_nullable=True"),
        _ => (imports.base("ToolResult"), ""),
    };
    let run = ToolFunction { name: "run", doc: &doc, result, reader: "reply", reader_arguments: model };
    let mut text = render_function(&run, tool, form, imports);
    if let Some(observed) = &tool.observed {
        let is_sequence = if observed.is_sequence() { ", is_sequence=True" } else { "" };
        let run_parsed = ToolFunction {
            name: "run_parsed",
            doc: "Do the same as `run`, and return what the result holds. The type was inferred from earlier results.",
            result: "ParseResult",
            reader: "parsed",
            reader_arguments: &format!(", ParseResult{is_sequence}"),
        };
        text.push_str(&render_function(&run_parsed, tool, form, imports));
    }
    text
}

/// A function that calls the tool, in its two forms.
struct ToolFunction<'a> {
    name: &'static str,
    doc: &'a str,
    result: &'static str,
    /// The reader that makes the result of the answer.
    reader: &'static str,
    /// The reader's arguments after the answer.
    reader_arguments: &'a str,
}

fn render_function(
    function: &ToolFunction<'_>,
    tool: &Tool,
    form: RunForm,
    imports: &mut ModuleImports,
) -> String {
    let ToolFunction { name, doc, result, reader, reader_arguments } = function;
    let any = imports.typing("Any");
    imports.base("arguments");
    imports.base(reader);
    let tool = literal::string(&tool.name);
    let mut text = String::new();
    for form in run_forms(form) {
        let FunctionForm { suffix, is_async } = form;
        let (keyword, call) =
            if is_async { ("async def", "await CLIENT.call") } else { ("def", "CLIENT.call_sync") };
        let doc = form_docstring(name, doc, form);
        let _ = write!(
            text,
            "\n\n{keyword} {name}{suffix}(params: Params | None = None, /, **fields: {any}) -> {result}:\n    {doc}\n\
             \x20   return {reader}({call}(tool_name={tool}, tool_args=arguments(Params, params, fields)){reader_arguments})\n"
        );
    }
    text
}

/// A class statement; empty for a class that is not needed.
fn render_class(class: &PythonClass, classes: &SchemaClasses, imports: &mut ModuleImports) -> String {
    let (bases, body) = match &class.body {
        _ if class.is_duplicate => return String::new(),
        ClassBody::Vacant => return String::new(),
        ClassBody::Model(model) => render_model(model, classes, imports),
        ClassBody::Enum(members) => render_enum(members, imports),
        ClassBody::Root(ty) => {
            (imports.base("ToolRoot").to_owned(), format!("    root: {}\n", imports.annotation(ty, classes)))
        }
    };
    let doc =
        class.description.as_deref().map(|text| format!("    {}\n\n", literal::docstring(text, "    ")));
    let (doc, body) = match (doc, body.is_empty()) {
        (None, true) => (String::new(), "    pass\n".to_owned()),
        (Some(doc), true) => (doc.trim_end().to_owned() + "\n", body),
        (doc, false) => (doc.unwrap_or_default(), body),
    };
    format!("class {}({bases}):\n{doc}{body}", class.name)
}

/// The bases and the body of a model.
fn render_model(
    model: &ClassModel,
    classes: &SchemaClasses,
    imports: &mut ModuleImports,
) -> (String, String) {
    let mut body = String::new();
    let mut base = match &model.extra {
        ExtraProperties::Allowed => imports.base("ToolModel").to_owned(),
        ExtraProperties::Refused => format!("{}, extra=\"forbid\"", imports.base("ToolModel")),
        ExtraProperties::Typed(_) => imports.base("OpenModel").to_owned(),
    };
    if !model.rules.is_empty() {
        let _ = write!(base, ", rules={}", literal::object(&model.rules));
    }
    if let ExtraProperties::Typed(ty) = &model.extra
        && *ty != PythonType::Any
    {
        let _ = writeln!(body, "    __pydantic_extra__: dict[str, {}]", imports.annotation(ty, classes));
    }
    for field in &model.fields {
        render_field(&mut body, field, classes, imports);
    }
    (base, body)
}

fn render_field(body: &mut String, field: &ModelField, classes: &SchemaClasses, imports: &mut ModuleImports) {
    let alias = (field.name != field.wire).then(|| literal::string(&field.wire));
    let default = field.default.as_ref().filter(|default| !default.is_null() || field.is_nullable);
    let ty = if field.is_required { field.ty.clone() } else { field.ty.without_null() };
    let mut annotation = imports.annotation(&ty, classes);
    let value = if field.is_required {
        alias.map(|alias| format!("{}(alias={alias})", imports.pydantic("Field")))
    } else {
        if field.is_nullable {
            if !field.ty.is_any() && ty != PythonType::Null {
                annotation = format!("{}[{annotation}]", imports.base("Nullable"));
            }
        } else if default.is_none() {
            annotation.push_str(" | None");
        }
        Some(render_default(default, field, alias, imports))
    };
    let _ = write!(body, "    {}: {annotation}", field.name);
    if let Some(value) = value {
        let _ = write!(body, " = {value}");
    }
    if !field.doc.notes.is_empty() {
        let _ = write!(body, "  # {}", literal::comment(&field.doc.notes.join("; ")));
    }
    body.push('\n');
    if let Some(description) = &field.doc.description {
        let _ = writeln!(body, "    {}", literal::docstring(description, "    "));
    }
}

fn render_default(
    default: Option<&Value>,
    field: &ModelField,
    alias: Option<String>,
    imports: &mut ModuleImports,
) -> String {
    let default = default.unwrap_or(&Value::Null);
    let value = literal::value(default);
    let is_plain = !field.is_tag && (default.is_null() || is_literally(default, &field.ty));
    let function = if field.is_tag { "tag_default" } else { "json_default" };
    match (is_plain, alias) {
        (true, None) => value,
        (true, Some(alias)) => format!("{}(default={value}, alias={alias})", imports.pydantic("Field")),
        (false, None) => format!("{}({value})", imports.base(function)),
        (false, Some(alias)) => format!("{}({value}, alias={alias})", imports.base(function)),
    }
}

/// The names that strings and enum members have, and that a member of the name hides; Python allows it and pyright does not.
#[rustfmt::skip]
const HIDDEN_BY_MEMBERS: [&str; 49] = [
    "capitalize", "casefold", "center", "count", "encode", "endswith", "expandtabs", "find", "format",
    "format_map", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower",
    "isnumeric", "isprintable", "isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip",
    "maketrans", "name", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust",
    "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title",
    "translate", "upper", "value", "zfill",
];

/// The base and the body of an enum.
fn render_enum(members: &[EnumMember], imports: &mut ModuleImports) -> (String, String) {
    let base = if members.iter().all(|member| member.value.is_string()) {
        imports.base("StrEnum")
    } else if members.iter().all(|member| member.value.is_number()) {
        imports.base("IntEnum")
    } else {
        imports.base("AnyEnum")
    };
    let mut text = String::new();
    for member in members {
        let hidden = HIDDEN_BY_MEMBERS.contains(&member.name.as_str());
        let remark = if hidden { "  # pyright: ignore" } else { "" };
        let _ = writeln!(text, "    {} = {}{remark}", member.name, literal::value(&member.value));
    }
    (base.to_owned(), text)
}
