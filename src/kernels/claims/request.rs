//! Requests about objects of agent-sandbox.

use std::time::Duration;

use http::Method;
use serde_json::Value;

/// The version of agent-sandbox's groups that we speak.
pub(super) const VERSION: &str = "v1beta1";
/// The group of claims and pools, in that version.
pub(super) const API_VERSION: &str = "extensions.agents.x-k8s.io/v1beta1";

/// The pause before another try, if the server asks for none.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// The kinds of objects that we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterResource {
    Claims,
    Pools,
    Sandboxes,
}

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

impl ClusterResource {
    /// Its group, as roles name it.
    pub(super) fn group(self) -> &'static str {
        match self {
            Self::Claims | Self::Pools => "extensions.agents.x-k8s.io",
            Self::Sandboxes => "agents.x-k8s.io",
        }
    }

    /// Its plural, as roles name it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Claims => "sandboxclaims",
            Self::Pools => "sandboxwarmpools",
            Self::Sandboxes => "sandboxes",
        }
    }
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
    pub(super) resource: ClusterResource,
    name: Option<String>,
    query: String,
    pub(super) body: Option<Value>,
}

impl ClusterRequest {
    pub(super) fn of(verb: ClusterVerb, resource: ClusterResource) -> Self {
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
        let group = resource.group();
        let resource = resource.word();
        let name = self.name.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        format!("/apis/{group}/{VERSION}/namespaces/{namespace}/{resource}{name}?{query}")
    }
}
