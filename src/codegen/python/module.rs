//! The module of one tool: first what a caller needs, then the classes that it is made of.

use std::fmt::Write as _;

use serde_json::Value;

use super::annotation::{Imports, is_literally};
use super::{literal, run_form};
use crate::codegen::model::{Body, Class, Classes, Extra, Field, Member, Model, Type};
use crate::codegen::{RunForm, Tool};

/// The text of the module for `tool`.
pub(in crate::codegen) fn render(
    tool: &Tool,
    arguments: &Classes,
    output: Option<&Classes>,
    form: RunForm,
) -> String {
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
    let header = render_imports(&imports);
    format!("{header}{first}{functions}{rest}")
}

fn render_imports(imports: &Imports) -> String {
    let mut text = "from __future__ import annotations\n\n".to_owned();
    let mut line = |module: &str, names: Vec<&str>| {
        if !names.is_empty() {
            let _ = writeln!(text, "from {module} import {}", names.join(", "));
        }
        !names.is_empty()
    };
    let has_typing = line("typing", imports.typing.iter().copied().collect());
    let has_pydantic = !imports.pydantic.is_empty();
    if has_typing {
        text.push('\n');
    }
    if has_pydantic {
        let names: Vec<_> = imports.pydantic.iter().copied().collect();
        let _ = writeln!(text, "from pydantic import {}\n", names.join(", "));
    }
    text.push_str("from . import CLIENT\n");
    let names: Vec<_> = imports.base.iter().copied().collect();
    let _ = writeln!(text, "from ._base import {}", names.join(", "));
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
            "\n\n{keyword} {function}(params: Params | None = None, **fields: {any}) -> {result}:\n    {doc}\n"
        );
        let _ = if has_output {
            let reply = imports.base("reply");
            writeln!(text, "    return {reply}(Result, {call})")
        } else {
            writeln!(text, "    return {call}")
        };
    }
    text
}

fn render_class(class: &Class, classes: &Classes, imports: &mut Imports) -> String {
    match &class.body {
        Body::Vacant => String::new(),
        Body::Model(model) => render_model(&class.name, model, classes, imports),
        Body::Enum(members) => render_enum(&class.name, members, imports),
        Body::Root(ty) => {
            let root = imports.base("ToolRoot");
            format!("class {}({root}):\n    root: {}\n", class.name, imports.annotation(ty, classes))
        }
    }
}

fn render_model(name: &str, model: &Model, classes: &Classes, imports: &mut Imports) -> String {
    let mut body = String::new();
    let base = match &model.extra {
        Extra::Allowed => imports.base("ToolModel").to_owned(),
        Extra::Refused => format!("{}, extra=\"forbid\"", imports.base("ToolModel")),
        Extra::Typed(ty) => {
            let ty = imports.annotation(ty, classes);
            let _ = writeln!(body, "    __pydantic_extra__: dict[str, {ty}]");
            imports.base("OpenModel").to_owned()
        }
    };
    for field in &model.fields {
        render_field(&mut body, field, classes, imports);
    }
    if body.is_empty() {
        body.push_str("    pass\n");
    }
    format!("class {name}({base}):\n{body}")
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

fn render_enum(name: &str, members: &[Member], imports: &mut Imports) -> String {
    let base = if members.iter().all(|member| member.value.is_string()) {
        imports.base("StrEnum")
    } else if members.iter().all(|member| member.value.is_number()) {
        imports.base("IntEnum")
    } else {
        imports.base("AnyEnum")
    };
    let mut text = format!("class {name}({base}):\n");
    for member in members {
        let _ = writeln!(text, "    {} = {}", member.name, literal::value(&member.value));
    }
    text
}
