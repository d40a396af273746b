//! The calls that have been sent and have not ended: a tool may still read what code writes into a file meanwhile, so that what
//! the session reads then concerns them too.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Action;

/// The calls in flight of all sessions that read the same.
#[derive(Debug, Default)]
pub(in crate::approval) struct CallsInFlight {
    calls: Mutex<FlyingCalls>,
    /// A call has ended.
    landed: Notify,
}

#[derive(Debug, Default)]
struct FlyingCalls {
    actions: BTreeMap<u64, Arc<Action>>,
    next: u64,
}

/// A call in flight, until it is dropped.
#[derive(Debug)]
pub(in crate::approval) struct CallInFlight {
    calls: Arc<CallsInFlight>,
    number: u64,
}

impl CallsInFlight {
    /// A call is about to be sent.
    pub(in crate::approval) fn enter(self: &Arc<Self>, action: &Arc<Action>) -> CallInFlight {
        let mut calls = self.calls.lock();
        let number = calls.next;
        calls.next += 1;
        calls.actions.insert(number, Arc::clone(action));
        CallInFlight { calls: Arc::clone(self), number }
    }

    /// Waits until no call is in flight of which this holds. Returns the first one in `last` for whoever gives up.
    pub(in crate::approval) async fn none_is(
        &self,
        is_awaited: impl Fn(&Arc<Action>) -> bool,
        last: &Mutex<Option<String>>,
    ) {
        loop {
            let landed = self.landed.notified();
            tokio::pin!(landed);
            landed.as_mut().enable();
            let actions: Vec<Arc<Action>> = self.calls.lock().actions.values().cloned().collect();
            let Some(first) = actions.iter().find(|action| is_awaited(action)) else { return };
            *last.lock() = Some(first.name());
            landed.await;
        }
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.calls.calls.lock().actions.remove(&self.number);
        self.calls.landed.notify_waiters();
    }
}
