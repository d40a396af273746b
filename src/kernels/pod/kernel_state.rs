//! The states of kernels in a pod, as it has reported them.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// The state of a kernel, as the pod has reported it.
#[derive(Default)]
pub(super) struct PodKernelState {
    /// The number of signals that were sent to it.
    pub(super) signals: u64,
    /// Its wait status, once it has ended.
    pub(super) ended: Option<PodKernelEnd>,
    /// The process that it is, if it is a fork.
    pub(super) fork: Option<ForkedProcess>,
}

/// The end of a kernel in a pod.
#[derive(Clone)]
pub(super) enum PodKernelEnd {
    Exited(ExitStatus),
    Unknown,
    /// It has not started: why.
    NotStarted(String),
}

/// The process of a fork, as the pod numbers them.
#[derive(Clone, Copy)]
pub(super) struct ForkedProcess {
    pub(super) process: u32,
    pub(super) origin: Option<u32>,
}

impl PodKernelEnd {
    pub(super) fn of(wait_status: Option<i32>) -> Self {
        wait_status.map_or(Self::Unknown, |status| Self::Exited(ExitStatus::from_raw(status)))
    }
}
