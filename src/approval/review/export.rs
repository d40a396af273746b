//! The records of a log as events of OCSF, one a line, as far as its chain is whole.
//!
//! A record is written when the one after it has shown to follow it: what somebody has inserted is not. At the first doubt
//! nothing more is written, and the review says where that is.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::AuditFilter;
use crate::approval::audit::AuditRecord;
use crate::ground::text::visible;

/// The version of the schema.
const SCHEMA: &str = "1.3.0";
/// The class of calls: API Activity, in the category Application Activity.
const API_ACTIVITY: (u32, u32) = (6003, 6);
/// The class of all else: Base Event.
const BASE_EVENT: (u32, u32) = (0, 0);
/// An activity that the class has no name for.
const OTHER: u32 = 99;
/// The activity of calls that only read.
const READ: u32 = 2;
/// The number of calls without an end, and of sessions, that are remembered, the newest.
const REMEMBERED: usize = 20_000;

/// Writes events.
pub(super) struct OcsfExport {
    /// The user whose log it is, as OCSF describes users.
    user: Option<Value>,
    output: Box<dyn Write + Send>,
    /// The last record, whose successor has not come yet.
    held: Option<(AuditRecord, Map<String, Value>)>,
    calls: NewestEntries<ExportedCall>,
    /// The versions of ipybox that sessions have.
    versions: NewestEntries<String>,
}

#[derive(Clone)]
struct ExportedCall {
    server: Value,
    tool: Value,
    activity: u32,
}

impl fmt::Debug for OcsfExport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OcsfExport").finish_non_exhaustive()
    }
}

impl OcsfExport {
    pub(super) fn new(user: Option<Value>, output: Box<dyn Write + Send>) -> Self {
        Self { user, output, held: None, calls: NewestEntries::default(), versions: NewestEntries::default() }
    }

    /// Takes the next record of the chain, and writes the one before it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, line: &[u8], filter: &AuditFilter) -> io::Result<()> {
        self.write(filter)?;
        let record = AuditRecord::read(line);
        self.held = record.and_then(|record| Some((record, serde_json::from_slice(line).ok()?)));
        Ok(())
    }

    /// Writes the last record.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn finish(&mut self, filter: &AuditFilter) -> io::Result<()> {
        self.write(filter)?;
        self.output.flush()
    }

    fn write(&mut self, filter: &AuditFilter) -> io::Result<()> {
        let Some((record, fields)) = self.held.take() else { return Ok(()) };
        let call = self.remember(&record);
        let server = call.as_ref().and_then(|call| call.server.as_str());
        let is_wanted = filter.has_session(&record.session)
            && filter.has_server(server)
            && filter.has_time(record.instant());
        if !is_wanted {
            return Ok(());
        }
        let line = visible::json(&serde_json::to_string(&self.event(&record, fields, call))?);
        let written = writeln!(self.output, "{line}");
        written.map_err(|error| io::Error::new(error.kind(), format!("an event cannot be written: {error}")))
    }

    /// The call that a record is about.
    fn remember(&mut self, record: &AuditRecord) -> Option<ExportedCall> {
        match record.event.as_str() {
            "session_started" => {
                self.versions.insert(record.session.clone(), record.version.clone().unwrap_or_default());
                None
            }
            "decision" => {
                let reads = record.annotations.as_ref().is_some_and(|known| known.read_only == Some(true));
                let call = ExportedCall {
                    server: json!(record.server),
                    tool: json!(record.tool),
                    activity: if reads { READ } else { OTHER },
                };
                if record.is_accepted() {
                    self.calls.insert(record.call.clone().unwrap_or_default(), call.clone());
                }
                Some(call)
            }
            "call_ended" => {
                let known = record.call.as_ref().and_then(|call| self.calls.remove(call));
                Some(known.unwrap_or(ExportedCall {
                    server: json!("unknown"),
                    tool: json!("unknown"),
                    activity: OTHER,
                }))
            }
            _ => None,
        }
    }

    fn event(
        &self,
        record: &AuditRecord,
        mut fields: Map<String, Value>,
        call: Option<ExportedCall>,
    ) -> Value {
        let mut take = |name: &str| fields.remove(name).unwrap_or_default();
        let name = take("event");
        let original_time = take("time");
        let hash = take("hash");
        let number = take("number");
        let id = take("call");
        take("session");
        let (status_id, status) = status(record);
        let (class, category) = if call.is_some() { API_ACTIVITY } else { BASE_EVENT };
        let activity = call.as_ref().map_or(OTHER, |call| call.activity);
        let mut event = json!({
            "activity_id": activity,
            "activity_name": if activity == READ { json!("Read") } else { name.clone() },
            "category_uid": category,
            "class_uid": class,
            "type_uid": class * 100 + activity,
            "time": record.instant().map(|time| time.timestamp_millis()),
            "severity_id": severity(record),
            "status_id": status_id,
            "status": status,
            "status_detail": take("reason"),
            "duration": take("duration_ms"),
            "message": name.clone(),
            "metadata": {
                "version": SCHEMA,
                "product": {
                    "name": "ipybox",
                    "vendor_name": "ipybox",
                    "version": self.versions.get(&record.session),
                },
                "uid": hash,
                "sequence": number,
                "event_code": name,
                "log_name": "audit",
                "original_time": original_time,
                "correlation_uid": id.clone(),
            },
            "actor": {"user": self.user, "session": {"uid": record.session}, "app_name": "ipybox"},
        });
        if let Some(call) = call {
            for known in ["server", "tool"] {
                take(known);
            }
            event["api"] =
                json!({"operation": call.tool, "service": {"name": call.server}, "request": {"uid": id}});
            event["src_endpoint"] = json!({"name": "kernel", "instance_uid": record.session});
        }
        if let Some(verdict) = record.decision.as_ref() {
            event["metadata"]["profiles"] = json!(["security_control"]);
            event["action_id"] = json!(if record.is_accepted() { 1 } else { 2 });
            event["action"] = json!(verdict);
            event["disposition_id"] = event["action_id"].clone();
            take("decision");
        }
        event["unmapped"] = Value::Object(fields);
        remove_nulls(&mut event);
        event
    }
}

/// Its end, as OCSF has it, and in the log's word.
fn status(record: &AuditRecord) -> (Option<u32>, Option<&str>) {
    let word = match record.event.as_str() {
        "decision" => record.decision.as_deref(),
        "call_ended" => record.outcome.as_deref(),
        "cell_ended" => record.end.as_deref(),
        _ => None,
    };
    let id = word.map(|word| match word {
        "accepted" | "result" | "finished" => 1,
        "denied" | "error" | "timed_out" | "died" => 2,
        _ => OTHER,
    });
    (id, word)
}

/// Informational; low what was denied, high what the log lacks.
fn severity(record: &AuditRecord) -> u32 {
    match record.event.as_str() {
        "events_lost" => 4,
        "decision" if !record.is_accepted() => 2,
        _ => 1,
    }
}

/// Removes what is not known, but for what the log has as it is.
fn remove_nulls(value: &mut Value) {
    let Value::Object(members) = value else { return };
    members.retain(|_, member| !member.is_null());
    members.iter_mut().filter(|(name, _)| *name != "unmapped").for_each(|(_, member)| remove_nulls(member));
}

/// Entries by name, of which the oldest makes room.
struct NewestEntries<T> {
    entries: HashMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Default for NewestEntries<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> NewestEntries<T> {
    fn insert(&mut self, name: String, entry: T) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(name.clone());
        self.entries.insert(name, entry);
    }

    fn get(&self, name: &str) -> Option<&T> {
        self.entries.get(name)
    }

    fn remove(&mut self, name: &str) -> Option<T> {
        self.entries.remove(name)
    }
}

#[cfg(test)]
mod tests;
