//! Asks an approval policy about the calls of a recording or an audit log. None is made, and no code runs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ReplayOptions;
use super::report::{CellDifference, ReplayReport, ReplayedCell};
use super::source::ReplaySource;
use crate::approval::{ApprovalPolicy, JudgedCall, LoggedDecision, PastJudgement, ToolAnnotations};
use crate::tools::recording::{ReadRecording, RecordedCall, RecordedServer, RecordingLine};
use crate::tools::registry::recorded_target;

/// The number of differences that are listed.
const MOST_DIFFERENCES: usize = 1_000;

const NO_SERVER: &str = "the recording does not have its server";

/// A policy that is asked about calls, in their order.
pub(super) struct PolicyCourse<'a> {
    policy: &'a ApprovalPolicy,
    report: ReplayReport,
    /// The session of the newest cell.
    session: String,
    listed: usize,
}

impl<'a> PolicyCourse<'a> {
    /// Has the policy of the options judge all calls of a file. Blocks.
    pub(super) fn judge_all(options: &'a ReplayOptions, source: ReplaySource) -> ReplayReport {
        let is_complete = match &source {
            ReplaySource::Recording(recording) => recording.is_complete,
            ReplaySource::AuditLog(_) => true,
        };
        let report = ReplayReport::new(options, is_complete);
        let course = Self { policy: &options.policy, report, session: String::new(), listed: 0 };
        match source {
            ReplaySource::Recording(recording) => course.recording(recording),
            ReplaySource::AuditLog(bytes) => course.log(&bytes),
        }
    }

    /// Judges the decisions of an audit log. Lines that are none say nothing about calls.
    fn log(mut self, bytes: &[u8]) -> ReplayReport {
        for LoggedDecision { session, cell, call } in
            bytes.split(|byte| *byte == b'\n').filter_map(LoggedDecision::read)
        {
            let judgement = self.policy.judge_past(&call);
            self.judge(&session, cell, &call.words(), judgement);
        }
        self.report
    }

    /// Judges the calls of a recording.
    fn recording(mut self, recording: ReadRecording) -> ReplayReport {
        let mut servers: BTreeMap<String, RecordedServer> = BTreeMap::new();
        for (_, line) in recording.lines {
            match line {
                RecordingLine::Server(server) => {
                    servers.insert(server.name.clone(), *server);
                }
                RecordingLine::Call(call) => {
                    let cell = call.cell;
                    let name = format!("{}.{}", call.server, call.tool);
                    let server = servers.get(&call.server);
                    match decided(*call, server) {
                        Some(call) => self.judge("", cell, &call.words(), self.policy.judge_past(&call)),
                        None => self.judge("", cell, &name, PastJudgement::Unknown(NO_SERVER)),
                    }
                }
                _ => {}
            }
        }
        self.report
    }

    /// Judges a call, or says why it cannot be judged.
    fn judge(&mut self, session: &str, cell: u64, words: &str, judgement: PastJudgement) {
        let is_new = self.report.cells.last().is_none_or(|last| last.cell != cell) || self.session != session;
        if is_new {
            session.clone_into(&mut self.session);
            let session = (!session.is_empty()).then(|| session.to_owned());
            self.report.cells.push(ReplayedCell { cell, session, result: "same", ..ReplayedCell::default() });
        }
        let Some(judged) = self.report.cells.last_mut() else { return };
        let (kind, judgement) = match judgement {
            PastJudgement::Same => {
                judged.calls += 1;
                return;
            }
            PastJudgement::Otherwise(words) => ("decision", words),
            PastJudgement::Unknown(why) => ("unknown_decision", format!("cannot be judged: {why}")),
        };
        judged.result = "different";
        self.listed += 1;
        if self.listed <= MOST_DIFFERENCES {
            let words = format!("`{words}`: {judgement}");
            judged.differences.push(CellDifference { kind, words, diff: Vec::new() });
        }
    }
}

/// A recorded call as policies judge it; `None` if it is not known what is behind the name of its server.
fn decided(call: RecordedCall, server: Option<&RecordedServer>) -> Option<JudgedCall> {
    let server = server?;
    let is_method = call.tool.contains('/') && !server.tools.iter().any(|tool| tool.name == call.tool);
    let read = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    Some(JudgedCall {
        annotations: if is_method { Some(read) } else { server.annotations.get(&call.tool).copied() },
        target: recorded_target(server)?,
        arguments: Some(Value::Object(call.arguments)),
        provenance: None,
        is_accepted: call.decision == "accepted",
        by: call.by,
        server: call.server,
        tool: call.tool,
    })
}
