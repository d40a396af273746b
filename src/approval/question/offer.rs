//! Grants as part of a request: the one that fits its call alone, and how a question offers one.

use super::request::ApprovalRequest;
use crate::approval::action::ToolAnnotations;
use crate::approval::grant::{Grant, GrantLife, GrantPattern, GrantProposal};

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
    let place = place(grant);
    if grant.also().is_empty() {
        format!("allow up to {} like this in this {place}", grant.count())
    } else {
        format!("allow up to {} as listed in this {place}", grant.total())
    }
}

/// The calls that the proposed grant allows; if they are several, each in a line with its number.
pub(crate) fn covered(request: &ApprovalRequest) -> Option<String> {
    let GrantProposal { grant, planned } = request.proposal()?;
    if planned.is_empty() {
        return Some(grant.to_string());
    }
    let own = (grant, request.annotations());
    let others = planned.iter().map(|call| (call.grant(), call.action().annotations.as_ref()));
    let line = |(grant, hints): (&Grant, Option<&ToolAnnotations>)| {
        let reads = hints.is_some_and(|hints| hints.read_only == Some(true));
        let kind = if reads { "only reads, its server says" } else { "may change something" };
        format!("up to {}, {kind}: {}", grant.count(), grant.call())
    };
    Some(std::iter::once(own).chain(others).map(line).collect::<Vec<_>>().join("\n"))
}

/// The lines of a question about grants: why the call is outside of the given ones, and which one is proposed. Empty if there is
/// nothing to say.
pub(crate) fn offer(request: &ApprovalRequest) -> String {
    let mut text = String::new();
    if let Some(outside) = request.outside_of_grants() {
        text.push_str(&format!("\n\n{outside}"));
    }
    if let (Some(grant), Some(covered)) = (request.proposed_grant(), covered(request)) {
        let total = grant.total();
        let place = place(grant);
        text.push_str(&if grant.also().is_empty() {
            format!("\n\nYou can allow up to {total} such calls in this {place}, this one among them:\n{covered}")
        } else {
            format!(
                "\n\nThe code says that it makes these calls. You can allow them in this {place}, this one among them, and \
                 no others:\n{covered}"
            )
        });
    }
    text
}

fn place(grant: &Grant) -> &'static str {
    match grant.life() {
        GrantLife::Cell => "cell",
        GrantLife::Session => "session",
    }
}
