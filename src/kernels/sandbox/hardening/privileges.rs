//! Privileges of a process: capabilities, set-user-id programs, and inspection by others.

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::Error;
use super::report::Capabilities;

/// Gives up all capabilities of the calling thread, and the ways to get any by executing a file.
///
/// # Errors
///
/// Fails if the system does not let them go.
pub(super) fn give_up() -> Result<Capabilities, Error> {
    let failed = |privilege| move |source| Error::Privilege { privilege, source };
    set_no_new_privs(true).map_err(failed("programs that change who runs them"))?;
    let bounding_set_empty = empty_bounding_set().map_err(failed("the bounding set of capabilities"))?;
    clear_ambient_capability_set().map_err(failed("ambient capabilities"))?;
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, nothing).map_err(failed("capabilities"))?;
    let left = capabilities(None).map_err(failed("capabilities"))?;
    Ok(Capabilities { held: (left.effective | left.permitted | left.inheritable).bits(), bounding_set_empty })
}

/// Whether the bounding set is empty now. Only who has the capability for it can empty it; for others it does not
/// matter, since without new privileges a file's capabilities are not given.
fn empty_bounding_set() -> Result<bool, Errno> {
    let mut empty = true;
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(false) => continue,
            Ok(true) => {}
            // The system knows no capability of this number, and none above it.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(Errno::PERM) => empty = false,
            Err(error) => return Err(error),
        }
    }
    Ok(empty)
}

/// Lets nobody but root trace this process, read its memory or its files below `/proc`, or have it dumped.
/// It holds until the process executes another program.
///
/// # Errors
///
/// Fails if the system refuses.
pub(super) fn forbid_inspection() -> Result<(), Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|source| Error::Privilege { privilege: "being looked into", source })
}
