//! Numbers about all users together, as Prometheus reads them: none is about one user.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;

use super::FrontState;

/// The numbers.
#[derive(Default)]
pub(crate) struct FrontMetrics {
    /// Answered requests, by their status.
    responses: Mutex<BTreeMap<u16, u64>>,
}

impl FrontMetrics {
    /// Counts an answered request.
    pub(crate) fn count(&self, status: StatusCode) {
        *self.responses.lock().entry(status.as_u16()).or_default() += 1;
    }

    fn text(&self) -> String {
        let mut text = String::from(
            "# HELP ipybox_team_responses_total Answered requests.\n# TYPE ipybox_team_responses_total counter\n",
        );
        for (status, count) in &*self.responses.lock() {
            // Writing to a string does not fail.
            writeln!(text, "ipybox_team_responses_total{{status=\"{status}\"}} {count}").ok();
        }
        text
    }
}

/// Shows them.
pub(crate) async fn show(State(state): State<Arc<FrontState>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, state.metrics.text()).into_response()
}
