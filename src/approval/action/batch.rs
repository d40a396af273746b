//! Batches: calls that code announces together, so that its user is asked about all of them at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Calls that code in the kernel has announced together: `with mcptools.batch(title)`.
#[derive(Debug)]
pub struct ApprovalBatch {
    id: String,
    title: String,
    size: usize,
    /// The number of its calls that may yet have a question.
    coming: watch::Sender<usize>,
}

/// The batch of a call.
#[derive(Debug, Clone)]
pub(crate) struct InBatch(Arc<BatchPlace>);

#[derive(Debug)]
struct BatchPlace {
    batch: Arc<ApprovalBatch>,
    /// The number of its calls that come before.
    index: usize,
    /// Whether its question waits already, or it has none.
    has_arrived: AtomicBool,
}

impl ApprovalBatch {
    fn new(title: String, size: usize) -> Self {
        Self { id: uuid::Uuid::new_v4().to_string(), title, size, coming: watch::Sender::new(size) }
    }

    /// The places of the calls of a new batch.
    pub(in crate::approval) fn places(title: &str, size: usize) -> impl Iterator<Item = InBatch> {
        let batch = Arc::new(Self::new(title.to_owned(), size));
        (0..size).map(move |index| {
            let place = BatchPlace { batch: Arc::clone(&batch), index, has_arrived: AtomicBool::new(false) };
            InBatch(Arc::new(place))
        })
    }

    /// A name that no other batch has.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The purpose of the calls, as the code states it. It is as trustworthy as the code.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The number of its calls. Those that a policy or an earlier answer decides about have no request.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether all requests that it has are waiting for their answers.
    pub(crate) fn is_complete(&self) -> bool {
        *self.coming.borrow() == 0
    }

    /// Waits until all requests that it has are waiting for their answers.
    pub(crate) async fn complete(&self) {
        // `self` owns the sender, so this cannot fail.
        self.coming.subscribe().wait_for(|coming| *coming == 0).await.ok();
    }
}

impl InBatch {
    pub(crate) fn batch(&self) -> &Arc<ApprovalBatch> {
        &self.0.batch
    }

    /// The number of calls of the batch that come before it.
    pub(crate) fn index(&self) -> usize {
        self.0.index
    }

    /// Its question waits from now on, or it has none.
    pub(in crate::approval) fn arrive(&self) {
        self.0.arrive();
    }
}

impl BatchPlace {
    fn arrive(&self) {
        if !self.has_arrived.swap(true, Ordering::Relaxed) {
            self.batch.coming.send_modify(|coming| *coming -= 1);
        }
    }
}

impl Drop for BatchPlace {
    fn drop(&mut self) {
        // The code may have gone away before it was decided about.
        self.arrive();
    }
}

impl PartialEq for InBatch {
    fn eq(&self, other: &Self) -> bool {
        self.0.batch.id == other.0.batch.id
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::super::{Action, Target};
    use crate::approval::audit::Audit;
    use crate::approval::gate::Gate;
    use crate::approval::policy::{ApprovalEffect, ApprovalPolicy};
    use crate::approval::question::{ApprovalQueue, Approver};
    use crate::approval::standing::StandingAnswers;

    #[tokio::test]
    async fn a_batch_whose_code_goes_away_is_complete() {
        let (queue, mut requests) = ApprovalQueue::new();
        let timeout = std::time::Duration::from_secs(60);
        let gate = Gate::new(
            ApprovalPolicy::always(ApprovalEffect::Ask),
            StandingAnswers::default(),
            timeout,
            Audit::off(),
        );
        gate.set_approver(Approver::User(queue));
        let action = |tool: &str| {
            Action::new("s".to_owned(), tool.to_owned(), Map::new(), Target::Command("c".to_owned()))
        };
        let mut deciding = Box::pin(gate.decide_batch("title", vec![action("a"), action("b")]));
        let first = tokio::select! {
            _ = &mut deciding => panic!("nobody has answered"),
            request = requests.recv() => request.unwrap(),
        };
        assert_eq!(first.batch().map(|batch| (batch.title(), batch.size())), Some(("title", 2)));
        drop(deciding);
        // A thread that looks for an earlier answer may have the other action for a while.
        tokio::time::timeout(timeout, first.batch().unwrap().complete()).await.unwrap();
    }
}
