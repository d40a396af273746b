//! The filter of system calls: a list of what is denied, since Python, its packages and the programs they start need
//! most of the rest.
//!
//! It denies access to other processes and to the host that no mount or namespace closes (sockets of other
//! families, memory and queues that are shared by number), and parts of the system's kernel that programs
//! hardly need and attacks like. [`calls`] has the list.

mod calls;

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use rustix::io::Errno;
use rustix::thread::secure_computing_mode;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

use super::Error;
use super::report::SystemCalls;

/// Filters the system calls of the calling thread and of all that it starts.
///
/// # Errors
///
/// Fails if the system has filters and refuses this one.
pub(super) fn filter(allow_unix_sockets: bool) -> Result<SystemCalls, Error> {
    let Ok(architecture) = TargetArch::try_from(ARCH) else {
        return Ok(SystemCalls::UnknownArchitecture(ARCH.to_owned()));
    };
    if secure_computing_mode() == Err(Errno::INVAL) {
        return Ok(SystemCalls::Missing);
    }
    let program = program(architecture, allow_unix_sockets).map_err(|error| Error::Seccomp(error.into()))?;
    apply_filter(&program).map_err(Error::Seccomp)?;
    Ok(SystemCalls::Filtered(ARCH.to_owned()))
}

fn program(
    architecture: TargetArch,
    allow_unix_sockets: bool,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls::DENIED.iter().map(|call| (*call, Vec::new())).collect();
    for (call, cases) in calls::denied_cases(allow_unix_sockets) {
        let cases = cases.into_iter().map(rule).collect::<Result<_, _>>()?;
        rules.insert(call, cases);
    }
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let listed: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture)?.try_into()?;
    Ok(hidden_calls().into_iter().chain(listed).collect())
}

/// The instructions before the list: calls that fail as if the system did not have them.
///
/// The library knows one answer for all that it denies. These need another, so that programs take the older call
/// instead.
fn hidden_calls() -> Vec<sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let statement = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    let unless_skip = |code, k| sock_filter { code, jt: 0, jf: 1, k };
    let hide = statement(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);

    // The number of the call is the first field.
    let mut instructions = vec![statement(LOAD, 0)];
    for call in calls::HIDDEN {
        instructions.extend([unless_skip(IF_EQUAL, call as u32), hide.clone()]);
    }
    instructions.extend([unless_skip(IF_AT_LEAST, calls::FIRST_UNKNOWN), hide]);
    instructions
}

/// A case of a call: all of these must hold for it to be denied.
type Case = Vec<ArgumentCondition>;

/// A comparison with an argument. All checked arguments are 32 bits wide for the system, whatever is in the
/// upper half.
enum ArgumentCondition {
    Is(u8, u32),
    IsNot(u8, u32),
    Masked { argument: u8, mask: u32, is: u32 },
}

fn rule(case: Case) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = case.into_iter().map(|condition| {
        let (argument, operator, value) = match condition {
            ArgumentCondition::Is(argument, value) => (argument, SeccompCmpOp::Eq, value),
            ArgumentCondition::IsNot(argument, value) => (argument, SeccompCmpOp::Ne, value),
            ArgumentCondition::Masked { argument, mask, is } => {
                (argument, SeccompCmpOp::MaskedEq(mask.into()), is)
            }
        };
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value.into())
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_far_from_the_largest_that_the_system_takes() {
        for architecture in [TargetArch::x86_64, TargetArch::aarch64] {
            let program = program(architecture, false).expect("the filter can be built");
            assert!(program.len() < 1024, "{} instructions of 4096", program.len());
        }
    }

    #[test]
    fn no_call_is_both_denied_and_looked_into() {
        for (call, cases) in calls::denied_cases(false) {
            assert!(!calls::DENIED.contains(&call), "call {call} is denied whatever its arguments");
            assert!(!cases.is_empty(), "call {call} would be denied whatever its arguments");
        }
    }
}
