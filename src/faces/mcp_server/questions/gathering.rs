//! Gathers requests to be asked about at once: those that come within milliseconds, and the whole of their batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::approval::ApprovalRequest;

/// The time to wait for further questions after one, to ask them together: calls made at once come within milliseconds.
pub(in crate::faces::mcp_server) const GATHER: Duration = Duration::from_millis(20);

/// Takes all approval requests that have come, and the others of the batches of which some have. Returns whether more can
/// come.
pub(in crate::faces::mcp_server) async fn complete_batches(
    requests: &mut mpsc::Receiver<ApprovalRequest>,
    waiting: &mut VecDeque<ApprovalRequest>,
) -> bool {
    loop {
        let incomplete = waiting.iter().find_map(|request| {
            Some(Arc::clone(request.shared_batch().filter(|batch| !batch.is_complete())?))
        });
        let count = waiting.len();
        // After the look: the last ones may have come just before it.
        gather(requests, waiting);
        match incomplete {
            Some(batch) => tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => waiting.push_back(request),
                    None => return false,
                },
                () = batch.complete() => {}
            },
            None if waiting.len() == count => return true,
            None => {}
        }
    }
}

/// Takes the approval requests that come in this time.
pub(in crate::faces::mcp_server) async fn gather_for(
    time: Duration,
    requests: &mut mpsc::Receiver<ApprovalRequest>,
    waiting: &mut VecDeque<ApprovalRequest>,
) {
    let coming = async {
        while let Some(request) = requests.recv().await {
            waiting.push_back(request);
        }
    };
    tokio::time::timeout(time, coming).await.ok();
}

/// Takes all approval requests that have come.
fn gather(requests: &mut mpsc::Receiver<ApprovalRequest>, waiting: &mut VecDeque<ApprovalRequest>) {
    while let Ok(request) = requests.try_recv() {
        waiting.push_back(request);
    }
}
