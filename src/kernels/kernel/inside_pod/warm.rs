//! The template of a pod: made before a session comes, so that its kernels begin in milliseconds.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::super::fork::SilentFork;
use super::super::launch::{KernelLaunch, ShellCommands};
use super::super::limits::KernelLimits;
use super::super::template::{TemplateFork, TemplateProcess};
use super::super::{Kernel, KernelGround};
use crate::ground::env::{IPYBOX_TOOL_SERVER, IPYBOX_TOOL_SERVER_TOKEN};
use crate::ground::text::describe;
use crate::kernels::sandbox::KernelProgram;

/// The time that the kernel may take that the template is forked from.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A template, if there is one.
#[derive(Default)]
pub(super) struct WarmTemplate(Mutex<Option<TemplateProcess>>);

impl WarmTemplate {
    /// A template of kernels with these variables and what a session wants by default. There is none if it cannot be made.
    pub(super) async fn make(mut program: KernelProgram) -> Self {
        // Each kernel gets its own.
        program.environment.insert(IPYBOX_TOOL_SERVER.to_owned(), "127.0.0.1:1".to_owned());
        program.environment.insert(IPYBOX_TOOL_SERVER_TOKEN.to_owned(), String::new());
        let launch = KernelLaunch {
            program,
            limits: KernelLimits::default(),
            default_limits: KernelLimits::default(),
            timeout: START_TIMEOUT,
            shell_commands: ShellCommands::Free,
            has_checkpoints: true,
            has_workspace: false,
            held: std::sync::Arc::default(),
        };
        let begun = Instant::now();
        let made = match Kernel::start(&launch, KernelGround::Beside).await {
            Ok(mut kernel) => {
                let made = TemplateProcess::fork_from(&mut kernel, launch, begun, None).await;
                kernel.kill().await;
                made.map_err(|error| describe(&error).to_string())
            }
            Err(error) => Err(describe(&error).to_string()),
        };
        if let Err(why) = &made {
            tracing::warn!(why, "there is no template of kernels; each is started from scratch");
        }
        Self(Mutex::new(made.ok()))
    }

    /// Forks a kernel that marks its output with `mark`; `None` if it has to be started from scratch.
    pub(super) async fn fork(&self, launch: &KernelLaunch, mark: &str) -> Option<SilentFork> {
        let mut template = self.0.lock().await;
        match template.as_mut()?.fork(launch, mark.to_owned()).await {
            Ok(TemplateFork { fork, report }) => Some(fork.left_alone(report)),
            Err(error) => {
                tracing::info!(why = %describe(&error), "the kernel is started without the template");
                None
            }
        }
    }
}
