//! Child processes that cannot outlive us, and the limits around those of a session.
//!
//! Every child leads its own process group, so that stopping it stops its children; the guardian kills the
//! groups that are left if we are killed ourselves. Kernels, installers and MCP servers are all started here.

#[cfg(target_os = "linux")]
mod adopted;
#[cfg(target_os = "linux")]
mod descriptors;
mod guardian;
mod limits;
mod memory;
mod program;
mod tail;
#[cfg(test)]
mod test_tools;

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

#[cfg(target_os = "linux")]
pub(crate) use self::adopted::AdoptedLeader;
#[cfg(target_os = "linux")]
pub use self::descriptors::raise_descriptors;
pub(crate) use self::guardian::guard_directory;
pub(crate) use self::limits::LimitsError;
pub(crate) use self::limits::{ByteSize, DiskPlaces, HeldLimits, limits_held_here};
pub use self::limits::{LimitUse, SessionLimits, remove_user_group, user_group};
pub(crate) use self::memory::{
    descends_from, family, memory_of_family, memory_of_forks, memory_of_machine, most_memory_of_forks,
};
pub(crate) use self::program::{ProgramQuestion, read_to_end, run_to_end};
pub(crate) use self::tail::OutputTail;
#[cfg(test)]
pub(crate) use self::test_tools::{skip, test_tool};

/// A child process that leads a process group of its own; dropping it kills the whole group.
#[derive(Debug)]
pub(crate) struct GroupLeader {
    child: Child,
    group: Pid,
    /// Whether it is left to the guardian.
    is_left: bool,
}

impl GroupLeader {
    /// Starts `command` as the leader of a new process group.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let id = child.id().ok_or_else(|| io::Error::other("the child has no process id"))?;
        let group = i32::try_from(id).map_err(io::Error::other)?;
        guardian::add_group(group);
        let group = Pid::from_raw(group).ok_or_else(|| io::Error::other("the child has the process id 0"))?;
        #[cfg(target_os = "linux")]
        descriptors::give_back(group);
        Ok(Self { child, group, is_left: false })
    }

    /// If we are killed before the group ends, the guardian sends it SIGTERM, and kills it a minute later.
    pub(crate) fn guard_gently(&self) {
        guardian::be_gentle(self.id());
    }

    /// Takes back [`guard_gently`](Self::guard_gently).
    pub(crate) fn guard_firmly(&self) {
        guardian::be_firm(self.id());
    }

    /// Sends SIGTERM to a group that is guarded gently. From now on dropping this leaves the group to the
    /// guardian, which kills it after a minute.
    pub(crate) fn ask_to_end(&mut self) {
        guardian::has_been_asked(self.id());
        self.is_left = true;
        self.signal(Signal::TERM);
    }

    /// The process id of the leader, which is the id of its group too.
    pub(crate) fn id(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Takes the pipe to the child's stdin. Take it before [`wait`](Self::wait), which closes it.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes the pipe from the child's stdout.
    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes the pipe from the child's stderr.
    pub(crate) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for the leader to end. Cancellation safe; may be called again after it ended.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// The exit status of the leader, if it has ended.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends `signal` to every process of the group, and to the leader, which may have joined another group.
    pub(crate) fn signal(&self, signal: Signal) {
        signal_group(self.group, signal);
        // It has its id until it is reaped.
        let has_left = || getpgid(Some(self.group)).is_ok_and(|group| group != self.group);
        if self.child.id().is_some() && (signal == Signal::KILL || has_left()) {
            // An error says that it has ended.
            kill_process(self.group, signal).ok();
        }
    }

    /// Kills the group at once and reaps the leader.
    pub(crate) async fn kill(mut self) {
        self.is_left = false;
        self.signal(Signal::KILL);
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, process = self.id(), "could not reap a child process");
        }
    }
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // The leader may be gone while processes that it started live on in its group.
        self.signal(Signal::KILL);
        guardian::remove_group(self.id());
    }
}

/// Sends `signal` to every process of `group`; a group that is empty already needs none.
fn signal_group(group: Pid, signal: Signal) {
    match kill_process_group(group, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => tracing::debug!(%error, ?group, ?signal, "could not signal a process group"),
    }
}

#[cfg(test)]
mod tests {

    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;

    #[tokio::test]
    async fn killing_a_leader_kills_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; sleep 60 & echo $!; wait"]);
        command.stdout(std::process::Stdio::piped());
        let mut leader = GroupLeader::spawn(&mut command).unwrap();
        let stdout = leader.take_stdout().unwrap();
        let mut lines = BufReader::new(stdout).lines();
        let grandchild: i32 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
        leader.kill().await;
        // End of file proves that no process of the group holds the pipe any more.
        assert_eq!(lines.next_line().await.unwrap(), None, "process {grandchild} lives");
    }

    #[tokio::test]
    async fn a_leader_that_has_joined_another_group_is_signalled_and_killed_too() {
        const LEAVE: &str = "
import os, signal, time
child = os.fork()
if not child:
    time.sleep(2)
    os._exit(0)
os.setpgid(child, child)
signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))
os.setpgid(0, child)
print('left', flush=True)
while True:
    time.sleep(60)
";
        let Some(python) = test_tool("kernel/bin/python") else { return };
        let mut command = Command::new(python);
        command.args(["-c", LEAVE]).stdout(std::process::Stdio::piped());
        let mut leader = GroupLeader::spawn(&mut command).unwrap();
        let stdout = leader.take_stdout().unwrap();
        let mut lines = BufReader::new(stdout).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("left"));
        leader.signal(Signal::TERM);
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("asked"));
        let killed = tokio::time::timeout(std::time::Duration::from_secs(300), leader.kill());
        killed.await.expect("the leader lives");
    }
}
