//! Kernels in a pod, which the session takes with its first kernel: they are of our own, without the workspace's files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{BranchFailure, Error, KernelSaid, SleepingKernel, awaken, tools_of_branch};
use crate::config::{Config, KernelChoices};
use crate::ground::env;
use crate::ground::text::describe;
use crate::kernels::kernel::{
    self, BranchOrder, HeldLimits, Kernel, KernelGround, KernelLaunch, KernelLimits, PodRest, PodSource,
    PodSourceError, RestingPod, RunningBranch, ShellCommands, TakenPod,
};
use crate::kernels::pod::{PodError, PodLink};
use crate::kernels::sandbox::KernelProgram;
use crate::tools::tool_server::ToolEndpoint;

/// Starts kernels in a pod.
pub(crate) struct PodKernels {
    source: PodSource,
    /// The pod, once it is taken; shared with branches.
    pod: Option<Arc<TakenPod>>,
    /// The pod before it, if that can be woken.
    resting: Option<RestingPod>,
    /// Whether it was left while it was being woken, so that it may run.
    is_half_awake: bool,
    /// A note for the answer of the next cell.
    note: Option<String>,
    /// Whether the pod listens for calls of tools, if code has any.
    is_listening: bool,
    /// The port in the pod that stands for the tool server.
    tools_port: Option<u16>,
    variables: BTreeMap<String, String>,
    limits: KernelLimits,
    shell_commands: ShellCommands,
    timeout: Duration,
    tool_server: Option<Arc<ToolEndpoint>>,
    /// Held by all whose kernels are in the pod.
    family: Arc<()>,
}

impl PodKernels {
    pub(super) fn new(
        config: &Config,
        pods: &KernelChoices<PodSource>,
        tool_server: Option<Arc<ToolEndpoint>>,
    ) -> Self {
        Self {
            source: pods.source.clone(),
            pod: None,
            resting: None,
            is_half_awake: false,
            note: None,
            is_listening: false,
            tools_port: None,
            variables: config.kernel_variables(),
            limits: config.kernel.limits(),
            shell_commands: config.shell_commands,
            timeout: config.kernel.init_timeout,
            tool_server,
            family: Arc::default(),
        }
    }

    /// Starts a kernel in the pod, which is taken if there is none.
    pub(super) async fn start_kernel(
        &mut self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Kernel, Error> {
        let pod = self.pod(report).await?;
        let link = pod.link();
        report("starting the IPython kernel in the pod");
        let about = link.about();
        let mut environment = self.variables.clone();
        if let (Some(endpoint), Some(port)) = (&self.tool_server, self.tools_port) {
            environment.insert(env::IPYBOX_TOOL_SERVER.to_owned(), format!("127.0.0.1:{port}"));
            environment.insert(env::IPYBOX_TOOL_SERVER_TOKEN.to_owned(), endpoint.renew_token());
        }
        let checkpoint = self.tool_server.as_ref().and_then(|tool_server| tool_server.checkpoint().cloned());
        let launch = KernelLaunch {
            program: KernelProgram {
                python: about.python.clone(),
                working_directory: about.workspace.clone(),
                environment,
                private_directory: about.private_directory.clone(),
            },
            limits: self.limits,
            default_limits: KernelLimits::default(),
            shell_commands: self.shell_commands,
            timeout: self.timeout,
            // A template of the pod has them, whether they are asked for or not.
            has_checkpoints: self.tool_server.is_some(),
            has_workspace: false,
            held: Arc::new(HeldLimits::default()),
        };
        let kernel = Kernel::start(&launch, KernelGround::Pod(link)).await?;
        if let Some(checkpoint) = checkpoint {
            let (major, minor) = about.python_version;
            checkpoint.kernel_started(major, minor);
        }
        tracing::info!(pod = self.source.name(), "the kernel is ready");
        Ok(kernel)
    }

    /// Whether the connection to the pod has ended.
    pub(super) fn is_lost(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.link().end().is_some())
    }

    /// The pod, taken anew if the earlier one is lost. Cancellation safe: what has files is not given up by it.
    async fn pod(&mut self, report: &(dyn Fn(&str) + Send + Sync)) -> Result<Arc<TakenPod>, Error> {
        if self.is_lost() {
            self.leave().await;
        }
        if self.pod.is_none() {
            self.is_listening = false;
            self.wake(report).await.map_err(|error| self.unusable(error))?;
        }
        let pod = match &self.pod {
            Some(pod) => Arc::clone(pod),
            None => {
                let taken = self.source.take(self.timeout, report).await;
                Arc::new(taken.map_err(|error| self.unusable(error))?)
            }
        };
        self.pod = Some(Arc::clone(&pod));
        if !self.is_listening {
            let listening = listen_for(pod.link(), self.tool_server.as_deref()).await;
            self.tools_port = listening.map_err(|error| self.unusable(error.into()))?;
            self.is_listening = true;
        }
        Ok(pod)
    }

    /// Takes the pod that rests, if there is one. It may be gone.
    async fn wake(&mut self, report: &(dyn Fn(&str) + Send + Sync)) -> Result<(), PodSourceError> {
        let Some(resting) = &self.resting else { return Ok(()) };
        self.is_half_awake = true;
        let woken = resting.wake(self.timeout, report).await;
        self.is_half_awake = false;
        match woken {
            Ok(link) => self.pod = self.resting.take().map(|resting| Arc::new(resting.taken(link))),
            Err(error) if error.is_missing() => {
                tracing::warn!(error = describe(&error), "a suspended sandbox is gone");
                let why = "Somebody has deleted the sandbox of this session, which was suspended: its files are gone.";
                self.note = Some(why.to_owned());
                if let Some(resting) = self.resting.take() {
                    resting.release().await;
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The note for the answer of the next cell.
    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Whether there is a pod that could be given up: no branches are in it.
    pub(super) fn is_alone(&self) -> bool {
        self.is_half_awake || self.pod.as_ref().is_some_and(|pod| Arc::strong_count(pod) == 1)
    }

    /// The state that the pod gets when nobody uses it. One in which branches are stays.
    pub(super) async fn rest_for(&self) -> Result<PodRest, Error> {
        match self.pod.as_ref().filter(|pod| Arc::strong_count(pod) == 1) {
            Some(pod) => pod.rest_for().await.map_err(|error| self.unusable(error)),
            None if self.is_half_awake => Ok(PodRest::Suspended),
            None => Ok(PodRest::Stays),
        }
    }

    /// Leaves the pod, which nobody uses, so that this becomes of it.
    pub(super) async fn rest(&mut self, rest: PodRest) {
        match rest {
            PodRest::Stays => {}
            PodRest::Deleted => self.leave().await,
            PodRest::Suspended => {
                if let Some(pod) = self.pod.take().and_then(Arc::into_inner) {
                    self.resting = pod.rest().await;
                }
                if let Some(resting) = &self.resting {
                    resting.suspend().await;
                }
                self.is_half_awake = false;
            }
        }
    }

    fn unusable(&self, source: PodSourceError) -> Error {
        Error::Pod { pod: self.source.to_string(), source }
    }

    /// Has a kernel of the pod fork, and returns the branch with a site for it and for the kernels after it.
    pub(super) async fn branch(
        &self,
        kernel: &mut Kernel,
        tool_server: Option<Arc<ToolEndpoint>>,
        said: &mut Vec<KernelSaid>,
    ) -> Result<(RunningBranch, Self), BranchFailure> {
        let gone = || self.unusable(PodError::Gone("it has been left".to_owned()).into());
        let pod = self.pod.as_ref().ok_or_else(gone)?;
        let listening = listen_for(pod.link(), tool_server.as_deref()).await;
        let tools_port = listening.map_err(|error| self.unusable(error.into()))?;
        let address = tools_port.map(|port| format!("127.0.0.1:{port}"));
        let tools = tools_of_branch(self.tool_server.as_ref(), tool_server.as_ref(), address);
        let order = BranchOrder { tools, inside: None, sleeps: false, moves: Vec::new() };
        let (branched, mut events) = kernel.branch(order).await;
        said.append(&mut events);
        let site = Self {
            source: self.source.clone(),
            pod: Some(Arc::clone(pod)),
            resting: None,
            is_half_awake: false,
            note: None,
            is_listening: true,
            tools_port,
            variables: self.variables.clone(),
            limits: self.limits,
            shell_commands: self.shell_commands,
            timeout: self.timeout,
            tool_server,
            family: Arc::clone(&self.family),
        };
        Ok((branched?, site))
    }

    /// Keeps the state of a kernel: a fork of it, which sleeps.
    pub(super) async fn keep_state(
        &self,
        kernel: &mut Kernel,
        said: &mut Vec<KernelSaid>,
    ) -> Result<SleepingKernel, BranchFailure> {
        SleepingKernel::of(kernel, None, &self.family, said).await
    }

    /// Has a state take the place of its origin. Code of that has no tools from then on.
    pub(super) async fn awaken(&self, state: SleepingKernel) -> Result<Kernel, kernel::Error> {
        awaken(state, self.tool_server.as_deref()).await
    }

    /// Leaves the pod, unless branches are in it, and gives up one that rests. It ends then.
    pub(super) async fn end(&mut self) {
        self.leave().await;
        if let Some(resting) = self.resting.take() {
            resting.release().await;
        }
    }

    async fn leave(&mut self) {
        if let Some(pod) = self.pod.take().and_then(Arc::into_inner) {
            pod.leave().await;
        }
    }
}

/// Has the pod listen for calls of tools, if code has any. Returns its port.
async fn listen_for(link: &PodLink, tool_server: Option<&ToolEndpoint>) -> Result<Option<u16>, PodError> {
    match tool_server.and_then(ToolEndpoint::address) {
        Some(address) => Ok(Some(link.listen_for(address).await?)),
        None => Ok(None),
    }
}
