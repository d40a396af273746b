//! A stateful IPython kernel with programmatic MCP tool calling for AI agents.
//!
//! Code that an agent writes runs in a kernel that keeps its variables, and calls the tools of MCP servers as typed Python
//! functions. The application registers the servers, decides about each call, and gets the output.
//!
//! ```no_run
//! use ipybox::{CodeExecutionEvent, CodeExecutor};
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let executor = CodeExecutor::start().await?;
//! let server = json!({"command": "uvx", "args": ["mcp-server-fetch"]});
//! executor.register_mcp_server("fetch", &server).await?;
//!
//! let mut execution = executor.stream(
//!     "from mcptools.fetch import fetch\n\
//!      print(len(fetch.run(url='https://example.com')))",
//! );
//! while let Some(event) = execution.next().await {
//!     match event? {
//!         CodeExecutionEvent::ApprovalRequest(request) => {
//!             println!("The code calls {request}");
//!             request.accept();
//!         }
//!         CodeExecutionEvent::Result(result) => println!("{}", result.text.unwrap_or_default()),
//!         _ => {}
//!     }
//! }
//! executor.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! It needs Python 3.10 or newer, and makes the Python environment itself. **Without a sandbox the kernel has
//! the rights of your program**: approval is about tools, not about what Python does.
//! [`CodeExecutorBuilder::sandbox`] puts it into one, which needs the program `ipybox` installed too; see
//! `docs/sandbox.md`.
//!
//! # What to use for what
//!
//! | to | use |
//! |---|---|
//! | run code and agree to what it calls | [`CodeExecutor::execute`], with a [`Code`] for its timeout and limits |
//! | decide about each call, see output as it comes | [`CodeExecutor::stream`]: a [`CodeExecution`] of [`CodeExecutionEvent`]s |
//! | choose directories, interpreter, limits, timeouts | [`CodeExecutor::builder`] |
//! | answer an approval request | [`ApprovalRequest`], with its [`Target`] and [`ToolAnnotations`] |
//! | decide by rules | [`ApprovalPolicy`], given to [`CodeExecutorBuilder::approval_policy`] |
//! | make the tools of an MCP server callable | [`CodeExecutor::register_mcp_server`]; [`generate_mcp_sources`], which fills a [`Registry`] |
//! | write a package without a session | [`apigen`]; [`codegen`] alone is pure |
//! | know why code has no result | [`CodeExecutionError`]; [`describe`] puts errors with their causes in words |
//! | run code without tools | [`KernelClient`] |
//! | keep a record | [`CodeExecutorBuilder::audit`] with [`AuditSettings`] |
//! | run a recording again | [`replay`] with [`ReplayOptions`] |
//! | know whether a session would work on this machine | [`doctor::examine`] |
//! | be the MCP server `ipybox` | [`serve_stdio`] with a [`Config`] made of [`Settings`] |
//!
//! The user guide is in `docs/`, with `docs/rust.md` to begin with; `examples/` has programs to run.
//!
//! # Features
//!
//! `cli`, on by default, is for the program `ipybox` alone. Turn it off for a library: `default-features = false`.
//!
//! `kubernetes`, on by default too, has kernels run in sandboxes that are claimed from a cluster.
//!
//! `views`, on by default too, has MCP clients show tables and plots (MCP Apps), and saves plots as pages: 2 MB of JavaScript.
//!
//! `otel`, on by default too, has sessions make spans and metrics by the global providers of the crate `opentelemetry`; see
//! `docs/telemetry.md`.
//!
//! # What may change
//!
//! The version is 0.1: a minor version may change anything here, and `CHANGELOG.md` lists the changes.
//! `#[non_exhaustive]` types may grow with any version. The texts of errors and notes, and the inside of
//! generated modules, are for people and models: programs should not parse them. Log output is [`tracing`]
//! events, whose texts and fields may change.
//!
//! # The walks of the data
//!
//! ```text
//! a call          MCP client → mcp_server → session → kernel → output → session → mcp_server → MCP client
//! a call back     code in the kernel → tool_server → approval → servers → mcp_client → MCP server
//! a registration  mcp_server → session → approval → registry → mcp_client → codegen → files in mcptools/<name>/
//! ```
//!
//! `ARCHITECTURE.md` explains them, and shows all rooms. The library is what the `ipybox` binary is made of.

mod approval;
mod config;
mod connections;
mod faces;
mod ground;
#[cfg(doctest)]
mod guide;
mod kernels;
mod session;
mod tools;

#[doc(hidden)]
pub use faces::actions::{ActionOptions, KnownAction, KnownActionError, KnownActions, ShownAction};
pub use faces::doctor;
#[doc(hidden)]
pub use faces::{json_rpc, lasting};
pub use ground::env;
#[doc(hidden)]
pub use ground::telemetry;
pub use ipybox_codegen as codegen;

pub use approval::provenance::{Found, Label, Origin, Provenance, UnknownLabel};
#[doc(hidden)]
pub use approval::provenance::{ProvenanceMemory, ServerLabels};
pub use approval::{
    ApprovalBatch, ApprovalEffect, ApprovalPolicy, ApprovalRequest, AuditContents, AuditError, GivenGrant,
    Grant, GrantLife, GrantPattern, OutsideGrant, PolicyError as ApprovalPolicyError, Target,
    ToolAnnotations,
};
#[doc(hidden)]
pub use approval::{
    AuditFilter, AuditReport, AuditReview, CommandLog, NoAuditHead, SettleAction, SettledFiles,
    rfc3339_seconds,
};
pub use config::{
    ApprovalMode, ApprovalSettings, AuditSettings, ChangesMode, Config, Error as ConfigError, Images,
    KernelSettings, NotebookSettings, RemoteHeader, RemoteHeaderValue, RemoteHub, RemotePool, RemoteSettings,
    ResourceLinks, SandboxBackend, SandboxSettings, SessionLimits, Settings, ToolServerSettings,
    UnusableNotebook,
};
#[doc(hidden)]
pub use config::{WorkspacePolicy, state_directory};
pub use faces::detached_actions::{
    ActionTeam, ExportActionError, ExportActionOptions, KernelActionError, export_action, published_names,
};
pub use faces::library::{
    Code, CodeExecution, CodeExecutionChunk, CodeExecutionError, CodeExecutionEvent, CodeExecutionResult,
    CodeExecutor, CodeExecutorBuilder, KernelClient, KernelClientBuilder, Truncated,
};
pub use faces::mcp_server::{
    Error as ServeError, ServeActionsError, ServeActionsOptions, serve_actions, serve_stdio,
};
#[doc(hidden)]
pub use faces::people::page;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use faces::pod::{PodSettings, run_pod};
pub use faces::replay::{
    CellDifference, PlayError, PlayOptions, ReplayError, ReplayOptions, ReplayReport, ReplayedCell,
    UpdateError, play, replay, replay_until,
};
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use ground::process::raise_descriptors;
#[doc(hidden)]
pub use ground::process::{LimitUse, remove_user_group, user_group};
pub use ground::text::describe;
#[doc(hidden)]
pub use ground::text::{Emphasis, one_line, printed};
#[doc(hidden)]
pub use ground::web::http_client;
#[doc(hidden)]
pub use kernels::changes::{
    AppliedChanges, ApplyDoubts, ChangeMark, ChangedCopies, ChangedCopy, CopyAudit, CopySummary, FileChange,
    FileChangeKind, FileChanges, NoChangedCopy, RefusedChange,
};
#[cfg(feature = "kubernetes")]
#[doc(hidden)]
pub use kernels::claims::{
    ClaimLabels, LabelledClaim, LabelledClaimSettings, LabelledClaims, LabelledSandbox,
};
#[doc(hidden)]
pub use kernels::kernel::{sandbox_exec, sandbox_gateway};
pub use kernels::sandbox::{
    PathProblem as SandboxPathProblem, PolicyProblem as SandboxPolicyProblem, SandboxPolicyError,
};
pub use session::{KernelState, StartError};
#[doc(hidden)]
pub use tools::import::{Import, ImportError, ImportEvent, ImportLeft, ImportServer, ImportState, Importer};
pub use tools::recording::{PlayMatch, RecordingError, ReplayMode, UnreadableRecording};
pub use tools::registry::{
    ApigenError, ApigenReport, ApigenSource, GenerateError, RecordedServerError, Registry, apigen,
    generate_mcp_sources,
};
#[doc(hidden)]
pub use tools::registry::{
    KnownServer, KnownServerError, KnownServers, LoginState, OpenPage, SearchError, SearchIndex, search,
};
#[doc(hidden)]
pub use tools::servers::SearchQuery;
pub use tools::tool_server::{
    ApprovalClient, ApprovalClientError, Error as ToolServerError, ToolResult, ToolRunner, ToolRunnerError,
    ToolServer, ToolServerBuilder,
};
