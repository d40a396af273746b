//! Which grants a log uses without a record that they were given, or more often than they allow. Bounded.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::approval::audit::AuditRecord;

/// The number of sessions that are looked at.
const SESSIONS: usize = 5_000;

/// The number of grants that are known in all.
const GRANTS: usize = 100_000;

/// The number of grants that are named.
const NAMED: usize = 20;

/// The grants of a log.
#[derive(Debug, Default)]
pub(super) struct GrantUses {
    /// The sessions whose beginning is in the log: of others a grant may have been given before.
    begun: HashSet<String>,
    /// The number of calls that each grant still allows, by session and id.
    left: HashMap<(String, u64), u64>,
    /// The number of uses of a grant that was not given, or was used up.
    wrong: BTreeMap<(String, u64, Wrong), u64>,
    wrong_in_all: u64,
}

/// A fault of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    NotGiven,
    UsedUp,
}

impl GrantUses {
    pub(super) fn add(&mut self, record: &AuditRecord) {
        if record.event == "session_started" && self.begun.len() < SESSIONS {
            self.begun.insert(record.session.clone());
        }
        let is_by_grant = record.event == "decision" && record.by.as_deref() == Some("grant");
        if !is_by_grant || !record.is_accepted() || !self.begun.contains(&record.session) {
            return;
        }
        let number =
            |name: &str| record.grant.as_ref().and_then(|grant| grant.get(name)).and_then(Value::as_u64);
        if !record.earlier && number("id").is_none() {
            // The log has shortened it, so that nobody can count its uses.
            self.begun.remove(&record.session);
            return;
        }
        // A use without an id is a use of none.
        let key = (record.session.clone(), number("id").unwrap_or(0));
        if !record.earlier {
            if self.left.len() < GRANTS {
                let count = record.grant.as_ref().and_then(|grant| grant.pointer("/grant/count"));
                let left = count.and_then(Value::as_u64).unwrap_or(0).saturating_sub(1);
                // One id is one grant: a second one gives no more calls.
                self.left.entry(key).or_insert(left);
            }
            return;
        }
        let is_full = self.left.len() == GRANTS;
        let wrong = match self.left.get_mut(&key) {
            Some(left @ 1..) => {
                *left -= 1;
                return;
            }
            Some(_) => Wrong::UsedUp,
            // It may have been given when there were too many to know.
            None if is_full => return,
            None => Wrong::NotGiven,
        };
        self.wrong_in_all += 1;
        let found = (key.0, key.1, wrong);
        if self.wrong.len() < NAMED || self.wrong.contains_key(&found) {
            *self.wrong.entry(found).or_default() += 1;
        }
    }

    /// The findings, in words.
    pub(super) fn notes(&self) -> Vec<String> {
        let named = self.wrong.iter().map(|((session, id, wrong), count)| {
            let calls = if *count == 1 { "1 call".to_owned() } else { format!("{count} calls") };
            let why = match wrong {
                Wrong::NotGiven => "was not given before",
                Wrong::UsedUp => "was used up",
            };
            format!("{calls} of session {} ran by grant {id}, which {why}", super::shown(session))
        });
        let mut notes: Vec<_> = named.collect();
        if let Some(more @ 1..) = self.wrong_in_all.checked_sub(self.wrong.values().sum()) {
            notes
                .push(format!("{more} more calls ran by grants that were not given before, or were used up"));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(records: &[Value], expected: &[&str]) {
        let mut uses = GrantUses::default();
        let started = json!({"session": "s", "event": "session_started"});
        for record in std::iter::once(&started).chain(records) {
            uses.add(&AuditRecord::read(record.to_string().as_bytes()).unwrap());
        }
        assert_eq!(uses.notes(), expected);
    }

    fn decision(fields: Value) -> Value {
        let mut record = json!({"session": "s", "event": "decision", "decision": "accepted", "by": "grant"});
        record.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        record
    }

    fn given(id: u64, count: u64) -> Value {
        decision(json!({"grant": {"id": id, "left": count - 1, "grant": {"count": count}}}))
    }

    fn used(id: u64) -> Value {
        decision(json!({"earlier": true, "grant": {"id": id, "left": 0}}))
    }

    #[test]
    fn a_grant_is_used_as_often_as_it_allows() {
        check(&[given(1, 3), used(1), used(1)], &[]);
        check(
            &[given(1, 2), used(1), used(1), used(1)],
            &["2 calls of session s ran by grant 1, which was used up"],
        );
        // A second record of the same grant gives nothing.
        check(
            &[given(1, 1), given(1, 100), used(1)],
            &["1 call of session s ran by grant 1, which was used up"],
        );
    }

    #[test]
    fn a_grant_that_was_never_given_is_named() {
        check(&[used(7), given(7, 3)], &["1 call of session s ran by grant 7, which was not given before"]);
        check(
            &[decision(json!({"earlier": true}))],
            &["1 call of session s ran by grant 0, which was not given before"],
        );
        check(
            &[decision(json!({"earlier": true, "grant": "x"}))],
            &["1 call of session s ran by grant 0, which was not given before"],
        );
        check(&[decision(json!({"grant": "{… [70000 bytes in all]"})), used(1)], &[]);
        let other = decision(json!({"session": "other", "earlier": true, "grant": {"id": 1}}));
        check(std::slice::from_ref(&other), &[]);
        let begun = json!({"session": "other", "event": "session_started"});
        check(
            &[given(1, 9), begun, other],
            &["1 call of session other ran by grant 1, which was not given before"],
        );
        check(
            &[decision(json!({"earlier": true, "by": "session"})), decision(json!({"decision": "denied"}))],
            &[],
        );
    }

    #[test]
    fn many_are_counted() {
        let uses: Vec<_> = (1..=30).map(used).collect();
        let mut grants = GrantUses::default();
        grants.begun.insert("s".to_owned());
        for record in &uses {
            grants.add(&AuditRecord::read(record.to_string().as_bytes()).unwrap());
        }
        let notes = grants.notes();
        assert_eq!(notes.len(), NAMED + 1);
        assert_eq!(notes[NAMED], "10 more calls ran by grants that were not given before, or were used up");
    }
}
