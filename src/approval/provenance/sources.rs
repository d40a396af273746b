//! The tools that a session has called, by number, with the labels of their servers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::label::{Label, ServerLabels};
use super::origin::{Found, Origin};
use super::table::LAST_SOURCE;
use crate::ground::text::shortened;

/// The characters of a name that are kept or shown: code chooses names of arguments, and of tools that do not exist.
const NAME_CHARS: usize = 100;

/// The number of tools that are distinguished, and the number from which on servers are not either.
const TOOLS: usize = LAST_SOURCE as usize * 3 / 4;
const SERVERS: usize = LAST_SOURCE as usize - 16;

/// The number of servers that are named of those that have a label and were read.
const READ_NAMES: usize = 20;

/// The servers that have the label of all that are not named.
const OTHERS: &str = "other servers";

/// A tool that has been called.
#[derive(Debug)]
struct CalledTool {
    server: String,
    tool: String,
    label: Option<Label>,
}

/// A call whose result is to be entered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AwaitedSource {
    /// The number of its tool.
    pub(super) number: u32,
    /// The label that no earlier call had brought, and how often that one was noted then.
    first: Option<(Label, u64)>,
}

/// The tools that have been called.
#[derive(Debug, Default)]
pub(super) struct CalledTools {
    labels: ServerLabels,
    /// By their numbers, from 1.
    sources: Vec<CalledTool>,
    numbers: HashMap<(String, String), u32>,
    read: BTreeMap<Label, BTreeSet<String>>,
    /// The times that each label was noted.
    noted: BTreeMap<Label, u64>,
    /// The times that labels were given to servers, and with them to data that came from these already.
    relabelled: u64,
    /// Values of an earlier session are here, which may have read from any server.
    is_restored: bool,
}

impl CalledTools {
    pub(super) fn new(labels: ServerLabels) -> Self {
        Self { labels, ..Self::default() }
    }

    pub(super) fn labels(&self) -> &ServerLabels {
        &self.labels
    }

    /// A server has this label from now on, and with it what came from it already.
    pub(super) fn label(&mut self, server: &str, label: Label) {
        self.labels.set(server, Some(label));
        self.relabel();
    }

    /// Servers have these labels from now on; those that are not among them keep theirs.
    pub(super) fn label_all(&mut self, labels: &ServerLabels) {
        self.labels = labels.clone().or(std::mem::take(&mut self.labels));
        self.relabel();
    }

    fn relabel(&mut self) {
        self.relabelled += 1;
        let mut now = Vec::new();
        for CalledTool { server, label, .. } in &mut self.sources {
            *label = self.labels.named(server).or(*label).or(self.labels.of_others());
            now.extend(label.map(|label| (label, server.clone())));
        }
        now.iter().for_each(|(label, server)| self.note(*label, server));
        if self.is_restored {
            self.restored();
        }
    }

    /// A call of a tool that is about to be made.
    pub(super) fn begin(&mut self, server: &str, tool: &str) -> AwaitedSource {
        let label = self.labels.of(server);
        let is_first = label.is_some_and(|label| !self.read.contains_key(&label));
        if let Some(label) = label {
            self.note(label, server);
        }
        let number = self.number(server, tool, label);
        AwaitedSource { number, first: label.filter(|_| is_first).map(|label| (label, self.noted[&label])) }
    }

    /// The labels of what has been read, without the one that only this call has brought.
    pub(super) fn read_besides(&self, own: Option<AwaitedSource>) -> BTreeMap<Label, BTreeSet<String>> {
        let mut read = self.read.clone();
        if let Some((label, noted)) = own.and_then(|own| own.first)
            && self.noted.get(&label) == Some(&noted)
        {
            read.remove(&label);
        }
        read
    }

    /// The label of a server.
    pub(super) fn label_of_server(&self, server: &str) -> Option<Label> {
        self.labels.of(server)
    }

    /// The times that labels were given to servers.
    pub(super) fn relabelled(&self) -> u64 {
        self.relabelled
    }

    /// Nobody knows what has been read: all that there is.
    pub(super) fn restored(&mut self) {
        self.is_restored = true;
        let labels = self.labels.clone();
        let others = labels.of_others().map(|label| (OTHERS, label));
        for (server, label) in labels.all().chain(others) {
            self.note(label, server);
        }
    }

    pub(super) fn label_of(&self, number: u32) -> Option<Label> {
        self.of(number)?.label
    }

    pub(super) fn origin(&self, argument: &str, number: u32, found: Found) -> Option<Origin> {
        let CalledTool { server, tool, label } = self.of(number)?;
        Some(Origin {
            argument: shortened(argument, NAME_CHARS),
            server: server.clone(),
            tool: tool.clone(),
            label: *label,
            found,
        })
    }

    fn of(&self, number: u32) -> Option<&CalledTool> {
        self.sources.get((number as usize).checked_sub(1)?)
    }

    fn note(&mut self, label: Label, server: &str) {
        *self.noted.entry(label).or_default() += 1;
        let servers = self.read.entry(label).or_default();
        if servers.len() < READ_NAMES {
            servers.insert(shortened(server, NAME_CHARS));
        }
    }

    /// The number of a tool. If there are too many it is that of its server, or of its label: a flood of names, which code
    /// can make up, takes no label away.
    fn number(&mut self, server: &str, tool: &str, label: Option<Label>) -> u32 {
        let places = [
            (TOOLS, server, tool),
            (SERVERS, server, "another tool"),
            (LAST_SOURCE as usize, "another server", label.map_or("without a label", Label::word)),
        ];
        for (most, server, tool) in places {
            let name = (shortened(server, NAME_CHARS), shortened(tool, NAME_CHARS));
            if let Some(number) = self.numbers.get(&name) {
                return *number;
            }
            if self.sources.len() < most {
                self.sources.push(CalledTool { server: name.0.clone(), tool: name.1.clone(), label });
                let number = u32::try_from(self.sources.len()).unwrap_or(LAST_SOURCE);
                self.numbers.insert(name, number);
                return number;
            }
        }
        LAST_SOURCE
    }
}
