//! Grants as part of a request: the one that fits its call alone, and how a question offers one.

use super::request::ApprovalRequest;
use crate::approval::grant::{Grant, GrantLife, GrantPattern};

impl Grant {
    /// A grant for calls with exactly the arguments of this request's call, in its cell, the call among them. `count` is
    /// from 1 to 10,000; other numbers count as the nearest of these.
    pub fn of(request: &ApprovalRequest, count: u32) -> Self {
        let fixed =
            |(name, value): (&String, &serde_json::Value)| (name.clone(), GrantPattern::Equal(value.clone()));
        let arguments = request.tool_args().iter().map(fixed).collect();
        Self::new(request.action(), arguments, count)
    }
}

/// The answer that gives a grant: a choice in forms, and at prompts.
pub(crate) fn choice(grant: &Grant) -> String {
    format!("allow up to {} like this in this {}", grant.count(), place(grant))
}

/// The lines of a question about grants: why the call is outside of the given ones, and which one is proposed. Empty if there is
/// nothing to say.
pub(crate) fn offer(request: &ApprovalRequest) -> String {
    let mut text = String::new();
    if let Some(outside) = request.outside_of_grants() {
        text.push_str(&format!("\n\n{outside}"));
    }
    if let Some(grant) = request.proposed_grant() {
        text.push_str(&format!(
            "\n\nYou can allow up to {} such calls in this {}, this one among them:\n{grant}",
            grant.count(),
            place(grant)
        ));
    }
    text
}

fn place(grant: &Grant) -> &'static str {
    match grant.life() {
        GrantLife::Cell => "cell",
        GrantLife::Session => "session",
    }
}
