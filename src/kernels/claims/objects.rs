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
    #[serde(default)]
    status: ClaimStatus,
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
    conditions: Vec<ObjectCondition>,
    sandbox: Option<SandboxOfClaim>,
}

/// A condition of a claim or a sandbox.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    /// The generation of the object that it is about.
    #[serde(default)]
    observed_generation: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SandboxOfClaim {
    /// Empty as long as there is none.
    #[serde(default)]
    name: String,
    #[serde(default, rename = "podIPs")]
    addresses: Vec<IpAddr>,
}

/// A `Sandbox`.
#[derive(Deserialize)]
pub(super) struct SandboxObject {
    metadata: SandboxMetadata,
    spec: SandboxSpec,
    #[serde(default)]
    status: SandboxStatus,
}

#[derive(Deserialize)]
struct SandboxMetadata {
    generation: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SandboxSpec {
    #[serde(default)]
    operating_mode: String,
    #[serde(default)]
    volume_claim_templates: Vec<serde_json::Value>,
}

#[derive(Default, Deserialize)]
struct SandboxStatus {
    #[serde(default)]
    conditions: Vec<ObjectCondition>,
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

impl ListedClaim {
    /// The name of its sandbox, if it has got one.
    pub(super) fn sandbox(&self) -> Option<&str> {
        let sandbox = self.status.sandbox.as_ref()?;
        Some(sandbox.name.as_str()).filter(|name| !name.is_empty())
    }
}

impl ClaimObject {
    /// Why the pod at this address is gone, if it is.
    pub(super) fn gone(&self, address: IpAddr) -> Option<String> {
        let finished =
            self.status.conditions.iter().find(|one| one.kind == "Finished" && one.status == "True");
        let addresses = self.status.sandbox.iter().flat_map(|sandbox| &sandbox.addresses);
        let is_another =
            || addresses.clone().next().is_some_and(|_| addresses.clone().all(|one| *one != address));
        match finished {
            Some(ObjectCondition { reason, message, .. }) => {
                Some(format!("the pod of the sandbox has ended: {reason}: {message}"))
            }
            None => is_another().then(|| "the sandbox has another pod".to_owned()),
        }
    }

    /// # Errors
    /// It will never be ready.
    pub(super) fn state(self) -> Result<ClaimState, ClaimError> {
        let Some(ready) = self.status.conditions.into_iter().find(|one| one.kind == "Ready") else {
            return Ok(ClaimState::Waiting(None));
        };
        if ready.status != "True" {
            let ObjectCondition { reason, message, .. } = ready;
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

impl SandboxObject {
    /// Whether it has volumes of its own, which are deleted with it.
    pub(super) fn has_volumes(&self) -> bool {
        !self.spec.volume_claim_templates.is_empty()
    }

    /// Whether its pod is ending, since it is to have none.
    pub(super) fn is_suspending(&self) -> bool {
        let suspended = self.condition("Suspended");
        self.spec.operating_mode == "Suspended"
            && suspended.is_none_or(|suspended| suspended.status != "True")
    }

    /// The address of its pod.
    ///
    /// # Errors
    /// It does not run: its state, in the cluster's words.
    pub(super) fn address(&self) -> Result<IpAddr, String> {
        let Some(ready) = self.condition("Ready") else {
            return Err("no controller has looked at it".to_owned());
        };
        let ObjectCondition { reason, message, .. } = ready;
        match self.status.addresses.first() {
            Some(address) if ready.status == "True" => Ok(*address),
            _ => Err(format!("{reason}: {message}")),
        }
    }

    /// The condition of this kind, if it is about the object as it is now.
    fn condition(&self, kind: &str) -> Option<&ObjectCondition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|one| one.kind == kind && one.observed_generation >= self.metadata.generation)
    }
}
