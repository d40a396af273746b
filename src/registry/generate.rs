//! Lists the tools of a server, and reports on the package generated from them.

use std::collections::{BTreeMap, BTreeSet};

use super::Error;
use crate::approval::ToolAnnotations;
use crate::codegen::{self, Package, Tool};
use crate::mcp_client::{self, Connection, Connector, ServerParameters, Tell};

/// The tools that a server has listed.
pub(super) struct Listed {
    pub(super) tools: Vec<Tool>,
    /// By the tools' names.
    pub(super) annotations: BTreeMap<String, ToolAnnotations>,
    /// The names of the tools for apps only, which are left out.
    pub(super) for_apps: BTreeSet<String>,
    /// Still open.
    pub(super) connection: Connection,
}

/// Connects to a server and lists its tools.
pub(super) async fn listed_by(
    connector: &Connector,
    name: &str,
    parameters: &ServerParameters,
    notes: &[String],
    tell: Tell<'_>,
) -> Result<Listed, Error> {
    let what = parameters.summary();
    let server_error = |source| Error::Server {
        name: name.to_owned(),
        what: what.clone(),
        notes: notes.to_vec(),
        source: Box::new(source),
    };
    tell("connecting");
    let connection = connector.connect_reporting(name, parameters, tell).await.map_err(server_error)?;
    tell("listing its tools");
    match connection.list_tools().await {
        Ok(tools) => {
            let (for_apps, tools): (Vec<_>, Vec<_>) = tools.into_iter().partition(|tool| tool.is_for_apps);
            let for_apps = for_apps.into_iter().map(|tool| tool.name).collect();
            let annotations = tools.iter().map(|tool| (tool.name.clone(), tool.annotations)).collect();
            Ok(Listed {
                tools: tools.into_iter().map(to_codegen).collect(),
                annotations,
                for_apps,
                connection,
            })
        }
        Err(error) => {
            connection.close().await;
            Err(server_error(error))
        }
    }
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

/// Warnings about parts of the schemas that the generated code does not express.
pub(super) fn warnings(package: &Package) -> Vec<String> {
    let of_module = |module: &codegen::Module| {
        let of_spot = |spot: &codegen::Degradation| format!("{} ({}): {}", module.tool, spot.path, spot.what);
        module.degraded.iter().map(of_spot).collect::<Vec<_>>()
    };
    package.modules.iter().flat_map(of_module).collect()
}

pub(super) fn to_codegen(tool: mcp_client::Tool) -> Tool {
    Tool {
        name: tool.name,
        title: tool.title,
        description: tool.description,
        input_schema: tool.input_schema,
        output_schema: tool.output_schema,
        observed: None,
    }
}
