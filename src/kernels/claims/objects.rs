//! The parts of agent-sandbox's objects that we read.

use std::net::IpAddr;

use serde::Deserialize;

use super::ClaimError;

/// The reasons of a claim's condition `Ready` with which no waiting helps.
const FINAL_REASONS: [&str; 6] = [
    "ClaimExpired",
    "EnvVarsInjectionRejected",
    "InvalidMetadata",
    "TemplateNotFound",
    "VolumeClaimTemplatesError",
    "WarmPoolNotFound",
];

/// A list of objects at one version.
#[derive(Deserialize)]
pub(super) struct ObjectList<T> {
    pub(super) metadata: ObjectMetadata,
    pub(super) items: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectMetadata {
    pub(super) resource_version: String,
    /// The mark of the next page of a list.
    #[serde(default, rename = "continue")]
    pub(super) next_page: Option<String>,
}

/// A `SandboxClaim` in a list, as far as it says whose it is.
#[derive(Deserialize)]
pub(super) struct ListedClaim {
    pub(super) metadata: LabelledMetadata,
}

#[derive(Deserialize)]
pub(super) struct LabelledMetadata {
    pub(super) name: String,
    #[serde(default)]
    pub(super) labels: std::collections::BTreeMap<String, String>,
}

/// A `SandboxClaim`.
#[derive(Deserialize)]
pub(super) struct ClaimObject {
    pub(super) metadata: ObjectMetadata,
    #[serde(default)]
    status: ClaimStatus,
}

#[derive(Default, Deserialize)]
struct ClaimStatus {
    #[serde(default)]
    conditions: Vec<ClaimCondition>,
    sandbox: Option<SandboxOfClaim>,
}

#[derive(Deserialize)]
struct ClaimCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SandboxOfClaim {
    name: String,
    #[serde(default, rename = "podIPs")]
    addresses: Vec<IpAddr>,
}

/// A sandbox that is ready for its claim.
pub(super) struct BoundSandbox {
    pub(super) sandbox: String,
    pub(super) address: IpAddr,
}

/// The state of a claim.
pub(super) enum ClaimState {
    Ready(BoundSandbox),
    /// Why it is not ready, in the cluster's words; `None` if no controller has looked at it.
    Waiting(Option<String>),
}

impl ClaimObject {
    /// # Errors
    /// It will never be ready.
    pub(super) fn state(self) -> Result<ClaimState, ClaimError> {
        let Some(ready) = self.status.conditions.into_iter().find(|one| one.kind == "Ready") else {
            return Ok(ClaimState::Waiting(None));
        };
        if ready.status != "True" {
            let ClaimCondition { reason, message, .. } = ready;
            if FINAL_REASONS.contains(&reason.as_str()) {
                return Err(ClaimError::Rejected { reason, message });
            }
            return Ok(ClaimState::Waiting(Some(format!("{reason}: {message}"))));
        }
        let bound = self.status.sandbox.and_then(|sandbox| {
            let address = *sandbox.addresses.first()?;
            Some(BoundSandbox { sandbox: sandbox.name, address })
        });
        let no_address = || ClaimState::Waiting(Some("its pod has no address".to_owned()));
        Ok(bound.map_or_else(no_address, ClaimState::Ready))
    }
}
