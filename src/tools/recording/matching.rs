//! Finds the recorded call that a call of code is. Pure.

use std::cmp::Reverse;

use serde_json::{Map, Value};

use super::comparison::{self, OutputLikeness};
use super::line::RecordedCall;
use crate::ground::text::Redactor;

/// The rule by which calls of a played server are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a new rule is a new promise")]
pub enum PlayMatch {
    /// By tool and arguments, in the order recorded; the last answer is given again.
    Arguments,
    /// In exactly the order recorded.
    Order,
    /// By tool alone, in the order recorded; the last answer is given again.
    Tool,
}

/// The recorded calls, and which of them code has made again.
#[derive(Debug)]
pub(crate) struct RecordedCalls {
    calls: Vec<MatchedCall>,
}

#[derive(Debug)]
struct MatchedCall {
    call: RecordedCall,
    is_used: bool,
}

/// A call of code, its secrets replaced.
#[derive(Debug)]
pub(crate) struct AskedCall {
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
}

/// The recorded call that a call is.
#[derive(Debug)]
pub(crate) struct FoundCall {
    pub(crate) place: usize,
    pub(crate) likeness: OutputLikeness,
    /// The earliest call that had ended before this one began, and that has not been made again.
    pub(crate) overtaken: Option<usize>,
}

impl RecordedCalls {
    pub(crate) fn new(calls: Vec<RecordedCall>) -> Self {
        Self { calls: calls.into_iter().map(|call| MatchedCall { call, is_used: false }).collect() }
    }

    pub(crate) fn get(&self, place: usize) -> &RecordedCall {
        &self.calls[place].call
    }

    /// The call of `cell`, or of no cell, that `asked` is, and which has not been found before: the earliest with the same
    /// arguments, else the earliest with those that are the same by rules.
    pub(crate) fn find(&mut self, cell: u64, asked: &AskedCall) -> Option<FoundCall> {
        let alike = self.open(cell).filter_map(|(place, call)| {
            let likeness = likeness(call, asked);
            (likeness != OutputLikeness::Different).then_some((place, likeness))
        });
        let rank = |(place, likeness): &(usize, OutputLikeness)| {
            (*likeness != OutputLikeness::Same, self.calls[*place].call.order[0])
        };
        let (place, likeness) = alike.min_by_key(rank)?;
        self.calls[place].is_used = true;
        let begun = self.get(place).order[0];
        let earlier = self.open(cell).filter(|(_, call)| call.cell == cell && call.order[1] < begun);
        let overtaken = earlier.min_by_key(|(_, call)| call.order[0]).map(|(place, _)| place);
        Some(FoundCall { place, likeness, overtaken })
    }

    /// The recorded call that is nearest to `asked`: of its tool if there is one in the cell, else of its server, else the next
    /// one of the cell, else any of its tool.
    pub(crate) fn nearest(&self, cell: u64, asked: &AskedCall) -> Option<&RecordedCall> {
        let is_near = |call: &RecordedCall| {
            let is_of_server = call.server == asked.server;
            (is_of_server && call.tool == asked.tool, is_of_server)
        };
        let in_cell = self.open(cell).min_by_key(|(_, call)| (Reverse(is_near(call)), call.order[0]));
        let of_tool = |call: &&RecordedCall| is_near(call).0;
        in_cell.map(|(_, call)| call).or_else(|| self.calls.iter().map(|call| &call.call).find(of_tool))
    }

    /// The calls of a cell that have not been made again, the earliest first.
    pub(crate) fn missing(&self, cell: u64) -> Vec<&RecordedCall> {
        let mut missing: Vec<_> =
            self.open(cell).map(|(_, call)| call).filter(|call| call.cell == cell).collect();
        missing.sort_by_key(|call| call.order[0]);
        missing
    }

    /// The call that `asked` is by `rule`, for a server that is played; cells do not matter.
    pub(crate) fn play(&mut self, rule: PlayMatch, asked: &AskedCall) -> Option<&RecordedCall> {
        let is_meant = |call: &RecordedCall| match rule {
            PlayMatch::Tool => call.server == asked.server && call.tool == asked.tool,
            PlayMatch::Arguments | PlayMatch::Order => likeness(call, asked) != OutputLikeness::Different,
        };
        let next = self.calls.iter().position(|matched| !matched.is_used);
        let place = match rule {
            PlayMatch::Order => next.filter(|place| is_meant(&self.calls[*place].call)),
            PlayMatch::Arguments | PlayMatch::Tool => {
                let open = self.calls.iter().position(|matched| !matched.is_used && is_meant(&matched.call));
                open.or_else(|| self.calls.iter().rposition(|matched| is_meant(&matched.call)))
            }
        };
        let matched = self.calls.get_mut(place?)?;
        matched.is_used = true;
        Some(&matched.call)
    }

    /// Adds a call that has been made just now.
    pub(crate) fn add(&mut self, call: RecordedCall) {
        self.calls.push(MatchedCall { call, is_used: true });
    }

    fn open(&self, cell: u64) -> impl Iterator<Item = (usize, &RecordedCall)> {
        let open = self.calls.iter().enumerate().filter(move |(_, matched)| {
            !matched.is_used && (matched.call.cell == cell || matched.call.cell == 0)
        });
        open.map(|(place, matched)| (place, &matched.call))
    }
}

fn likeness(recorded: &RecordedCall, asked: &AskedCall) -> OutputLikeness {
    if recorded.server != asked.server || recorded.tool != asked.tool {
        return OutputLikeness::Different;
    }
    if recorded.arguments.len() != asked.arguments.len() {
        return OutputLikeness::Different;
    }
    let member = |(name, value): (&String, &Value)| {
        asked.arguments.get(name).map_or(OutputLikeness::Different, |given| comparison::values(value, given))
    };
    OutputLikeness::all(recorded.arguments.iter().map(member))
}

impl AskedCall {
    /// The call as a recording has it.
    pub(crate) fn without_secrets(&self, redactor: &Redactor) -> Self {
        let arguments = match redactor.redact_json(Value::Object(self.arguments.clone())) {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        Self {
            server: redactor.redact(&self.server).into_owned(),
            tool: redactor.redact(&self.tool).into_owned(),
            arguments,
        }
    }

    /// As people read it.
    pub(crate) fn words(&self) -> String {
        words(&self.server, &self.tool, &self.arguments)
    }
}

impl RecordedCall {
    /// As people read it.
    pub(crate) fn words(&self) -> String {
        words(&self.server, &self.tool, &self.arguments)
    }
}

/// A line for the tool, and one for each argument.
fn words(server: &str, tool: &str, arguments: &Map<String, Value>) -> String {
    let lines = arguments.iter().map(|(name, value)| format!("  {name} = {value}\n"));
    format!("{server}.{tool}\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn call(cell: u64, text: &str, order: [u64; 2]) -> RecordedCall {
        RecordedCall {
            cell,
            server: "s".to_owned(),
            tool: "t".to_owned(),
            arguments: object(json!({ "text": text })),
            answer: Some(json!({"result": text})),
            left_out: None,
            decision: "accepted".to_owned(),
            by: "policy".to_owned(),
            duration_ms: 0,
            order,
        }
    }

    fn asked(text: &str) -> AskedCall {
        AskedCall { server: "s".to_owned(), tool: "t".to_owned(), arguments: object(json!({ "text": text })) }
    }

    #[track_caller]
    fn check(calls: &mut RecordedCalls, text: &str, place: usize, overtaken: Option<usize>) {
        let found = calls.find(1, &asked(text)).unwrap();
        assert_eq!((found.place, found.overtaken), (place, overtaken), "{text}");
    }

    #[test]
    fn equal_calls_are_found_in_their_order() {
        let mut calls =
            RecordedCalls::new(vec![call(1, "a", [1, 2]), call(1, "b", [3, 4]), call(1, "a", [5, 6])]);
        check(&mut calls, "a", 0, None);
        check(&mut calls, "a", 2, Some(1));
        check(&mut calls, "b", 1, None);
        assert!(calls.find(1, &asked("a")).is_none());
    }

    #[test]
    fn calls_that_overlapped_have_no_order() {
        let mut calls = RecordedCalls::new(vec![call(1, "a", [1, 4]), call(1, "b", [2, 3])]);
        check(&mut calls, "b", 1, None);
        check(&mut calls, "a", 0, None);
    }

    #[test]
    fn calls_of_other_cells_are_not_found_but_those_of_none() {
        let mut calls = RecordedCalls::new(vec![call(2, "a", [1, 2]), call(0, "b", [3, 4])]);
        assert!(calls.find(1, &asked("a")).is_none());
        check(&mut calls, "b", 1, None);
        assert_eq!(calls.nearest(1, &asked("x")).unwrap().cell, 2, "the only one of its tool");
        assert_eq!(calls.missing(2).len(), 1);
    }

    #[test]
    fn arguments_can_be_the_same_by_rules() {
        let mut calls =
            RecordedCalls::new(vec![call(1, "at 10:00:00", [1, 2]), call(1, "at 11:00:00", [3, 4])]);
        check(&mut calls, "at 11:00:00", 1, Some(0));
        let found = calls.find(1, &asked("at 12:30:00")).unwrap();
        assert_eq!((found.place, found.likeness), (0, OutputLikeness::ByRules(["times"].into())));
    }
}
