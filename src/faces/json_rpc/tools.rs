//! Requests about tools, not about a session: registries, generated packages, tool servers and their clients.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::options::{policy, set};
use super::requests::RpcRequests;
use super::table::NumberedTable;
use super::wire::{RpcFailure, WireSeconds};
use crate::config::{Config, Settings, connector_at};
use crate::faces::doctor;
use crate::ground::env::{ProcessEnvironment, Variables};
use crate::tools::registry::{ApigenSource, Registry, apigen, generate_mcp_sources};
use crate::tools::tool_server::{ApprovalClient, ToolRunner, ToolServer, ToolServerBuilder};
use ipybox_codegen as codegen;

pub(super) struct RpcTools {
    registries: NumberedTable<Registry>,
    servers: NumberedTable<Arc<ToolServer>>,
    clients: NumberedTable<Arc<Mutex<Option<ApprovalClient>>>>,
    requests: Arc<RpcRequests>,
}

/// The place of the other program, and its environment.
#[derive(Deserialize)]
pub(super) struct ProgramPlace {
    directory: PathBuf,
    environment: ProcessEnvironment,
    state_dir: Option<PathBuf>,
    connect_timeout: Option<WireSeconds>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NumberParams {
    number: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenRegistry {
    number: u64,
    place: ProgramPlace,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GenerateParams {
    place: ProgramPlace,
    server_name: String,
    server_params: Value,
    root_dir: PathBuf,
    registry: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApigenParams {
    place: ProgramPlace,
    server_name: String,
    root_dir: PathBuf,
    server_params: Option<Map<String, Value>>,
    tools: Option<PathBuf>,
    #[serde(default)]
    results: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    is_async: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DoctorParams {
    place: ProgramPlace,
    python: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartServerParams {
    number: u64,
    place: ProgramPlace,
    host: String,
    port: u16,
    approval_required: bool,
    approval_policy: Option<String>,
    approval_timeout: WireSeconds,
    token: Option<String>,
    host_token: Option<String>,
}

/// A tool server that is somewhere, and its tokens as far as they are known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerPlace {
    server_name: String,
    host: String,
    port: u16,
    token: Option<String>,
    host_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallParams {
    at: ServerPlace,
    tool_name: String,
    tool_args: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegisterToolsParams {
    at: ServerPlace,
    server_params: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectParams {
    number: u64,
    host: String,
    port: u16,
    host_token: String,
}

impl ProgramPlace {
    fn settings(self) -> Settings {
        let mut settings = Settings {
            workspace: self.directory,
            state_dir: self.state_dir,
            environment: Some(self.environment),
            ..Settings::default()
        };
        if let Some(timeout) = self.connect_timeout {
            settings.tool_server.connect_timeout = timeout.0;
        }
        settings
    }

    fn config(self) -> Result<Config, RpcFailure> {
        Config::new(self.settings()).map_err(|error| RpcFailure::failed("settings", &error))
    }
}

impl ServerPlace {
    fn runner(self) -> ToolRunner {
        let runner = ToolRunner::new(self.server_name).host(self.host).port(self.port);
        let runner = runner.token(self.token.unwrap_or_default());
        runner.host_token(self.host_token.unwrap_or_default())
    }
}

impl RpcTools {
    pub(super) fn new(requests: Arc<RpcRequests>) -> Self {
        Self {
            registries: NumberedTable::new("registry"),
            servers: NumberedTable::new("tool server"),
            clients: NumberedTable::new("approval client"),
            requests,
        }
    }

    /// A registry in memory.
    pub(super) fn open_registry(&self, open: OpenRegistry) -> Result<Value, RpcFailure> {
        let opening = self.registries.begin(open.number)?;
        opening.put(Registry::in_memory(open.place.config()?.connector()));
        Ok(Value::Null)
    }

    pub(super) fn close_registry(&self, NumberParams { number }: NumberParams) -> Result<Value, RpcFailure> {
        self.registries.take(number);
        Ok(Value::Null)
    }

    pub(super) fn registry(&self, number: u64) -> Result<Registry, RpcFailure> {
        self.registries.get(number)
    }

    /// Without a registry, the server is registered for the directories from which code can import its package.
    pub(super) async fn generate_mcp_sources(&self, generate: GenerateParams) -> Result<Value, RpcFailure> {
        let GenerateParams { place, server_name, server_params, root_dir, registry } = generate;
        if let Some(number) = registry {
            let registry = self.registries.get(number)?;
            return Ok(json!(
                generate_mcp_sources(&registry, &server_name, &server_params, &root_dir).await?
            ));
        }
        let config = place.config()?;
        let registry_of = |directory: &Path| {
            let state = config.create_state_dir_of(directory);
            let state = state.map_err(|error| RpcFailure::failed("settings", &error))?;
            Ok::<_, RpcFailure>(Registry::in_directory(&state, config.connector()))
        };
        let (parent, root) = import_directories(&root_dir, config.workspace());
        let registry = registry_of(&parent)?;
        let modules = generate_mcp_sources(&registry, &server_name, &server_params, &root_dir).await?;
        if root != parent {
            let other = registry_of(&root)?;
            let copying = tokio::task::spawn_blocking(move || registry.copy_to(&other, &server_name));
            copying.await.map_err(|error| RpcFailure::failed("generate", &error))??;
        }
        Ok(json!(modules))
    }

    pub(super) async fn apigen(&self, params: ApigenParams) -> Result<Value, RpcFailure> {
        let ApigenParams { place, server_name, root_dir, server_params, tools, results, is_async } = params;
        let source = match (server_params, tools) {
            (Some(parameters), None) => ApigenSource::Server(parameters),
            (None, Some(file)) => ApigenSource::ToolsFile(file),
            _ => {
                let message = "give either `server_params` or `tools`".to_owned();
                return Err(RpcFailure::new("settings", message));
            }
        };
        let form = if is_async { codegen::RunForm::Async } else { codegen::RunForm::Sync };
        let options = codegen::Options::default().form(form);
        let variables = Variables::of(Some(&place.environment), &place.directory);
        let report = apigen(&server_name, &root_dir, source, &results, options, variables).await?;
        Ok(json!({"modules": report.modules, "warnings": report.warnings}))
    }

    pub(super) async fn doctor(
        &self,
        DoctorParams { place, python }: DoctorParams,
    ) -> Result<Value, RpcFailure> {
        let mut settings = place.settings();
        settings.kernel.python = python;
        let report = doctor::examine(&settings).await;
        let text = report.to_string();
        let report = serde_json::to_value(report).map_err(|error| RpcFailure::of("invalid", &error))?;
        Ok(json!({"report": report, "text": text}))
    }

    pub(super) async fn start_server(&self, start: StartServerParams) -> Result<Value, RpcFailure> {
        let opening = self.servers.begin(start.number)?;
        let StartServerParams { place, host, port, approval_required, .. } = start;
        let variables = Variables::of(Some(&place.environment), &place.directory);
        let mut builder = ToolServer::builder()
            .connector(connector_at(place.directory, Arc::new(variables)))
            .host(host)
            .port(port)
            .approval_required(approval_required)
            .approval_timeout(start.approval_timeout.0);
        builder = set(builder, place.connect_timeout, |builder, time| builder.connect_timeout(time.0));
        builder = set(builder, start.token, ToolServerBuilder::token);
        builder = set(builder, start.host_token, ToolServerBuilder::host_token);
        if let Some(text) = start.approval_policy {
            builder = builder.approval_policy(policy(&text)?);
        }
        let server = builder.start().await?;
        let token = server.token().to_owned();
        let host_token = server.host_token().to_owned();
        let port = server.address().port();
        opening.put(Arc::new(server));
        Ok(json!({"port": port, "token": token, "host_token": host_token}))
    }

    pub(super) async fn join_server(
        &self,
        NumberParams { number }: NumberParams,
    ) -> Result<Value, RpcFailure> {
        self.servers.get(number)?.join().await;
        Ok(Value::Null)
    }

    pub(super) async fn stop_server(
        &self,
        NumberParams { number }: NumberParams,
    ) -> Result<Value, RpcFailure> {
        if let Some(server) = self.servers.take(number) {
            server.stop().await;
        }
        Ok(Value::Null)
    }

    pub(super) async fn run(
        &self,
        CallParams { at, tool_name, tool_args }: CallParams,
    ) -> Result<Value, RpcFailure> {
        let done = at.runner().call(&tool_name, &tool_args).await?;
        Ok(json!({"value": done.value, "content": done.content}))
    }

    pub(super) async fn register(
        &self,
        RegisterToolsParams { at, server_params }: RegisterToolsParams,
    ) -> Result<Value, RpcFailure> {
        at.runner().register(&server_params).await?;
        Ok(Value::Null)
    }

    pub(super) async fn reset(&self, at: ServerPlace) -> Result<Value, RpcFailure> {
        at.runner().reset().await?;
        Ok(Value::Null)
    }

    pub(super) async fn connect(&self, connect: ConnectParams) -> Result<Value, RpcFailure> {
        let ConnectParams { number, host, port, host_token } = connect;
        let opening = self.clients.begin(number)?;
        let client = ApprovalClient::connect(&host, port, &host_token).await?;
        opening.put(Arc::new(Mutex::new(Some(client))));
        Ok(Value::Null)
    }

    /// The next approval request of a client; `null` once the tool server has stopped.
    pub(super) async fn next(&self, NumberParams { number }: NumberParams) -> Result<Value, RpcFailure> {
        let client = self.clients.get(number)?;
        let mut client = client.lock().await;
        let next = match client.as_mut() {
            Some(client) => client.next().await,
            None => None,
        };
        next.transpose()?.map_or(Ok(Value::Null), |request| Ok(self.requests.hand_over(request)))
    }

    pub(super) async fn disconnect(
        &self,
        NumberParams { number }: NumberParams,
    ) -> Result<Value, RpcFailure> {
        if let Some(client) = self.clients.take(number)
            && let Some(client) = client.lock().await.take()
        {
            client.disconnect().await;
        }
        Ok(Value::Null)
    }

    pub(super) async fn stop_all(&self) {
        drop(self.registries.take_all());
        drop(self.clients.take_all());
        let servers = self.servers.take_all();
        futures::future::join_all(servers.iter().map(|server| server.stop())).await;
    }
}

/// The directories on `sys.path` from which code can import the packages in `root_dir`: its parent (`mcptools.server`),
/// and itself (`server`). Where it is the current directory, nothing but that.
fn import_directories(root_dir: &Path, directory: &Path) -> (PathBuf, PathBuf) {
    let root = directory.join(root_dir);
    let root = root.canonicalize().unwrap_or(root);
    match root.parent() {
        Some(parent) if root != directory => (parent.to_owned(), root),
        _ => (root.clone(), root),
    }
}
