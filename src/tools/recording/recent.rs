//! The newest calls of a session, in memory: an action that is saved is tested with their answers.

use std::collections::VecDeque;

use super::line::RecordedCall;

/// The bytes of calls that are kept, their number, and the number of cells, the newest, whose calls they are.
const MOST_BYTES: usize = 8 * 1024 * 1024;
const MOST_CALLS: usize = 4096;
const MOST_CELLS: u64 = 20;

/// The largest answer that is kept if nothing else records it, in bytes.
pub(super) const ANSWER_BYTES: usize = 512 * 1024;

/// The calls, the oldest first, with their sizes.
#[derive(Default)]
pub(super) struct RecentCalls {
    calls: VecDeque<(usize, RecordedCall)>,
    bytes: usize,
}

impl RecentCalls {
    /// Adds a call of so many bytes that has an answer, and forgets the oldest ones.
    pub(super) fn put(&mut self, call: RecordedCall, bytes: usize) {
        if call.answer.is_none() || call.decision != "accepted" || bytes > MOST_BYTES {
            return;
        }
        let cell = call.cell;
        self.bytes += bytes;
        self.calls.push_back((bytes, call));
        let is_old = |(_, oldest): &(usize, RecordedCall)| oldest.cell + MOST_CELLS <= cell;
        while self.bytes > MOST_BYTES
            || self.calls.len() > MOST_CALLS
            || self.calls.front().is_some_and(is_old)
        {
            self.bytes -= self.calls.pop_front().map_or(0, |(bytes, _)| bytes);
        }
    }

    /// The calls of the newest cell first, and of each cell the earliest first.
    pub(super) fn newest_first(&self) -> Vec<RecordedCall> {
        let mut calls: Vec<RecordedCall> = self.calls.iter().map(|(_, call)| call.clone()).collect();
        calls.sort_by_key(|call| (std::cmp::Reverse(call.cell), call.order[0]));
        calls
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn call(cell: u64, order: u64) -> RecordedCall {
        RecordedCall {
            cell,
            server: "s".to_owned(),
            tool: "t".to_owned(),
            arguments: Map::new(),
            answer: Some(json!({"result": order})),
            left_out: None,
            decision: "accepted".to_owned(),
            by: "policy".to_owned(),
            duration_ms: 0,
            order: [order, order + 1],
        }
    }

    fn kept(calls: &RecentCalls) -> Vec<[u64; 2]> {
        calls.newest_first().iter().map(|call| [call.cell, call.order[0]]).collect()
    }

    #[test]
    fn the_newest_cells_come_first_and_the_oldest_are_forgotten() {
        let mut calls = RecentCalls::default();
        for cell in 1..=MOST_CELLS + 2 {
            calls.put(call(cell, 4 * cell), 10);
            calls.put(call(cell, 4 * cell + 2), 10);
        }
        let kept = kept(&calls);
        assert_eq!(kept.len(), 40);
        assert_eq!((kept[..3].to_vec(), kept[39]), (vec![[22, 88], [22, 90], [21, 84]], [3, 14]));
    }

    #[test]
    fn they_take_no_more_memory_than_there_is_for_them() {
        let mut calls = RecentCalls::default();
        let denied = RecordedCall { decision: "denied".to_owned(), ..call(1, 1) };
        calls.put(denied, 10);
        calls.put(RecordedCall { answer: None, ..call(1, 1) }, 10);
        calls.put(call(1, 1), MOST_BYTES + 1);
        assert!(kept(&calls).is_empty());
        for number in 0..4 {
            calls.put(call(1, number), MOST_BYTES / 3);
        }
        assert_eq!((kept(&calls), calls.bytes), (vec![[1, 1], [1, 2], [1, 3]], MOST_BYTES / 3 * 3));
    }
}
