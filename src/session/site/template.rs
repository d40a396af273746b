//! The template that sessions of a client fork their kernels from; see [`TemplateProcess`].

use std::sync::{Arc, Weak};

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::ground::text::describe;
use crate::kernels::kernel::{Kernel, KernelLaunch, RenewOrigin, TemplateProcess};

/// A template, if there is one, for all sessions that have this.
#[derive(Clone, Default)]
pub(crate) struct SharedTemplate(Arc<Mutex<Option<TemplateProcess>>>);

/// The same for those who start no kernels, and leave its end to the others.
#[derive(Clone, Default)]
pub(crate) struct TemplateOfOthers(Weak<Mutex<Option<TemplateProcess>>>);

impl TemplateOfOthers {
    /// The template, if a session has it.
    pub(crate) fn get(&self) -> Option<SharedTemplate> {
        self.0.upgrade().map(SharedTemplate)
    }
}

impl SharedTemplate {
    pub(crate) fn downgrade(&self) -> TemplateOfOthers {
        TemplateOfOthers(Arc::downgrade(&self.0))
    }

    /// Whether there is none, and nobody makes one.
    pub(super) fn is_missing(&self) -> bool {
        self.0.try_lock().is_ok_and(|template| template.is_none())
    }

    /// Forks a template from a kernel that has run no code since it began at `begun`, as `launch` says.
    pub(super) async fn make(
        &self,
        kernel: &mut Kernel,
        launch: KernelLaunch,
        begun: Instant,
        renew_origin: Option<RenewOrigin>,
    ) {
        let mut template = self.0.lock().await;
        if template.is_none() {
            match TemplateProcess::fork_from(kernel, launch, begun, renew_origin).await {
                Ok(made) => *template = Some(made),
                Err(error) => tracing::debug!(error = %describe(&error), "there is no template of kernels"),
            }
        }
    }

    /// A kernel of the template; `None` if it has to be started from scratch. Then the next one can be a new template's.
    pub(super) async fn start_kernel(&self, launch: &KernelLaunch) -> Option<Kernel> {
        let mut template = self.0.lock().await;
        match template.as_mut()?.start_kernel(launch).await {
            Ok(kernel) => Some(kernel),
            Err(error) => {
                tracing::debug!(error = %describe(&error), "the kernel is started without its template");
                *template = None;
                None
            }
        }
    }

    /// Ends the template, unless other sessions have it.
    pub(super) async fn end(&self) {
        if Arc::strong_count(&self.0) == 1
            && let Some(template) = self.0.lock().await.take()
        {
            template.end().await;
        }
    }
}
