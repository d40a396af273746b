//! The end of a kernel that is a child of a template, as that reports it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::death::DeathManner;

/// The time that a template may take to report how a kernel of it has ended. One that is gone closes its pipe at once.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The report of a template about the end of one of its kernels.
pub(super) struct EndReport {
    reports: pipe::Receiver,
    manner: Option<DeathManner>,
}

impl EndReport {
    /// Reads it from this pipe.
    pub(super) fn read_from(reports: std::io::PipeReader) -> std::io::Result<Self> {
        Ok(Self { reports: pipe::Receiver::from_owned_fd(reports.into())?, manner: None })
    }

    /// The manner of the end of a kernel that has ended. Cancellation safe; may be called again.
    pub(super) async fn manner(&mut self) -> DeathManner {
        let deadline = Instant::now() + REPORT_TIMEOUT;
        loop {
            if let Some(manner) = self.manner_now() {
                return manner;
            }
            let readable = tokio::time::timeout_at(deadline, self.reports.readable()).await;
            if !matches!(readable, Ok(Ok(()))) {
                tracing::debug!("a template does not report the end of its kernel");
                return self.manner.insert(DeathManner::Unknown).clone();
            }
        }
    }

    /// The same, if it has come.
    pub(super) fn manner_now(&mut self) -> Option<DeathManner> {
        let mut status = [0; 4];
        if self.manner.is_none() {
            self.manner = match self.reports.try_read(&mut status) {
                Ok(4) => Some(DeathManner::Process(ExitStatus::from_raw(i32::from_ne_bytes(status)))),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
                // The template has ended.
                _ => Some(DeathManner::Unknown),
            };
        }
        self.manner.clone()
    }
}
