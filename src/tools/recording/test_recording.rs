//! The recording of one cell, which tests a saved action. Pure.

use std::collections::BTreeMap;

use super::line::{
    FORMAT, RecordedCall, RecordedCell, RecordedMoment, RecordedServer, RecordedSession, RecordingLine,
};
use super::writer::written;

/// The parts of such a recording.
pub(crate) struct TestRecording {
    pub(crate) time: String,
    pub(crate) workspace: String,
    pub(crate) site: &'static str,
    pub(crate) seed: u32,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) servers: Vec<RecordedServer>,
    /// Those of the cell.
    pub(crate) calls: Vec<RecordedCall>,
    /// The cell, with the number 1.
    pub(crate) cell: RecordedCell,
}

impl TestRecording {
    /// The text of the file.
    pub(crate) fn text(self) -> serde_json::Result<String> {
        let Self { time, workspace, site, seed, environment, servers, calls, cell } = self;
        let first = RecordingLine::Session(RecordedSession {
            format: FORMAT,
            ipybox: env!("CARGO_PKG_VERSION").to_owned(),
            session: "test".to_owned(),
            time,
            workspace,
            site: site.to_owned(),
            seed,
            environment,
            branch_of: None,
        });
        let servers = servers.into_iter().map(|server| RecordingLine::Server(Box::new(server)));
        let calls = calls.into_iter().map(|call| RecordingLine::Call(Box::new(call)));
        let last = [RecordingLine::Cell(Box::new(cell)), RecordingLine::End(RecordedMoment { cells: 1 })];
        let lines = std::iter::once(first).chain(servers).chain(calls).chain(last);
        let mut text = Vec::new();
        for line in lines {
            text.extend(written(&line)?);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// The calls that code has made again, as those of one cell: `used` are their places in `calls`. Two overlap if they were calls
/// of the same cell and overlapped there.
pub(crate) fn as_one_cell(calls: &[RecordedCall], used: &[usize]) -> Vec<RecordedCall> {
    let mut together: Vec<&RecordedCall> = Vec::new();
    let mut group = 0;
    let mut made = Vec::new();
    for call in used.iter().filter_map(|place| calls.get(*place)) {
        let overlaps = |other: &&RecordedCall| {
            other.cell == call.cell && other.order[0] < call.order[1] && call.order[0] < other.order[1]
        };
        if !together.iter().any(overlaps) {
            together.clear();
            group += 1;
        }
        together.push(call);
        made.push(RecordedCall { cell: 1, order: [2 * group - 1, 2 * group], ..call.clone() });
    }
    made
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn call(cell: u64, order: [u64; 2]) -> RecordedCall {
        RecordedCall {
            cell,
            server: "s".to_owned(),
            tool: "t".to_owned(),
            arguments: Map::new(),
            answer: Some(json!({"result": 1})),
            left_out: None,
            decision: "accepted".to_owned(),
            by: "policy".to_owned(),
            duration_ms: 0,
            order,
        }
    }

    #[test]
    fn calls_overlap_only_if_they_did() {
        let calls = [call(5, [1, 2]), call(5, [3, 6]), call(5, [4, 5]), call(2, [1, 9])];
        let orders =
            |used: &[usize]| as_one_cell(&calls, used).iter().map(|call| call.order).collect::<Vec<_>>();
        assert_eq!(orders(&[0, 2, 1]), [[1, 2], [3, 4], [3, 4]]);
        assert_eq!(orders(&[3, 0]), [[1, 2], [3, 4]], "of different cells");
        assert!(as_one_cell(&calls, &[3]).iter().all(|call| call.cell == 1));
    }
}
