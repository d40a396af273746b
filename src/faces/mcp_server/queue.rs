//! The queues in which calls wait for the cells before them: one for each session.

use std::time::Duration;

use super::session_names::{OWN, given, is_new};

/// The time that an answer waits for those of earlier cells in its queue, which it should repeat. The cells have ended by
/// then: only their images may take longer.
pub(super) const SETTLING: Duration = Duration::from_secs(1);

/// The queue of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionQueue(String);

impl SessionQueue {
    /// That of the session with this handle; `None` for a new one, where nothing is before a call.
    pub(super) fn of_session(handle: Option<&str>) -> Option<Self> {
        let handle = given(handle).unwrap_or(OWN);
        (!is_new(handle)).then(|| Self(handle.to_owned()))
    }
}
