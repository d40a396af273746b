//! One server as a client writes it → what `entry` reads. Pure, but for `envFile`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::ConfigurationFile;
use super::KnownClient;
use super::entry::{DISABLED, ENABLED};
use super::placeholders::{self, VscodeInputs};
use crate::connections::mcp_client::HttpTransport;
use crate::ground::env::dotenv_variables;
use crate::ground::files::small;
use crate::ground::text::one_line;

/// The setting that the entry of a server is adapted to.
pub(super) struct EntrySetting<'a> {
    pub(super) place: &'a ConfigurationFile,
    pub(super) workspace: &'a Path,
    pub(super) home: Option<&'a Path>,
    /// The inputs that VS Code asks its user for.
    pub(super) inputs: &'a VscodeInputs,
}

/// An entry that is adapted.
#[derive(Default)]
pub(super) struct AdaptedEntry {
    pub(super) entry: Map<String, Value>,
    /// Variables of an `envFile`, which are literal.
    pub(super) file_variables: Vec<(String, String)>,
    /// That file.
    pub(super) env_file: Option<PathBuf>,
    /// Parts that were reinterpreted, a sentence each.
    pub(super) notes: Vec<String>,
}

/// Adapts an entry.
///
/// # Errors
/// Why it cannot be taken, as a text.
pub(super) fn adapt(entry: &Map<String, Value>, setting: &EntrySetting<'_>) -> Result<AdaptedEntry, String> {
    let mut adapted = AdaptedEntry { entry: entry.clone(), ..AdaptedEntry::default() };
    let client = setting.place.client;
    refuse_disabled(&adapted.entry)?;
    adapted.entry.retain(|key, _| key != "name" && ![DISABLED, ENABLED].concat().contains(&key.as_str()));
    // Behind a sandbox this lets the server read what code has written: only the user says that, when registering.
    if adapted.entry.remove("trust_workspace").is_some() {
        adapted.notes.push("Ignored: `trust_workspace`: give it to `register_mcp_server`.".to_owned());
    }
    if client.is_some_and(KnownClient::counts_milliseconds)
        && let Some(timeout) = adapted.entry.remove("timeout")
    {
        adapted.entry.entry("startup_timeout_ms").or_insert(timeout);
    }
    // Clients pass on what is not text as it is written.
    if let Some(Value::Array(args)) = adapted.entry.get_mut("args") {
        for argument in args.iter_mut().filter(|argument| argument.is_number() || argument.is_boolean()) {
            *argument = json!(argument.to_string());
        }
    }
    take_env_file(&mut adapted, setting)?;
    let is_program = ["command", "cmd"].iter().any(|key| adapted.entry.contains_key(*key));
    let filling = placeholders::PlaceholderFilling {
        workspace: setting.workspace,
        is_program,
        has_bare_names: client.is_some_and(KnownClient::fills_bare_names),
        inputs: setting.inputs,
    };
    filling.translate(&mut adapted.entry, &mut adapted.notes)?;
    decide_transport(&mut adapted);
    Ok(adapted)
}

fn refuse_disabled(entry: &Map<String, Value>) -> Result<(), String> {
    let is = |key: &str, value: bool| match entry.get(key) {
        Some(Value::String(text)) => text.trim().to_lowercase() == value.to_string(),
        other => other.and_then(Value::as_bool) == Some(value),
    };
    if DISABLED.iter().any(|key| is(key, true)) || ENABLED.iter().any(|key| is(key, false)) {
        return Err("it is disabled there".to_owned());
    }
    Ok(())
}

/// Reads the variables of `envFile`; those of `env` win.
fn take_env_file(adapted: &mut AdaptedEntry, setting: &EntrySetting<'_>) -> Result<(), String> {
    let named = ["envFile", "env_file"].iter().find_map(|key| adapted.entry.remove(*key));
    let Some(Value::String(named)) = named else { return Ok(()) };
    let shown = one_line(&named);
    let failed = |why: String| format!("its `envFile`, `{shown}`, cannot be read: {why}");
    let home = setting.home.map(Path::to_string_lossy).unwrap_or_default();
    let text = named
        .replace("${workspaceFolder}", &setting.workspace.to_string_lossy())
        .replace("${userHome}", &home)
        .replace("${env:HOME}", &home);
    if text.contains("${") {
        return Err(failed("ipybox cannot fill its placeholder".to_owned()));
    }
    let path = match text.strip_prefix("~/") {
        Some(rest) => Path::new(home.as_ref()).join(rest),
        None => setting.workspace.join(text),
    };
    let is_of_workspace = setting.place.path.starts_with(setting.workspace);
    if is_of_workspace && !path.starts_with(setting.workspace) {
        // Otherwise a file that came with the workspace could hand any file of the user to a server.
        return Err(failed("it is not in the workspace, and the file that names it is".to_owned()));
    }
    let content = small::read_in(setting.workspace, &path, small::BY_HAND);
    let content = content.map_err(|error| failed(error.to_string()))?;
    let mut variables = dotenv_variables(&content);
    adapted.notes.push(format!("`envFile` was read now: {} variables.", variables.len()));
    // They are literal, and a placeholder would be filled.
    for (name, _) in variables.extract_if(.., |(_, value)| value.contains("${")) {
        let name = one_line(&name);
        adapted.notes.push(format!("Ignored: `{name}` of `envFile`, whose value has `${{`."));
    }
    adapted.file_variables = variables;
    adapted.env_file = Some(path);
    Ok(())
}

/// Clients try Streamable HTTP first where nothing says which transport a server has.
fn decide_transport(adapted: &mut AdaptedEntry) {
    let says = |value: &Value| value.as_str().is_none_or(|text| !["", "url", "mcp"].contains(&text.trim()));
    let has = |key: &str| adapted.entry.get(key).is_some_and(|value| !value.is_null() && says(value));
    if ["type", "transport", "transportType", "transport_type", "httpUrl", "sseUrl"]
        .iter()
        .any(|key| has(key))
    {
        return;
    }
    let is_program = ["command", "cmd"].iter().any(|key| has(key));
    let url = ["url", "serverUrl", "server_url", "baseUrl", "base_url"]
        .iter()
        .find_map(|key| adapted.entry.get(*key)?.as_str())
        .filter(|url| !is_program && !url.trim().is_empty());
    if url.is_some_and(|url| HttpTransport::from_url(url).is_none()) {
        adapted.entry.insert("type".to_owned(), json!("streamable_http"));
        adapted.notes.push("The transport is taken to be `streamable_http`.".to_owned());
    }
}
