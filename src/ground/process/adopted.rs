//! A process that is no child of ours, and is controlled like one: the leader of its own group, known by a pidfd.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use tokio::net::unix::pipe;

use super::{guardian, signal_group};

/// The time that a killed process may take to be gone.
const END_GRACE: Duration = Duration::from_secs(5);

/// The leaders that live: they count as our children.
static ADOPTED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Whether this is an adopted leader's process.
pub(super) fn is_adopted(process: u32) -> bool {
    i32::try_from(process).is_ok_and(|process| ADOPTED.lock().contains(&process))
}

/// A process group whose leader is no child of ours; dropping it kills the group.
#[derive(Debug)]
pub(crate) struct AdoptedLeader {
    /// Its pidfd. No pipe, but what can be waited for like one: it can be read from when the process has ended.
    process: pipe::Receiver,
    group: Pid,
    /// Whether the leader has ended and its group was killed: later, the number can be another group's.
    is_over: bool,
}

impl AdoptedLeader {
    /// Takes the process that has this id now. Until [`guarded`](Self::guarded) it is left alone.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn open(id: Pid) -> io::Result<Self> {
        let process = pipe::Receiver::from_owned_fd_unchecked(pidfd_open(id, PidfdFlags::NONBLOCK)?)?;
        Ok(Self { process, group: id, is_over: true })
    }

    /// Ends with us from now on.
    pub(crate) fn guarded(mut self) -> Self {
        guardian::add_group(self.id());
        ADOPTED.lock().insert(self.id());
        self.is_over = false;
        self
    }

    fn id(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.id().unsigned_abs()
    }

    /// Whether the leader has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Waits for the leader to end, and kills what is left of its group. Cancellation safe; may be called again.
    pub(crate) async fn ended(&mut self) -> io::Result<()> {
        self.process.readable().await?;
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            signal_group(self.group, Signal::KILL);
            guardian::remove_group(self.id());
            ADOPTED.lock().remove(&self.id());
        }
    }

    /// Sends `signal` to every process of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        if !self.is_over && !self.has_ended() {
            signal_group(self.group, signal);
        }
    }

    /// Kills the group, and waits until the leader has ended.
    pub(crate) async fn kill(mut self) {
        self.clear();
        if tokio::time::timeout(END_GRACE, self.ended()).await.is_err() {
            tracing::warn!(process = self.id(), "a killed process does not end");
        }
    }
}

impl Drop for AdoptedLeader {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_process_of_others_is_followed_and_its_group_ends_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; read line"]).process_group(0);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let id = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
        let mut leader = AdoptedLeader::open(id).unwrap().guarded();
        assert!(!leader.has_ended() && is_adopted(child.id().unwrap()));
        let output = child.stdout.take().unwrap();
        drop(child.stdin.take());
        leader.ended().await.unwrap();
        assert!(leader.has_ended() && !is_adopted(id.as_raw_nonzero().get().unsigned_abs()));
        // The end of the pipe proves that `sleep`, which holds it too, is gone.
        let mut text = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut { output }, &mut text).await.unwrap();
        assert!(!text.is_empty());
        child.wait().await.unwrap();
        AdoptedLeader::open(id).unwrap_err();
    }
}
