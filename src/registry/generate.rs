//! From a connected server, or its listed tools, to the generated package and what is to be said about it.

use std::collections::{BTreeMap, BTreeSet};

use super::Error;
use crate::approval::ToolAnnotations;
use crate::codegen::{self, Fingerprint, Package, Tool};
use crate::mcp_client::{self, Connection, Connector, ServerParameters, Tell};
use crate::text::one_line;

/// What a server tells of its tools.
pub(super) struct Listed {
    pub(super) tools: Vec<Tool>,
    /// By the tools' names.
    pub(super) annotations: BTreeMap<String, ToolAnnotations>,
    /// The names of those that are for apps only; they are left out.
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
    let connection = connector.connect_telling(name, parameters, tell).await.map_err(server_error)?;
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

/// Which tools were left out, if any.
pub(super) fn left_out<'n>(for_apps: impl IntoIterator<Item = &'n String>) -> Option<String> {
    let names: Vec<_> = for_apps.into_iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| {
        format!(
            "tools left out, since they are for the server's own user interface, not for models: {}",
            names.join(", ")
        )
    })
}

/// What the generated code does not say, spot by spot.
pub(super) fn warnings(package: &Package) -> Vec<String> {
    let of_module = |module: &codegen::Module| {
        let of_spot = |spot: &codegen::Degradation| format!("{} ({}): {}", module.tool, spot.path, spot.what);
        module.degraded.iter().map(of_spot).collect::<Vec<_>>()
    };
    package.modules.iter().flat_map(of_module).collect()
}

/// What has become of the tools, one sentence for each kind of change.
pub(super) fn drift(before: &[Fingerprint], after: &[Fingerprint]) -> Vec<String> {
    let drift = codegen::drift(before, after);
    let changed = |is_so: fn(&codegen::Change) -> bool| {
        names(drift.changed.iter().filter(|change| is_so(change)).map(|change| &change.tool))
    };
    let described = changed(|change| change.is_description_changed);
    let schemas = changed(|change| change.is_schema_changed);
    let (added, removed) = (names(&drift.added), names(&drift.removed));
    [("Added", added), ("Removed", removed), ("Changed schema", schemas)]
        .into_iter()
        .filter(|(_, tools)| !tools.is_empty())
        .map(|(what, tools)| format!("{what}: {tools}"))
        .chain((!described.is_empty()).then(|| {
            format!(
                "Warning: the description of known tools has changed, read it again before you trust it: {}",
                described
            )
        }))
        .collect()
}

/// The names as the server gives them, on one line.
fn names<'a>(tools: impl IntoIterator<Item = &'a String>) -> String {
    tools.into_iter().map(|name| one_line(name)).collect::<Vec<_>>().join(", ")
}

fn to_codegen(tool: mcp_client::Tool) -> Tool {
    Tool {
        name: tool.name,
        title: tool.title,
        description: tool.description,
        input_schema: tool.input_schema,
        output_schema: tool.output_schema,
        observed: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(tool: &str, schema: &str, description: &str) -> Fingerprint {
        let [tool, schema, description] = [tool, schema, description].map(str::to_owned);
        Fingerprint { tool, schema, description }
    }

    #[test]
    fn each_kind_of_drift_is_told() {
        let before = [fingerprint("a", "1", "1"), fingerprint("b", "1", "1"), fingerprint("c", "1", "1")];
        let after = [fingerprint("a", "2", "1"), fingerprint("b", "1", "2"), fingerprint("d", "1", "1")];
        let told = drift(&before, &after);
        assert_eq!(told[..3], ["Added: d", "Removed: c", "Changed schema: a"]);
        assert!(told[3].starts_with("Warning: ") && told[3].ends_with(": b"), "{told:?}");
        assert!(drift(&before, &before).is_empty());
    }
}
