//! Hears from servers without a handshake that their tools have changed: they say so to those who ask for it (MCP 2026-07-28,
//! `subscriptions/listen`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::Peer;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::connections::mcp_client::client::ClientState;

/// The pause after the end of a subscription, and the longest one. While the server refuses the next subscription, each pause is
/// twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Records that the tools have changed, whenever they do, until `stop` is cancelled.
pub(super) async fn hear_of_changes(
    peer: Peer<RoleClient>,
    state: Arc<ClientState>,
    stop: CancellationToken,
) {
    let info = peer.peer_info();
    let tools = info.as_ref().and_then(|info| info.capabilities.tools.as_ref());
    if tools.and_then(|tools| tools.list_changed) == Some(true) {
        stop.run_until_cancelled(hear(&peer, &state)).await;
    }
}

/// Returns when the server does not take the first subscription. One that took it may be restarting.
async fn hear(peer: &Peer<RoleClient>, state: &ClientState) {
    let mut was_deaf = false;
    let mut pause = PAUSE;
    loop {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                // They may have changed since the last one ended.
                state.has_changed.fetch_or(was_deaf, Ordering::Relaxed);
                while let Ok(Some(_changed)) = subscription.next().await {
                    state.has_changed.store(true, Ordering::Relaxed);
                }
                (was_deaf, pause) = (true, PAUSE);
                sleep(pause).await;
            }
            Err(_) if was_deaf => {
                sleep(pause).await;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
            // The error is the server's, which may repeat a secret.
            Err(_) => {
                tracing::debug!("an MCP server will not say when its tools change");
                return;
            }
        }
    }
}
