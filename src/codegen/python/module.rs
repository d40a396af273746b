//! The module of one tool: first what a caller needs, then the classes that it is made of.

use std::fmt::Write as _;

use serde_json::Value;

use super::annotation::{Imports, is_literally};
use super::{literal, run_form};
use crate::codegen::classes::Classes;
use crate::codegen::model::{Body, Class, Extra, Field, Member, Model, Type};
use crate::codegen::{RunForm, Tool};

/// The text of the module for `tool`.
pub(in crate::codegen) fn render(
    tool: &Tool,
    arguments: &mut Classes,
    mut output: Option<&mut Classes>,
    form: RunForm,
) -> String {
    let (text, imports) = render_once(tool, arguments, output.as_deref(), form);
    let is_class = |name: &str| {
        let is_in = |classes: &Classes| classes.0.iter().any(|class| class.name == name);
        is_in(arguments) || output.as_deref().is_some_and(is_in)
    };
    let taken: Vec<_> = imports.names().filter(|name| is_class(name)).collect();
    if taken.is_empty() {
        return text;
    }
    // A class that has the name of an import gets another, and only then: which imports there are depends on the text.
    for name in taken {
        arguments.rename(name);
        output.iter_mut().for_each(|output| output.rename(name));
    }
    render_once(tool, arguments, output.as_deref(), form).0
}

fn render_once(
    tool: &Tool,
    arguments: &Classes,
    output: Option<&Classes>,
    form: RunForm,
) -> (String, Imports) {
    let mut imports = Imports::default();
    let mut first = String::new();
    let mut rest = String::new();
    for classes in [Some(arguments), output].into_iter().flatten() {
        for (position, class) in classes.0.iter().enumerate() {
            let text = render_class(class, classes, &mut imports);
            if text.is_empty() {
                continue;
            }
            let part = if position == 0 { &mut first } else { &mut rest };
            let _ = write!(part, "\n\n{text}");
        }
    }
    let functions = render_functions(tool, output.is_some(), form, &mut imports);
    (format!("{}{first}{functions}{rest}", render_imports(&imports)), imports)
}

fn render_imports(imports: &Imports) -> String {
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

fn render_functions(tool: &Tool, has_output: bool, form: RunForm, imports: &mut Imports) -> String {
    let any = imports.typing("Any");
    imports.base("arguments");
    let result = if has_output { "Result" } else { "str" };
    let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default().trim();
    let name = literal::string(&tool.name);
    let mut text = String::new();
    for (position, (function, is_async)) in run_form(form).into_iter().enumerate() {
        let (keyword, call) =
            if is_async { ("async def", "await CLIENT.run") } else { ("def", "CLIENT.run_sync") };
        let call = format!("{call}(tool_name={name}, tool_args=arguments(Params, params, fields))");
        let doc = match (position, is_async) {
            (0, _) if description.is_empty() => format!("Call the tool `{}`.", tool.name),
            (0, _) => description.to_owned(),
            (_, true) => "Do the same as `run`, asynchronously.".to_owned(),
            (_, false) => "Do the same as `run`, and wait for it.".to_owned(),
        };
        let doc = literal::docstring(&doc, "    ");
        let _ = write!(
            text,
            "\n\n{keyword} {function}(params: Params | None = None, /, **fields: {any}) -> {result}:\n    {doc}\n"
        );
        let reply = imports.base("reply");
        let _ = writeln!(text, "    return {reply}({call}{})", if has_output { ", Result" } else { "" });
    }
    text
}

/// A class statement; empty for a class that is not needed.
fn render_class(class: &Class, classes: &Classes, imports: &mut Imports) -> String {
    let (bases, body) = match &class.body {
        _ if class.is_elsewhere => return String::new(),
        Body::Vacant => return String::new(),
        Body::Model(model) => render_model(model, classes, imports),
        Body::Enum(members) => render_enum(members, imports),
        Body::Root(ty) => {
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
fn render_model(model: &Model, classes: &Classes, imports: &mut Imports) -> (String, String) {
    let mut body = String::new();
    let mut base = match &model.extra {
        Extra::Allowed => imports.base("ToolModel").to_owned(),
        Extra::Refused => format!("{}, extra=\"forbid\"", imports.base("ToolModel")),
        Extra::Typed(_) => imports.base("OpenModel").to_owned(),
    };
    if !model.rules.is_empty() {
        let _ = write!(base, ", rules={}", literal::object(&model.rules));
    }
    if let Extra::Typed(ty) = &model.extra
        && *ty != Type::Any
    {
        let _ = writeln!(body, "    __pydantic_extra__: dict[str, {}]", imports.annotation(ty, classes));
    }
    for field in &model.fields {
        render_field(&mut body, field, classes, imports);
    }
    (base, body)
}

fn render_field(body: &mut String, field: &Field, classes: &Classes, imports: &mut Imports) {
    let alias = (field.name != field.wire).then(|| literal::string(&field.wire));
    let default = field.default.as_ref().filter(|default| !default.is_null() || field.is_nullable);
    let ty = if field.is_required { field.ty.clone() } else { field.ty.without_null() };
    let mut annotation = imports.annotation(&ty, classes);
    let value = if field.is_required {
        alias.map(|alias| format!("{}(alias={alias})", imports.pydantic("Field")))
    } else {
        if field.is_nullable {
            if ty != Type::Any && ty != Type::Null {
                annotation = format!("{}[{annotation}]", imports.base("Nullable"));
            }
        } else if default.is_none() {
            annotation.push_str(" | None");
        }
        Some(render_default(default, &ty, alias, imports))
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
    ty: &Type,
    alias: Option<String>,
    imports: &mut Imports,
) -> String {
    let default = default.unwrap_or(&Value::Null);
    let value = literal::value(default);
    let is_plain = default.is_null() || is_literally(default, ty);
    match (is_plain, alias) {
        (true, None) => value,
        (true, Some(alias)) => format!("{}(default={value}, alias={alias})", imports.pydantic("Field")),
        (false, None) => format!("{}({value})", imports.base("json_default")),
        (false, Some(alias)) => format!("{}({value}, alias={alias})", imports.base("json_default")),
    }
}

/// What strings and enum members have by these names a member of the name hides; Python allows it and pyright does not.
const HIDDEN_BY_MEMBERS: [&str; 49] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "name",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "value",
    "zfill",
];

/// The base and the body of an enum.
fn render_enum(members: &[Member], imports: &mut Imports) -> (String, String) {
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
