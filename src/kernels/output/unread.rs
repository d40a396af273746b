//! The output of a running cell that no answer has reported yet.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::excerpt::Excerpt;
use crate::kernels::kernel::plain;

/// The newest text of a cell, from its beginning or from the last [`take_shown`](Self::take_shown) on.
#[derive(Debug)]
pub(crate) struct UnreadText {
    limit: usize,
    has_begun: watch::Sender<bool>,
    state: Mutex<UnreadState>,
}

#[derive(Debug)]
struct UnreadState {
    text: Excerpt,
    was_taken: bool,
}

impl UnreadText {
    /// Keeps `limit` characters: the beginning and the end of what is longer.
    pub(crate) fn new(limit: usize) -> Self {
        let state = Mutex::new(UnreadState { text: Excerpt::new(limit), was_taken: false });
        Self { limit, has_begun: watch::Sender::new(false), state }
    }

    /// Notes that the cell's code is with the kernel.
    pub(crate) fn begin(&self) {
        self.has_begun.send_replace(true);
    }

    /// Whether the cell's code is with the kernel.
    pub(crate) fn has_begun(&self) -> bool {
        *self.has_begun.borrow()
    }

    /// Waits until the cell's code is with the kernel.
    pub(crate) async fn begun(&self) {
        // `self` owns the sender, so this cannot fail.
        self.has_begun.subscribe().wait_for(|has_begun| *has_begun).await.ok();
    }

    /// Appends text.
    pub(crate) fn push(&self, text: &str) {
        self.state.lock().text.push(text);
    }

    /// The text since the last time, as a screen would show it.
    pub(crate) fn take_shown(&self) -> String {
        let mut state = self.state.lock();
        state.was_taken = true;
        let text = std::mem::replace(&mut state.text, Excerpt::new(self.limit)).into_string();
        plain(&text).trim_end().to_owned()
    }

    /// The rest, if a part was taken before.
    pub(crate) fn rest(&self) -> Option<String> {
        let was_taken = self.state.lock().was_taken;
        was_taken.then(|| self.take_shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_taken_once() {
        let unread = UnreadText::new(10);
        unread.push("one");
        assert_eq!(unread.rest(), None);
        assert_eq!(unread.take_shown(), "one");
        unread.push(&"x".repeat(11));
        assert!(unread.take_shown().contains("1 characters left out"));
        assert_eq!(unread.rest(), Some(String::new()));
    }
}
