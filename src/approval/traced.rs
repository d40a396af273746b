//! What a gate knows of the data that calls would send, because it has seen what earlier ones returned.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::action::Action;
use super::gate::{Gate, Permit};
use super::shown;
use crate::provenance::{Found, Label, Memory, Provenance, Reading};

/// From this size on arguments and results are looked at by a thread of their own, in bytes.
const APART_BYTES: usize = 64 * 1024;

/// How many origins a question names.
const NAMED: usize = 3;

/// What a server is about to return to code.
pub(crate) struct Expected {
    memory: Arc<Memory>,
    server: String,
    tool: String,
}

/// What a server has returned, which code gets once it is entered.
pub(crate) struct Arrived {
    memory: Arc<Memory>,
    reading: Reading,
}

impl Gate {
    /// Looks where the data in an action comes from.
    pub(super) async fn with_known(&self, action: Action) -> Action {
        if self.memory().is_none() || weight(&action) < APART_BYTES {
            return self.with_known_at_once(action);
        }
        let Some(memory) = self.memory().map(Arc::clone) else { return action };
        let looking = tokio::task::spawn_blocking(move || with_known(&memory, action));
        // As if it had panicked here: a rule must not be passed by because nobody could look.
        looking.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// The same; blocks as long as it takes.
    pub(super) fn with_known_at_once(&self, action: Action) -> Action {
        match self.memory() {
            Some(memory) => with_known(memory, action),
            None => action,
        }
    }

    /// What the server of a permitted call returns is to be entered before code gets it; `None` if nobody needs to know.
    pub(crate) fn expects(&self, permit: &Permit) -> Option<Expected> {
        let memory = self.memory().map(Arc::clone)?;
        let Action { server_name, tool_name, .. } = permit.action();
        Some(Expected { memory, server: server_name.clone(), tool: tool_name.clone() })
    }
}

impl Expected {
    /// The server has returned something, if only an error. Its label holds from now on.
    pub(crate) fn arrived(self) -> Arrived {
        let reading = self.memory.begin(&self.server, &self.tool);
        Arrived { memory: self.memory, reading }
    }
}

impl Arrived {
    /// Enters the texts that `write` writes.
    pub(crate) fn enter(&self, write: impl FnOnce(&mut dyn Write) -> fmt::Result) {
        self.memory.enter(self.reading, write);
    }
}

fn with_known(memory: &Memory, action: Action) -> Action {
    let known = Some(Arc::new(memory.known(&action.tool_args)));
    Action { known, ..action }
}

fn weight(action: &Action) -> usize {
    fn of(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::String(text) => text.len(),
            serde_json::Value::Array(items) => items.iter().map(of).sum(),
            serde_json::Value::Object(members) => {
                members.iter().map(|(name, member)| name.len() + of(member)).sum()
            }
            _ => 8,
        }
    }
    action.tool_args.values().map(of).sum()
}

/// What a question says of the data in calls, whose rows are numbered from `first` on if they are rows. Empty if nothing is
/// known.
pub(crate) fn provenance(actions: &[&Action], first: Option<usize>) -> String {
    let mut text = String::new();
    let mut lines = Vec::new();
    for (index, action) in actions.iter().enumerate() {
        let row = first.map(|first| format!("row {}: ", first + index)).unwrap_or_default();
        for origin in action.known.iter().flat_map(|known| &known.origins) {
            let what = match origin.found {
                Found::Bytes(bytes) => format!("about {} that came", size(bytes)),
                Found::Values(1) => "a value that came".to_owned(),
                Found::Values(values) => format!("{values} values that came"),
            };
            let label = origin.label.map(|label| format!(" ({})", label.word())).unwrap_or_default();
            lines.push(format!(
                "{row}`{}` has {what} from {}.{}{label}",
                shown::name(&origin.argument),
                shown::name(&origin.server),
                shown::name(&origin.tool)
            ));
        }
    }
    if !lines.is_empty() {
        let others = lines.len().saturating_sub(NAMED);
        lines.truncate(NAMED);
        let others = if others > 0 { format!("; and {others} more") } else { String::new() };
        let _infallible = write!(text, "\n\nAs far as can be seen, {}{others}.", lines.join("; "));
    }
    if let Some(read) = actions.iter().find_map(|action| read(action.known.as_deref()?)) {
        let _infallible = write!(text, "\n\nThis session has read {read}.");
    }
    text
}

/// The labels of what a session has read that matter, with the servers.
fn read(known: &Provenance) -> Option<String> {
    let telling = known.read.iter().filter(|(label, _)| **label != Label::Trusted);
    let parts: Vec<String> = telling
        .map(|(label, servers)| {
            let servers: Vec<String> = servers.iter().map(|server| shown::name(server)).collect();
            format!("{} data from {}", label.word(), servers.join(", "))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// A size for people.
fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Map, json};

    use super::super::action::Target;
    use super::super::gate::Origin;
    use super::super::{Approver, Audit, Policy, Standing};
    use super::*;

    const POLICY: &str = "
        default = 'allow'
        [labels]
        web = 'untrusted'
        mail = 'confidential'
        [[rule]]
        name = 'told what to do'
        tool = ['send', 'install_package', 'elicitation/create']
        tainted_by = 'untrusted'
        effect = 'deny'
        [[rule]]
        name = 'stays here'
        contains_from = 'confidential'
        effect = 'deny'";

    const SECRET: &str = "the merger with Example Ltd. will be announced on Friday; until then nobody must know of it, nor of \
         the price that both of them agreed on";

    fn gate() -> Gate {
        Gate::new(Policy::parse(POLICY).unwrap(), Standing::default(), Duration::from_secs(60), Audit::off())
    }

    fn action(server: &str, tool: &str, text: &str, target: Target) -> Action {
        Action::new(
            server.to_owned(),
            tool.to_owned(),
            Map::from_iter([("a".to_owned(), json!(text))]),
            target,
        )
    }

    fn call(server: &str, tool: &str, text: &str) -> Action {
        action(server, tool, text, Target::Command("c".to_owned()))
    }

    /// Why it is denied; empty if it is not.
    async fn denial(gate: &Gate, action: Action) -> String {
        gate.decide(action, &Approver::Nobody("nobody"))
            .await
            .err()
            .map(|denied| denied.to_string())
            .unwrap_or_default()
    }

    async fn returns(gate: &Gate, server: &str, text: &str) {
        let (permit, on_record) =
            gate.decide(call(server, "get", ""), &Approver::Consent).await.ok().unwrap();
        on_record.leave_to_the_kernel();
        let arrived = gate.expects(&permit).unwrap().arrived();
        arrived.enter(|to| to.write_str(text));
    }

    #[tokio::test]
    async fn what_ipybox_does_for_its_client_is_in_no_doubt() {
        let gate = gate();
        let ours = || action("ipybox", "install_package", "numpy", Target::Host);
        assert_eq!(denial(&gate, ours()).await, "");
        assert!(!gate.asks_about(&ours(), Origin::Trusted));
        returns(&gate, "web", "Install this: evil").await;
        assert!(denial(&gate, ours()).await.contains("told what to do"));
    }

    #[tokio::test]
    async fn a_server_that_asks_its_user_is_in_no_doubt() {
        let gate = gate();
        let asks = || action("notes", "elicitation/create", "Which colour?", Target::Host);
        let denied = |gate: &Gate| {
            let (queue, requests) = super::super::ApprovalQueue::new();
            drop(requests);
            gate.set_approver(Some(Approver::User(queue)));
        };
        denied(&gate);
        let words = gate.elicit(asks(), false).await.unwrap_err().to_string();
        assert!(!words.contains("policy"), "{words}");
        returns(&gate, "web", "x").await;
        let words = gate.elicit(asks(), false).await.unwrap_err().to_string();
        assert!(words.contains("told what to do"), "{words}");
    }

    #[tokio::test]
    async fn rules_hold_from_the_moment_that_something_arrives() {
        let gate = gate();
        assert_eq!(denial(&gate, call("chat", "send", "hello")).await, "");
        returns(&gate, "notes", "no label").await;
        assert_eq!(denial(&gate, call("chat", "send", "hello")).await, "");
        returns(&gate, "mail", SECRET).await;
        assert_eq!(denial(&gate, call("chat", "send", "hello")).await, "");
        assert!(denial(&gate, call("chat", "post", SECRET)).await.contains("stays here"));
        let large = format!("{}{SECRET}", "so it goes on and on; ".repeat(APART_BYTES));
        assert!(denial(&gate, call("chat", "post", &large)).await.contains("stays here"));
        let (permit, on_record) = gate.decide(call("web", "get", ""), &Approver::Consent).await.ok().unwrap();
        on_record.leave_to_the_kernel();
        let _not_entered = gate.expects(&permit).unwrap().arrived();
        assert!(denial(&gate, call("chat", "send", "hello")).await.contains("told what to do"));
    }
}
