//! Memory limits for messages from outside: from code in the kernel, and from MCP servers.
//!
//! A message is weighed while it is read ([`JsonScan`]), before it is parsed, and holds a [`Lease`] of its weight
//! as long as its data lives. A message that exceeds the budget is refused.

mod scan;

use std::convert::Infallible;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

pub(crate) use self::scan::JsonScan;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The longest message, in bytes: it holds a file of 30 MB as Base64. Three times as much (see [`JsonScan::weight`]) for one
/// message from either side, and what the program takes itself, stay below 300 MB.
pub(crate) const MESSAGE_BYTES: usize = 40 * MIB;
/// The weight of what all kernels print and display at a time: the longest message, which is held twice while it is read, and
/// small ones beside it.
const OUTPUT_BYTES: usize = 2 * MESSAGE_BYTES + 16 * MIB;
/// The weight of the images that wait for answers, of all kernels together. Further ones are in their files only.
const IMAGES_BYTES: usize = 32 * MIB;
/// The weight of all messages of one side together: the longest one, and small ones beside it.
const POOL_BYTES: usize = 3 * MESSAGE_BYTES + 4 * MIB;
/// The greatest depth of a message. serde_json reads 127 levels, and a part of the message may have to be read within others:
/// in a request to its server, a record, what people are shown.
pub(crate) const DEPTH: usize = 120;
/// Messages up to this weight need no lease: there are at most as many of them as connections or open calls.
const FREE_BYTES: usize = 16 * KIB;
/// The amount by which a lease is larger than it must be, so that a growing message does not lease memory for each of its
/// pieces.
const STEP_BYTES: usize = 256 * KIB;
/// Heavier data is processed by a thread of its own, so that it does not block the runtime's threads.
const APART_BYTES: usize = 768 * KIB;
/// The number of bytes that are weighed before the task yields.
const TURN_BYTES: usize = 128 * KIB;
/// The time that an answer waits for memory before it is refused. Meanwhile its server has to wait.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls of code in the kernel: incoming, waiting for approval, or running.
pub(crate) static CALLS: Budget = Budget::new("calls that are under way");
/// Answers of MCP servers: incoming, or being sent to the kernel.
pub(crate) static ANSWERS: Budget = Budget::new("answers of MCP servers that are under way");

/// Messages of all kernels: incoming, or being shown and saved.
pub(crate) static OUTPUT: Budget = Budget::of("what other kernels display", OUTPUT_BYTES);
/// Images that cells of all kernels have shown, until their answers are sent.
pub(crate) static IMAGES: Budget = Budget::of("images that other cells have shown", IMAGES_BYTES);

/// Memory that may be taken by all messages of one side of this process.
#[derive(Debug)]
pub(crate) struct Budget {
    owner: &'static str,
    bytes: usize,
    /// In KiB.
    left: Semaphore,
}

/// A part of a budget. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    budget: &'static Budget,
    permit: Option<SemaphorePermit<'static>>,
}

/// A lease that ends when this is dropped, or after its time.
#[derive(Debug)]
pub(crate) struct TimedLease {
    _end: oneshot::Sender<Infallible>,
}

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetExcess {
    /// It is too long.
    #[error("it is longer than {} MiB", MESSAGE_BYTES / MIB)]
    Long,
    /// It is nested too deeply.
    #[error("it is nested more than {DEPTH} levels deep")]
    Deep,
    /// It holds too many values.
    #[error(
        "it holds so many values that they would take more than {} MiB of memory",
        POOL_BYTES / MIB
    )]
    Heavy,
    /// Other messages take the memory.
    #[error(
        "together with {0} it would take more than {limit} MiB of memory\n\
         hint: make fewer large calls at the same time",
        limit = POOL_BYTES / MIB
    )]
    Spent(&'static str),
}

impl Budget {
    /// A budget; `owner` describes in errors what takes its memory.
    pub(crate) const fn new(owner: &'static str) -> Self {
        Self::of(owner, POOL_BYTES)
    }

    const fn of(owner: &'static str, bytes: usize) -> Self {
        Self { owner, bytes, left: Semaphore::const_new(bytes / KIB) }
    }

    /// An empty lease.
    pub(crate) fn lease(&'static self) -> Lease {
        Lease { budget: self, permit: None }
    }

    /// A lease of `weight` bytes, when they are available. All of them are taken at once, so that nobody waits for another who
    /// waits. It ends after `longest` at the latest: what does not go on then keeps its memory, but stops nobody else.
    pub(crate) fn turn(&'static self, weight: usize, longest: Duration) -> oneshot::Receiver<TimedLease> {
        let (mut give, given) = oneshot::channel();
        let mut lease = self.lease();
        let lacking = lease.lacking(weight.min(self.bytes));
        tokio::spawn(async move {
            tokio::select! {
                // It is never closed.
                Ok(permit) = self.left.acquire_many(lacking) => lease.add(permit),
                () = give.closed() => return,
            }
            let (end, ended) = oneshot::channel();
            if give.send(TimedLease { _end: end }).is_ok() {
                // Either way it is over.
                tokio::time::timeout(longest, ended).await.ok();
            }
        });
        given
    }
}

impl Lease {
    /// Extends the lease to `weight` bytes, if they are available.
    ///
    /// # Errors
    /// [`BudgetExcess::Spent`] if they are not.
    pub(crate) fn grow(&mut self, weight: usize) -> Result<(), BudgetExcess> {
        let lacking = self.lacking(weight);
        if lacking > 0 {
            let permit = self.budget.left.try_acquire_many(lacking);
            self.add(permit.map_err(|_| BudgetExcess::Spent(self.budget.owner))?);
        }
        Ok(())
    }

    /// The same, but waits a while for memory. Cancellation safe.
    ///
    /// # Errors
    /// [`BudgetExcess::Spent`] if they are not.
    pub(crate) async fn grow_in_time(&mut self, weight: usize) -> Result<(), BudgetExcess> {
        let lacking = self.lacking(weight);
        if lacking > 0 {
            let permit = tokio::time::timeout(ROOM_TIMEOUT, self.budget.left.acquire_many(lacking)).await;
            let Ok(Ok(permit)) = permit else { return Err(BudgetExcess::Spent(self.budget.owner)) };
            self.add(permit);
        }
        Ok(())
    }

    /// Takes over another lease of the same budget.
    pub(crate) fn join(&mut self, other: Self) {
        if let Some(permit) = other.permit {
            self.add(permit);
        }
    }

    /// Reduces the lease to `weight` bytes.
    pub(crate) fn shrink(&mut self, weight: usize) {
        let extra = self.held().saturating_sub(weight.div_ceil(KIB));
        drop(self.permit.as_mut().and_then(|permit| permit.split(extra)));
    }

    /// In KiB.
    fn held(&self) -> usize {
        self.permit.as_ref().map_or(0, SemaphorePermit::num_permits)
    }

    /// In KiB.
    fn lacking(&self, weight: usize) -> u32 {
        let wanted = weight.div_ceil(KIB);
        if weight <= FREE_BYTES || wanted <= self.held() {
            return 0;
        }
        let rounded = wanted.next_multiple_of(STEP_BYTES / KIB).min(self.budget.bytes / KIB).max(wanted);
        u32::try_from(rounded - self.held()).unwrap_or(u32::MAX)
    }

    fn add(&mut self, permit: SemaphorePermit<'static>) {
        match &mut self.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
    }
}

/// Yields now and then, while the count of processed bytes goes from `before` to `after`.
pub(crate) async fn take_turns(before: usize, after: usize) {
    if before / TURN_BYTES != after / TURN_BYTES {
        tokio::task::yield_now().await;
    }
}

/// The approximate memory of an object's values, in bytes.
pub(crate) fn members_weight(members: &Map<String, Value>) -> usize {
    members.iter().map(|(name, value)| name.len() + value_weight(value)).sum()
}

fn value_weight(value: &Value) -> usize {
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(value_weight).sum(),
        Value::Object(members) => members_weight(members),
    };
    size_of::<Value>() + within
}

/// Runs `work` on data of this weight: at once if it is light, else in a thread of its own.
///
/// # Errors
/// The work has panicked.
pub(crate) async fn apart<T: Send + 'static>(
    weight: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    if weight > APART_BYTES { Ok(tokio::task::spawn_blocking(work).await?) } else { Ok(work()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BUDGET: Budget = Budget::new("others");

    #[tokio::test(start_paused = true)]
    async fn no_more_is_held_than_there_is_and_all_comes_back() {
        let mut first = BUDGET.lease();
        first.grow(3 * MESSAGE_BYTES).unwrap();
        let mut second = BUDGET.lease();
        second.grow(FREE_BYTES).unwrap();
        assert_eq!(second.grow(MESSAGE_BYTES), Err(BudgetExcess::Spent("others")));
        assert_eq!(second.grow_in_time(MESSAGE_BYTES).await, Err(BudgetExcess::Spent("others")));
        first.shrink(MESSAGE_BYTES);
        second.grow(MESSAGE_BYTES).unwrap();
        let mut third = BUDGET.lease();
        let waiting = tokio::spawn(async move { third.grow_in_time(2 * MESSAGE_BYTES).await });
        tokio::task::yield_now().await;
        drop((first, second));
        waiting.await.unwrap().unwrap();
        assert_eq!(BUDGET.left.available_permits(), POOL_BYTES / KIB);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_comes_whole_and_ends_with_its_holder_or_its_time() {
        static BUDGET: Budget = Budget::new("others");
        let longest = Duration::from_secs(60);
        let first = BUDGET.turn(2 * MESSAGE_BYTES, longest).await.unwrap();
        let [forgotten, second] = [(); 2].map(|()| BUDGET.turn(2 * MESSAGE_BYTES, longest));
        drop(forgotten);
        drop(first);
        let stuck = second.await.unwrap();
        let since = tokio::time::Instant::now();
        let third = BUDGET.turn(2 * MESSAGE_BYTES, longest).await.unwrap();
        assert_eq!(since.elapsed().as_secs(), longest.as_secs());
        drop((stuck, third));
        let all = BUDGET.left.acquire_many(u32::try_from(POOL_BYTES / KIB).unwrap()).await;
        assert!(all.is_ok());
    }

    #[tokio::test]
    async fn nothing_is_larger_than_the_budget() {
        static BUDGET: Budget = Budget::new("others");
        assert!(BUDGET.lease().grow(POOL_BYTES).is_ok());
        assert!(BUDGET.lease().grow(POOL_BYTES + 1).is_err());
        assert!(BUDGET.lease().grow(usize::MAX).is_err());
    }
}
