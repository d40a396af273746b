//! The options of a session, with the names that they have in the library.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::wire::{RpcFailure, WireSeconds};
use crate::approval::{ApprovalPolicy, AuditContents, SessionFace};
use crate::config::{AuditSettings, ChangesMode, SandboxBackend, SessionLimits, UnusableNotebook};
use crate::faces::library::{CodeExecutorBuilder, KernelClient, KernelClientBuilder};
use crate::ground::env::ProcessEnvironment;
use crate::ground::text::describe;
use crate::tools::registry::Registry;

/// Options of a session. A missing one has the library's default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionOptions {
    /// Whether its code can call tools.
    pub(super) has_tools: bool,
    environment: ProcessEnvironment,
    working_dir: PathBuf,
    python: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    images_dir: Option<PathBuf>,
    #[serde(default)]
    kernel_env: BTreeMap<String, String>,
    kernel_init_timeout: Option<WireSeconds>,
    limit_memory: Option<u64>,
    limit_cpu: Option<f64>,
    limit_processes: Option<u32>,
    limit_disk: Option<u64>,
    undo_memory: Option<u64>,
    #[serde(default)]
    cold_start: bool,
    #[serde(default)]
    branch_files: bool,
    kernel_memory_limit: Option<u64>,
    kernel_max_processes: Option<u32>,
    kernel_max_file_size: Option<u64>,
    tool_server_host: Option<String>,
    tool_server_port: Option<u16>,
    connect_timeout: Option<WireSeconds>,
    registry: Option<u64>,
    approve_tool_calls: Option<bool>,
    #[serde(default)]
    approve_shell_cmds: bool,
    #[serde(default)]
    require_shell_escape: bool,
    #[serde(default)]
    checkpoint: bool,
    kernel_idle_timeout: Option<WireSeconds>,
    kernel_exit_timeout: Option<WireSeconds>,
    /// As `--notebook` has it.
    notebook: Option<String>,
    record: Option<PathBuf>,
    seed: Option<u32>,
    /// As text, in TOML.
    approval_policy: Option<String>,
    #[serde(default, deserialize_with = "present")]
    approval_timeout: Option<WireSeconds>,
    audit: Option<AuditOptions>,
    #[serde(default)]
    sandbox: bool,
    sandbox_config: Option<PathBuf>,
    sandbox_backend: Option<SandboxBackend>,
    changes: Option<ChangesMode>,
    #[serde(default)]
    sandbox_workspace_config: bool,
    #[serde(default)]
    allow_home_workspace: bool,
    #[serde(default)]
    sandbox_install_domains: Vec<String>,
    kernel_hub_url: Option<String>,
    kernel_hub_token: Option<String>,
    kernel_hub_server: Option<String>,
    kernel_hub_user: Option<String>,
    #[serde(default)]
    kernel_hub_options: serde_json::Map<String, serde_json::Value>,
    kernel_pod_url: Option<String>,
    kernel_pod_token: Option<String>,
    kernel_pool: Option<String>,
    kernel_namespace: Option<String>,
    kernel_pool_port: Option<u16>,
    kernel_router_url: Option<String>,
    kernel_router_token: Option<String>,
    kernel_claim_timeout: Option<WireSeconds>,
    kernel_claim_lease: Option<WireSeconds>,
    kernel_gateway_url: Option<String>,
    kernel_gateway_token: Option<String>,
    #[serde(default)]
    kernel_gateway_headers: BTreeMap<String, String>,
    kernel_gateway_ca: Option<PathBuf>,
    kernel_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditOptions {
    file: PathBuf,
    contents: Option<AuditContents>,
    max_bytes: Option<u64>,
}

/// `null` is a value here: a time without end.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<WireSeconds>, D::Error> {
    WireSeconds::deserialize(deserializer).map(Some)
}

impl From<AuditOptions> for AuditSettings {
    fn from(audit: AuditOptions) -> Self {
        let default = Self::default();
        let contents = audit.contents.unwrap_or(default.contents);
        Self { file: Some(audit.file), contents, max_bytes: audit.max_bytes.unwrap_or(default.max_bytes) }
    }
}

/// Calls a builder's method with a value, if there is one.
pub(super) fn set<B, V>(builder: B, value: Option<V>, method: impl FnOnce(B, V) -> B) -> B {
    match value {
        Some(value) => method(builder, value),
        None => builder,
    }
}

impl SessionOptions {
    /// A builder for an executor. `registry_of` finds registries by their numbers.
    pub(super) fn executor(
        mut self,
        registry_of: impl FnOnce(u64) -> Result<Registry, RpcFailure>,
    ) -> Result<CodeExecutorBuilder, RpcFailure> {
        type B = CodeExecutorBuilder;
        let mut builder = CodeExecutorBuilder::with_kernel(self.kernel())
            .held_by(SessionFace::PythonLibrary)
            .approve_shell_cmds(self.approve_shell_cmds)
            .require_shell_escape(self.require_shell_escape)
            .checkpoint(self.checkpoint);
        builder = set(builder, self.kernel_idle_timeout, |builder, time| builder.kernel_idle_timeout(time.0));
        builder = set(builder, self.kernel_exit_timeout, |builder, time| builder.kernel_exit_timeout(time.0));
        builder = set(builder, self.kernel_memory_limit, B::kernel_memory_limit);
        builder = set(builder, self.kernel_max_processes, B::kernel_max_processes);
        builder = set(builder, self.kernel_max_file_size, B::kernel_max_file_size);
        builder = set(builder, self.tool_server_host, B::tool_server_host);
        builder = set(builder, self.tool_server_port, B::tool_server_port);
        builder = set(builder, self.connect_timeout, |builder, time| builder.connect_timeout(time.0));
        builder = set(builder, self.approve_tool_calls, B::approve_tool_calls);
        builder = set(builder, self.approval_timeout, |builder, time| builder.approval_timeout(time.0));
        builder = set(builder, self.audit, |builder, audit| builder.audit(audit.into()));
        builder = set(builder, self.record, B::record);
        builder = set(builder, self.seed, B::seed);
        if let Some(text) = self.notebook {
            let unusable = |error| RpcFailure::new("settings", format!("failed to use `notebook`: {error}"));
            builder = builder.notebook(text.parse().map_err(|error: UnusableNotebook| unusable(error))?);
        }
        if let Some(text) = self.approval_policy {
            builder = builder.approval_policy(policy(&text)?);
        }
        if let Some(number) = self.registry {
            builder = builder.registry(&registry_of(number)?);
        }
        Ok(builder)
    }

    /// A builder for a kernel, with the options that it has without tools too. Takes them out.
    pub(super) fn kernel(&mut self) -> KernelClientBuilder {
        type B = KernelClientBuilder;
        let mut limits = SessionLimits::default();
        (limits.memory, limits.cpu) = (self.limit_memory, self.limit_cpu);
        (limits.processes, limits.disk) = (self.limit_processes, self.limit_disk);
        let mut builder = KernelClient::builder()
            .limits(limits)
            .undo_memory(self.undo_memory.unwrap_or_default())
            .cold_start(self.cold_start)
            .branch_files(self.branch_files)
            .environment(std::mem::take(&mut self.environment))
            .working_dir(std::mem::take(&mut self.working_dir))
            .kernel_env(std::mem::take(&mut self.kernel_env));
        builder = set(builder, self.python.take(), B::python);
        builder = set(builder, self.state_dir.take(), B::state_dir);
        builder = set(builder, self.images_dir.take(), B::images_dir);
        builder = set(builder, self.kernel_init_timeout, |builder, time| builder.kernel_init_timeout(time.0));
        if self.sandbox {
            builder = set(builder.sandbox(true), std::env::current_exe().ok(), B::gateway_program);
            builder = set(builder, self.sandbox_config.take(), B::sandbox_config);
            builder = set(builder, self.sandbox_backend.take(), B::sandbox_backend);
            builder = set(builder, self.changes.take(), B::changes);
            builder = builder.sandbox_workspace_config(self.sandbox_workspace_config);
            builder = builder
                .allow_home_workspace(self.allow_home_workspace)
                .sandbox_install_domains(std::mem::take(&mut self.sandbox_install_domains));
        }
        builder = set(builder, self.kernel_gateway_url.take(), B::kernel_gateway_url);
        builder = set(builder, self.kernel_gateway_token.take(), B::kernel_gateway_token);
        builder = builder.kernel_gateway_headers(std::mem::take(&mut self.kernel_gateway_headers));
        builder = set(builder, self.kernel_gateway_ca.take(), B::kernel_gateway_ca);
        builder = set(builder, self.kernel_hub_url.take(), B::kernel_hub_url);
        builder = set(builder, self.kernel_hub_token.take(), B::kernel_hub_token);
        builder = set(builder, self.kernel_hub_server.take(), B::kernel_hub_server);
        builder = set(builder, self.kernel_hub_user.take(), B::kernel_hub_user);
        builder = builder.kernel_hub_options(std::mem::take(&mut self.kernel_hub_options));
        builder = set(builder, self.kernel_name.take(), B::kernel_name);
        self.pods(builder)
    }

    /// Adds the options for kernels in pods.
    fn pods(&mut self, mut builder: KernelClientBuilder) -> KernelClientBuilder {
        type B = KernelClientBuilder;
        builder = set(builder, self.kernel_pod_url.take(), B::kernel_pod_url);
        builder = set(builder, self.kernel_pod_token.take(), B::kernel_pod_token);
        builder = set(builder, self.kernel_pool.take(), B::kernel_pool);
        builder = set(builder, self.kernel_namespace.take(), B::kernel_namespace);
        builder = set(builder, self.kernel_pool_port, B::kernel_pool_port);
        builder = set(builder, self.kernel_router_url.take(), B::kernel_router_url);
        builder = set(builder, self.kernel_router_token.take(), B::kernel_router_token);
        builder =
            set(builder, self.kernel_claim_timeout, |builder, time| builder.kernel_claim_timeout(time.0));
        set(builder, self.kernel_claim_lease, |builder, time| builder.kernel_claim_lease(time.0))
    }
}

/// Reads an approval policy.
pub(super) fn policy(text: &str) -> Result<ApprovalPolicy, RpcFailure> {
    let unusable =
        |error| RpcFailure::new("settings", format!("failed to use `approval_policy`: {}", describe(&error)));
    ApprovalPolicy::parse(text).map_err(unusable)
}
