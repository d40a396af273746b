//! Which system calls are denied, and why. Numbers of calls only; the parent module makes a filter of them.

use libc as c;

use super::{ArgumentCondition, Case};

/// The first number that was not given to a call when this list was made (after `file_setattr` of Linux 6.17).
///
/// Later calls are hidden, since their effects were unknown: programs that use new calls can do without,
/// because most systems do not have them. On x86-64 this also hides the calls of the x32 interface, whose
/// numbers begin far above and would pass by the list.
pub(super) const FIRST_UNKNOWN: u32 = 470;

/// `open_tree_attr` of Linux 6.15, for which there is no constant.
const OPEN_TREE_ATTR: i64 = 467;

/// The constant is missing for some C libraries.
const KEXEC_FILE_LOAD: i64 = if cfg!(target_arch = "x86_64") { 320 } else { 294 };

/// Calls that fail as if the system did not have them.
///
/// `clone3` has its flags in memory, where no filter can see them; C libraries then call `clone`. The others have
/// fallbacks that look for this answer.
pub(super) const HIDDEN: [i64; 5] =
    [c::SYS_clone3, c::SYS_io_uring_setup, c::SYS_io_uring_enter, c::SYS_io_uring_register, c::SYS_openat2];

/// Calls that are denied whatever their arguments.
#[rustfmt::skip]
pub(super) const DENIED: &[i64] = &[
    // Other processes: their memory, descriptors and registers. Tracing one's own children is denied with it.
    c::SYS_kcmp, c::SYS_pidfd_getfd, c::SYS_process_madvise, c::SYS_process_vm_readv,
    c::SYS_process_vm_writev, c::SYS_ptrace,
    // Shared by number rather than by file, so that no mount hides it.
    c::SYS_msgctl, c::SYS_msgget, c::SYS_msgrcv, c::SYS_msgsnd, c::SYS_semctl, c::SYS_semget, c::SYS_semop,
    c::SYS_semtimedop, c::SYS_shmat, c::SYS_shmctl, c::SYS_shmdt, c::SYS_shmget, c::SYS_mq_getsetattr,
    c::SYS_mq_notify, c::SYS_mq_open, c::SYS_mq_timedreceive, c::SYS_mq_timedsend, c::SYS_mq_unlink,
    c::SYS_add_key, c::SYS_keyctl, c::SYS_request_key,
    // Mounts and namespaces: what the sandbox around us is made of.
    c::SYS_chroot, c::SYS_fsconfig, c::SYS_fsmount, c::SYS_fsopen, c::SYS_fspick, c::SYS_mount,
    c::SYS_mount_setattr, c::SYS_move_mount, c::SYS_open_tree, OPEN_TREE_ATTR, c::SYS_pivot_root,
    c::SYS_setns, c::SYS_umount2,
    // Files by number rather than by path, and notices about everybody's.
    c::SYS_fanotify_init, c::SYS_name_to_handle_at, c::SYS_open_by_handle_at,
    // Programs and hooks inside the system's kernel, and control over the faults of its memory.
    c::SYS_bpf, c::SYS_perf_event_open, c::SYS_userfaultfd, c::SYS_vmsplice,
    // The machine as a whole.
    c::SYS_acct, c::SYS_adjtimex, c::SYS_clock_adjtime, c::SYS_clock_settime, c::SYS_delete_module,
    c::SYS_finit_module, c::SYS_init_module, c::SYS_kexec_load, c::SYS_lookup_dcookie, c::SYS_nfsservctl,
    c::SYS_quotactl, c::SYS_quotactl_fd, c::SYS_reboot, c::SYS_setdomainname, c::SYS_sethostname,
    c::SYS_settimeofday, c::SYS_swapoff, c::SYS_swapon, c::SYS_syslog, c::SYS_vhangup, KEXEC_FILE_LOAD,
    #[cfg(target_arch = "x86_64")]
    c::SYS__sysctl,
    #[cfg(target_arch = "x86_64")]
    c::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    c::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    c::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    c::SYS_sysfs,
    #[cfg(target_arch = "x86_64")]
    c::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    c::SYS_ustat,
];

/// Calls that are denied with some arguments: each with the cases that are.
pub(super) fn denied_cases(allow_unix_sockets: bool) -> Vec<(i64, Vec<Case>)> {
    let mut cases = vec![
        (c::SYS_socket, sockets(allow_unix_sockets)),
        (c::SYS_socketpair, socket_pairs(allow_unix_sockets)),
        (c::SYS_clone, with_any(0, &[&[SIBLING], NEW_NAMESPACES.as_slice()].concat())),
        (c::SYS_unshare, with_any(0, &[&[NEW_TIME_NAMESPACE], NEW_NAMESPACES.as_slice()].concat())),
        (
            c::SYS_ioctl,
            TERMINAL_REQUESTS.iter().map(|request| vec![ArgumentCondition::Is(1, *request)]).collect(),
        ),
        // 0 is how Linux behaves, 0xffff_ffff asks; anything else makes memory easier to attack.
        (
            c::SYS_personality,
            vec![vec![ArgumentCondition::IsNot(0, 0), ArgumentCondition::IsNot(0, u32::MAX)]],
        ),
        // The limits of others: one of processor time is as good as a signal, and Landlock does not know it.
        (c::SYS_prlimit64, vec![vec![ArgumentCondition::IsNot(0, 0)]]),
    ];
    cases.extend(OPENING.iter().map(|(call, flags)| (*call, made_with(*flags))));
    cases
        .extend(MODES.iter().map(|(call, argument)| (*call, with_any(*argument, &[c::S_ISUID, c::S_ISGID]))));
    cases
}

/// Calls that set a file's mode, and the argument that has it: a file of the workspace that runs with its
/// owner's rights does so outside, too. `openat2`, whose mode is in memory, is hidden.
const MODES: &[(i64, u8)] = &[
    (c::SYS_fchmod, 1),
    (c::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (c::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (c::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (c::SYS_mknod, 1),
    #[cfg(target_arch = "x86_64")]
    (c::SYS_creat, 1),
];

/// Calls that may create a file, and the argument with their flags; the mode, which counts only then, comes
/// next.
const OPENING: &[(i64, u8)] = &[
    (c::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (c::SYS_open, 1),
];

fn made_with(flags: u8) -> Vec<Case> {
    let case = |making: i32, mode: u32| {
        let making = ArgumentCondition::Masked { argument: flags, mask: making as u32, is: making as u32 };
        vec![making, ArgumentCondition::Masked { argument: flags + 1, mask: mode, is: mode }]
    };
    [c::O_CREAT, c::O_TMPFILE]
        .into_iter()
        .flat_map(|making| [c::S_ISUID, c::S_ISGID].map(|mode| case(making, mode)))
        .collect()
}

/// Not in the library for all architectures.
const FCHMODAT2: i64 = 452;

/// Makes a child of the caller's parent. The kernel's is the gateway, which spares its own children when it kills what a
/// kernel has left.
const SIBLING: u32 = c::CLONE_PARENT as u32;

/// Flags of `clone` and `unshare`. A namespace of users would bring all capabilities, within it.
const NEW_NAMESPACES: [u32; 7] = [
    c::CLONE_NEWCGROUP as u32,
    c::CLONE_NEWIPC as u32,
    c::CLONE_NEWNET as u32,
    c::CLONE_NEWNS as u32,
    c::CLONE_NEWPID as u32,
    c::CLONE_NEWUSER as u32,
    c::CLONE_NEWUTS as u32,
];

/// Not in `clone`, where these bits say which signal reports the child's end.
const NEW_TIME_NAMESPACE: u32 = 0x80;

/// `TIOCSTI` and `TIOCLINUX` type into a terminal that others read from, `TIOCSETD` loads line disciplines.
const TERMINAL_REQUESTS: [u32; 3] = [0x5412, 0x541c, 0x5423];

/// Captures packets, also as a type of an internet socket. The constant of the library is marked as obsolete, the
/// system's feature is there.
const SOCK_PACKET: i32 = 10;

/// The lower bits of a socket's type; those above are flags.
const SOCKET_TYPE: u32 = 0xf;

fn sockets(allow_unix: bool) -> Vec<Case> {
    let [unix, inet, inet6, netlink] =
        [c::AF_UNIX, c::AF_INET, c::AF_INET6, c::AF_NETLINK].map(|family| family as u32);
    let known: &[u32] = if allow_unix { &[inet, inet6, netlink, unix] } else { &[inet, inet6, netlink] };
    let mut cases = vec![is_none_of(0, known)];
    // Which interfaces there are: name resolution asks. The other protocols reach deep into the system's kernel.
    cases.push(vec![ArgumentCondition::Is(0, netlink), ArgumentCondition::IsNot(2, c::NETLINK_ROUTE as u32)]);
    for family in [inet, inet6] {
        for kind in [c::SOCK_RAW, c::SOCK_RDM, c::SOCK_SEQPACKET, c::SOCK_DCCP, SOCK_PACKET] {
            let is_kind = ArgumentCondition::Masked { argument: 1, mask: SOCKET_TYPE, is: kind as u32 };
            cases.push(vec![ArgumentCondition::Is(0, family), is_kind]);
        }
        let protocols = [c::IPPROTO_IP, c::IPPROTO_TCP, c::IPPROTO_UDP, c::IPPROTO_ICMP, c::IPPROTO_ICMPV6]
            .map(|p| p as u32);
        let mut other_protocol = is_none_of(2, &protocols);
        other_protocol.push(ArgumentCondition::Is(0, family));
        cases.push(other_protocol);
    }
    cases
}

/// A pair's ends are connected to each other for good, unless they are of the datagram type: that sends to any address.
/// The raw type becomes the datagram type.
fn socket_pairs(allow_unix: bool) -> Vec<Case> {
    let mut cases = vec![vec![ArgumentCondition::IsNot(0, c::AF_UNIX as u32)]];
    if !allow_unix {
        for kind in [c::SOCK_DGRAM, c::SOCK_RAW] {
            cases.push(vec![ArgumentCondition::Masked { argument: 1, mask: SOCKET_TYPE, is: kind as u32 }]);
        }
    }
    cases
}

fn is_none_of(argument: u8, values: &[u32]) -> Case {
    values.iter().map(|value| ArgumentCondition::IsNot(argument, *value)).collect()
}

fn with_any(argument: u8, flags: &[u32]) -> Vec<Case> {
    flags.iter().map(|flag| vec![ArgumentCondition::Masked { argument, mask: *flag, is: *flag }]).collect()
}
