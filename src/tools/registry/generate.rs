//! Lists what a server has, and reports on the package generated from it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::Error;
use crate::approval::ToolAnnotations;
use crate::connections::mcp_client::{
    self, Connection, Connector, ServerParameters, ServerTool, StartProgress,
};
use crate::ground::text::{describe, one_line};
use ipybox_codegen::{self as codegen, Package, PromptArgument, ResourcesAndPrompts, Tool};

/// The most templates of resources, and the most prompts, that get a function.
const FUNCTIONS_MAX: usize = 500;

/// The lists of a server.
pub(super) struct ServerLists {
    pub(super) tools: Vec<Tool>,
    /// By the tools' names.
    pub(super) annotations: BTreeMap<String, ToolAnnotations>,
    /// The names of the tools for apps only, which are left out.
    pub(super) for_apps: BTreeSet<String>,
    /// Templates of resources, and prompts.
    pub(super) others: ResourcesAndPrompts,
    /// The parts of them that are left out.
    pub(super) notes: Vec<String>,
    /// Still open.
    pub(super) connection: Connection,
}

/// Connects to a server and lists what it has.
pub(super) async fn listed_by(
    connector: &Connector,
    name: &str,
    parameters: &ServerParameters,
    notes: &[String],
    progress: StartProgress<'_>,
) -> Result<ServerLists, Error> {
    let what = parameters.summary();
    let server_error = |source| Error::Server {
        name: name.to_owned(),
        what: what.clone(),
        notes: notes.to_vec(),
        source: Box::new(source),
    };
    progress("connecting");
    let connection = connector.connect_reporting(name, parameters, progress).await.map_err(server_error)?;
    progress("listing its tools");
    match connection.list_tools().await {
        Ok(tools) => {
            let (tools, for_apps): (Vec<_>, Vec<_>) = tools.into_iter().partition(is_for_code);
            let for_apps = for_apps.into_iter().map(|tool| tool.name.into_owned()).collect();
            let annotations = tools.iter().map(|tool| (tool.name.to_string(), annotations(tool))).collect();
            let (others, notes) = others(&connection).await;
            Ok(ServerLists {
                tools: tools.into_iter().map(to_codegen).collect(),
                annotations,
                for_apps,
                others,
                notes,
                connection,
            })
        }
        Err(error) => {
            connection.close().await;
            Err(server_error(error))
        }
    }
}

/// A server's hints on a tool, for those who decide about its calls.
fn annotations(tool: &ServerTool) -> ToolAnnotations {
    let Some(hints) = &tool.annotations else { return ToolAnnotations::default() };
    ToolAnnotations {
        read_only: hints.read_only_hint,
        destructive: hints.destructive_hint,
        idempotent: hints.idempotent_hint,
        open_world: hints.open_world_hint,
    }
}

/// Whether code may call a tool, and not the server's own user interface alone.
pub(super) fn is_for_code(tool: &ServerTool) -> bool {
    !is_for_apps(tool.meta.as_ref().and_then(|meta| meta.0.get("ui")))
}

/// Whether a tool with this `_meta.ui` is for apps only. Without `visibility` it is for models too (MCP Apps, SEP-1865).
pub(super) fn is_for_apps(ui: Option<&Value>) -> bool {
    let visibility = ui.and_then(|ui| ui["visibility"].as_array());
    visibility.is_some_and(|visible| !visible.is_empty() && !visible.iter().any(|to| to == "model"))
}

/// The resources and prompts of a server, and notes on what it could not list. Without them its tools can be used all
/// the same.
async fn others(connection: &Connection) -> (ResourcesAndPrompts, Vec<String>) {
    let identity = connection.identity();
    let templates = async { if_declared(identity.has_resources, connection.list_resource_templates()).await };
    let prompts = async { if_declared(identity.has_prompts, connection.list_prompts()).await };
    let (templates, prompts) = tokio::join!(templates, prompts);
    // Some SDKs declare both for every server.
    let templates = match templates {
        Some(Ok(none)) if none.is_empty() && !connection.has_any_resource().await => None,
        templates => templates,
    };
    let prompts = prompts.filter(|listed| !listed.as_ref().is_ok_and(Vec::is_empty));
    let mut notes = Vec::new();
    let resources = listed("resource templates", templates, &mut notes);
    let prompts = listed("prompts", prompts, &mut notes);
    let others = ResourcesAndPrompts {
        resources: resources.map(|templates| templates.into_iter().map(to_template).collect()),
        prompts: prompts.map(|prompts| prompts.into_iter().map(to_prompt).collect()),
    };
    (others, notes)
}

async fn if_declared<T>(
    is_declared: bool,
    listing: impl Future<Output = Result<Vec<T>, mcp_client::Error>>,
) -> Option<Result<Vec<T>, mcp_client::Error>> {
    if is_declared { Some(listing.await) } else { None }
}

/// The list of a server, as far as functions are made of it; `None` if there is nothing.
fn listed<T>(
    items: &str,
    listed: Option<Result<Vec<T>, mcp_client::Error>>,
    notes: &mut Vec<String>,
) -> Option<Vec<T>> {
    let mut listed = listed?.unwrap_or_else(|error| {
        notes.push(format!("its {items} are left out: {}", describe(&error)));
        Vec::new()
    });
    if listed.len() > FUNCTIONS_MAX {
        notes.push(format!(
            "{} of its {items} have no function: they are too many",
            listed.len() - FUNCTIONS_MAX
        ));
        listed.truncate(FUNCTIONS_MAX);
    }
    Some(listed)
}

fn to_template(template: mcp_client::ResourceTemplate) -> codegen::ResourceTemplate {
    let mcp_client::ResourceTemplate { uri_template, name, title, description, .. } = template;
    codegen::ResourceTemplate { uri_template, name, title, description }
}

fn to_prompt(prompt: mcp_client::Prompt) -> codegen::Prompt {
    let arguments = prompt.arguments.unwrap_or_default().into_iter().map(|argument| PromptArgument {
        description: argument.description.or(argument.title),
        is_required: argument.required == Some(true),
        name: argument.name,
    });
    let name = prompt.name;
    let title = prompt.title;
    let description = prompt.description;
    codegen::Prompt { name, title, description, arguments: arguments.collect() }
}

/// A note about the tools that were left out, if any.
pub(super) fn left_out<'n>(for_apps: impl IntoIterator<Item = &'n String>) -> Option<String> {
    let names: Vec<_> = for_apps.into_iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| {
        format!(
            "tools left out, since they are for the server's own user interface, not for models: {}",
            names.join(", ")
        )
    })
}

/// The number of templates and prompts with functions, and the way to import them; empty if there are none beside tools.
pub(super) fn summary(server: &str, package: &Package, others: &ResourcesAndPrompts) -> String {
    let has_tools = !package.modules.is_empty();
    if package.others.is_empty() || has_tools && others.is_blank() {
        return String::new();
    }
    let modules: Vec<_> = package.others.iter().map(|module| module.name.as_str()).collect();
    format!("{} (`from mcptools.{server} import {}`)", others.summary(), modules.join(", "))
}

/// Warnings about parts of the schemas that the generated code does not express. They are in the server's words.
pub(super) fn warnings(package: &Package) -> Vec<String> {
    let tools = package.modules.iter().map(|module| (&module.tool, &module.degraded));
    let others = package.others.iter().map(|module| (&module.name, &module.degraded));
    let spots = tools.chain(others).flat_map(|(name, spots)| spots.iter().map(move |spot| (name, spot)));
    spots.map(|(name, spot)| one_line(&format!("{name} ({}): {}", spot.path, spot.what))).collect()
}

pub(super) fn to_codegen(tool: ServerTool) -> Tool {
    Tool {
        name: tool.name.into_owned(),
        title: tool.title.or_else(|| tool.annotations?.title),
        description: tool.description.map(Cow::into_owned),
        input_schema: Arc::unwrap_or_clone(tool.input_schema),
        output_schema: tool.output_schema.map(Arc::unwrap_or_clone),
        observed: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_warning_is_one_line_without_control_characters() {
        let schema = json!({"properties": {"a": {"$ref": "x\u{1b}[2J\n\u{7}y"}}});
        let tool = Tool {
            name: "t".to_owned(),
            title: None,
            description: None,
            input_schema: schema.as_object().cloned().unwrap_or_default(),
            output_schema: None,
            observed: None,
        };
        let server = codegen::Server { name: "demo".to_owned(), description: None };
        let expected = "t (input/a): `$ref` to `x y`, which is not here; left as Any";
        assert_eq!(warnings(&codegen::generate(&server, &[tool])), [expected]);
    }
}
