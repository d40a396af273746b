//! A watch: the events of an object, a line of JSON each.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;

use super::ClaimError;
use super::cluster::{ClusterClient, ClusterStatus};
use super::objects::{ClaimObject, ObjectMetadata};
use super::request::{ClusterRequest, ClusterResource, ClusterVerb};

/// The seconds after which the server ends a watch. A connection that died silently is noticed soon after.
const WATCH_SECONDS: u64 = 30;
/// The time without an event after which a watch counts as broken.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 15);

/// The longest line. A claim has a few kilobytes.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A change of the watched claim.
pub(super) enum ClaimEvent {
    Changed(ClaimObject),
    /// Nothing has changed up to this version.
    Version(String),
    Deleted,
}

#[derive(Deserialize)]
struct WatchLine {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// A bookmark has no more.
#[derive(Deserialize)]
struct VersionedObject {
    metadata: ObjectMetadata,
}

/// The events of one claim from a version on.
pub(super) struct ClaimWatch<'a> {
    cluster: &'a ClusterClient,
    request: ClusterRequest,
    body: Body,
    buffer: Vec<u8>,
}

impl<'a> ClaimWatch<'a> {
    pub(super) async fn start(
        cluster: &'a ClusterClient,
        name: &str,
        version: &str,
    ) -> Result<Self, ClaimError> {
        let query = format!(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        );
        let request =
            ClusterRequest::of(ClusterVerb::Watch, ClusterResource::Claims).only(name).with_query(&query);
        let sent = tokio::time::timeout(SILENCE, cluster.send(&request)).await;
        let silent = |_| Err(cluster.wrong_answer("a watch is not answered".to_owned()));
        let body = sent.unwrap_or_else(silent)?.into_body();
        Ok(Self { cluster, request, body, buffer: Vec::new() })
    }

    /// Returns the next event; `None` when the watch has ended, or is broken.
    pub(super) async fn next(&mut self) -> Result<Option<ClaimEvent>, ClaimError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return self.event(&line).map(Some);
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(self.cluster.wrong_answer("an event is too long".to_owned()));
            }
            match tokio::time::timeout(SILENCE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Ok(Some(Err(error))) => {
                    tracing::debug!(%error, "a watch is broken");
                    return Ok(None);
                }
                Ok(None) | Err(_) => return Ok(None),
            }
        }
    }

    fn event(&self, line: &[u8]) -> Result<ClaimEvent, ClaimError> {
        let WatchLine { kind, object } =
            serde_json::from_slice(line).map_err(|error| self.cluster.wrong_answer(error.to_string()))?;
        match kind.as_str() {
            "ADDED" | "MODIFIED" => Ok(ClaimEvent::Changed(self.cluster.read_object(object)?)),
            "DELETED" => Ok(ClaimEvent::Deleted),
            "ERROR" => {
                let said: ClusterStatus = self.cluster.read_object(object)?;
                Err(self.cluster.event_error(&self.request, said))
            }
            _ => {
                let bookmark: VersionedObject = self.cluster.read_object(object)?;
                Ok(ClaimEvent::Version(bookmark.metadata.resource_version))
            }
        }
    }
}
