//! Requests about objects of the group of claims and pools.

use std::time::Duration;

use http::Method;
use serde_json::Value;

/// The group of claims and pools.
pub(super) const GROUP: &str = "extensions.agents.x-k8s.io";
/// The version of it that we speak.
pub(super) const API_VERSION: &str = "extensions.agents.x-k8s.io/v1beta1";

/// The pause before another try, if the server asks for none.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// An action, as roles name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterVerb {
    Create,
    Delete,
    Get,
    List,
    Patch,
    Watch,
}

impl ClusterVerb {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Watch => "watch",
        }
    }

    pub(super) fn method(self) -> Method {
        match self {
            Self::Create => Method::POST,
            Self::Delete => Method::DELETE,
            Self::Get | Self::List | Self::Watch => Method::GET,
            Self::Patch => Method::PATCH,
        }
    }
}

/// A request about one object, or the objects of a kind.
pub(super) struct ClusterRequest {
    pub(super) verb: ClusterVerb,
    pub(super) resource: &'static str,
    name: Option<String>,
    query: String,
    pub(super) body: Option<Value>,
}

impl ClusterRequest {
    pub(super) fn of(verb: ClusterVerb, resource: &'static str) -> Self {
        Self { verb, resource, name: None, query: String::new(), body: None }
    }

    /// About the object of this name, which is one that Kubernetes can have.
    pub(super) fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// For lists and watches of the object of this name alone.
    pub(super) fn only(mut self, name: &str) -> Self {
        self.query = format!("fieldSelector=metadata.name%3D{name}");
        self
    }

    pub(super) fn with_query(mut self, query: &str) -> Self {
        let before = if self.query.is_empty() { "" } else { "&" };
        self.query = format!("{}{before}{query}", self.query);
        self
    }

    pub(super) fn with_body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(super) fn uri(&self, namespace: &str) -> String {
        let Self { resource, query, .. } = self;
        let name = self.name.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        format!("/apis/{API_VERSION}/namespaces/{namespace}/{resource}{name}?{query}")
    }
}
