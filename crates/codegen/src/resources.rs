//! Resources and prompts: what a server has beside its tools.

use serde::{Deserialize, Serialize};

use super::Degradation;

/// The resources and prompts of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcesAndPrompts {
    /// The templates of its resources; `None` if it declares no resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ResourceTemplate>>,
    /// Its prompts; `None` if it declares no prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<Vec<Prompt>>,
}

/// A template of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceTemplate {
    /// The template of their URIs (RFC 6570).
    pub uri_template: String,
    /// Its name.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description of the resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Its name.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The purpose of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its arguments, which are texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// The description of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it has to be given.
    #[serde(default)]
    pub is_required: bool,
}

/// The module for a server's resources, or that for its prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionModule {
    /// Its name in the package.
    pub name: String,
    /// The functions made of templates or prompts, in the server's order.
    pub functions: Vec<String>,
    /// Templates and prompts that have no function, by their names.
    pub degraded: Vec<Degradation>,
}

impl ResourcesAndPrompts {
    /// In few words how much there is; empty for nothing.
    pub fn summary(&self) -> String {
        let templates = self.resources.iter().map(|templates| match templates.len() {
            0 => "resources".to_owned(),
            1 => "resources: 1 template".to_owned(),
            count => format!("resources: {count} templates"),
        });
        let prompts = self.prompts.iter().map(|prompts| format!("prompts: {}", prompts.len()));
        templates.chain(prompts).collect::<Vec<_>>().join(", ")
    }

    /// Whether any templates or prompts are known.
    pub fn is_blank(&self) -> bool {
        self.resources.as_ref().is_none_or(Vec::is_empty) && self.prompts.as_ref().is_none_or(Vec::is_empty)
    }
}
