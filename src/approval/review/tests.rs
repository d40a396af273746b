//! Every way to change a log is found, and nothing in a log does harm.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::approval::AuditContents;
use crate::approval::action::{Action, Target};
use crate::approval::audit::{Audit, CellOutput, LogBegin, LogSettings, SessionFace, chain};
use crate::approval::gate::Gate;
use crate::approval::policy::{ApprovalEffect, ApprovalPolicy};
use crate::approval::question::Approver;
use crate::approval::standing::StandingAnswers;
use crate::ground::env::Variables;

/// A log of two sessions side by side, each with a cell and a call; both have ended.
pub(super) async fn log() -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let open = || {
        let settings = LogSettings {
            path: path.clone(),
            contents: AuditContents::Arguments,
            max_bytes: 1_000_000,
            kept_files: 1,
            workspace: directory.path().join("workspace"),
            face: SessionFace::Mcp,
            begin: LogBegin::AtOnce,
        };
        Audit::open(settings, Variables::default().redactor().clone()).unwrap()
    };
    let audits = [open(), open()];
    for (audit, text) in audits.iter().zip(["one", "two"]) {
        let gate = Gate::new(
            ApprovalPolicy::always(ApprovalEffect::Allow),
            StandingAnswers::default(),
            Duration::ZERO,
            audit.clone(),
        );
        let cell = audit.cell_started("1");
        let mut tool_args = Map::new();
        tool_args.insert("text".to_owned(), text.into());
        let action =
            Action::new("server".to_owned(), "write".to_owned(), tool_args, Target::Command("x".to_owned()));
        let (_, call) = gate.decide(action, &Approver::Consent).await.unwrap();
        call.result(|| json!("done"));
        cell.ended("finished", CellOutput::default());
    }
    for audit in &audits {
        audit.close().await;
    }
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn review_of(parts: &[&[u8]], filter: AuditFilter, heads: &[String]) -> AuditReport {
    let mut review = AuditReview::new(filter, heads).unwrap();
    for (number, part) in parts.iter().enumerate() {
        review.read(&format!("part{number}"), *part).unwrap();
    }
    review.finish()
}

fn review(text: &[u8]) -> AuditReport {
    review_of(&[text], AuditFilter::default(), &[])
}

pub(super) fn joined<T: AsRef<str>>(lines: &[T]) -> String {
    lines.iter().map(|line| format!("{}\n", line.as_ref())).collect()
}

/// The breaks: kind and line.
fn breaks(text: &str) -> Vec<(&'static str, u64)> {
    let report = review(text.as_bytes());
    assert_eq!(report.break_count, report.breaks.len() as u64);
    report.breaks.iter().map(|found| (found.kind.word(), found.place.map_or(0, |place| place.line))).collect()
}

#[track_caller]
fn check<T: AsRef<str>>(lines: &[T], expected: &[(&str, u64)]) {
    let text = joined(lines);
    assert_eq!(breaks(&text), expected, "{}\n{text}", review(text.as_bytes()));
}

/// Links records anew, as somebody would who knows how.
fn relinked(lines: &[String], mut previous: chain::ChainHead) -> Vec<String> {
    let records = lines.iter().map(|line| {
        let mut value: Map<String, Value> = serde_json::from_str(line).unwrap();
        let number = value.remove("number").unwrap().as_u64().unwrap();
        value.remove("previous");
        value.remove("hash");
        let (line, head) = chain::link(&Value::from(value).to_string(), number, previous);
        previous = head;
        String::from_utf8(line).unwrap().trim_end().to_owned()
    });
    records.collect()
}

fn head_before(line: &str) -> chain::ChainHead {
    let value: Value = serde_json::from_str(line).unwrap();
    chain::ChainHead::parse(value["previous"].as_str().unwrap().as_bytes()).unwrap()
}

#[tokio::test]
async fn an_untouched_log_is_whole_and_complete() {
    let log = log().await;
    let report = review(joined(&log).as_bytes());
    assert!(report.is_whole() && report.is_complete(), "{report}");
    let text = report.to_string();
    assert!(text.starts_with("the chain is whole: 12 records of 2 sessions\nhead: "), "{text}");
    assert!(
        text.contains("text='one'  [policy; result]") && text.contains("cells: 1 (1 finished)"),
        "{text}"
    );
}

#[tokio::test]
async fn every_edit_of_a_byte_is_found() {
    let text = joined(&log().await).into_bytes();
    for index in 0..text.len() {
        for flip in [1, 0x20, 0x80] {
            let mut edited = text.clone();
            edited[index] ^= flip;
            let report = review(&edited);
            assert!(!report.is_whole(), "byte {index} ^ {flip}: {report}");
        }
        let mut shorter = text.clone();
        shorter.remove(index);
        assert!(!review(&shorter).is_whole(), "without byte {index}");
        let mut longer = text.clone();
        longer.insert(index, b' ');
        assert!(!review(&longer).is_whole(), "one byte more at {index}");
    }
}

#[tokio::test]
async fn every_truncation_is_found() {
    let log = log().await;
    let text = joined(&log).into_bytes();
    let ends: Vec<usize> = (1..log.len()).map(|count| joined(&log[..count]).len()).collect();
    for length in 0..text.len() {
        let report = review(&text[..length]);
        // Between two records, the log itself cannot say that it went on.
        let is_whole = length == 0 || ends.contains(&length);
        assert_eq!((report.is_whole(), report.is_complete()), (is_whole, false), "{length}: {report}");
        assert!(
            is_whole || report.breaks.iter().all(|found| found.kind == breaks::BreakKind::Truncated),
            "{report}"
        );
    }
    let last = review(&text).findings.head.unwrap().to_string();
    let cut = review_of(&[&text[..ends[10]]], AuditFilter::default(), std::slice::from_ref(&last));
    assert!(!cut.is_whole() && cut.to_string().contains(&last), "{cut}");
}

#[tokio::test]
async fn edits_are_named_by_their_line() {
    let log = log().await;
    for index in 0..log.len() {
        let mut edited = log.clone();
        edited[index] = edited[index].replace("\"time\":\"2", "\"time\":\"3");
        check(&edited, &[("edited", index as u64 + 1)]);
        // With a hash that fits.
        let mut forged = log.clone();
        forged[index] = relinked(&edited[index..=index], head_before(&log[index])).remove(0);
        let expected: &[_] = if index + 1 < log.len() { &[("edited", index as u64 + 1)] } else { &[] };
        check(&forged, expected);
        // No record any more.
        let mut garbage = log.clone();
        garbage[index] = "\u{0}\u{1b}[31m garbage".to_owned();
        check(&garbage, &[("edited", index as u64 + 1)]);
    }
}

#[tokio::test]
async fn every_removal_is_found() {
    let log = log().await;
    for first in 0..log.len() {
        for end in first + 1..=log.len() {
            let left: Vec<_> = log[..first].iter().chain(&log[end..]).collect();
            let report = review(joined(&left).as_bytes());
            match (first, end == log.len()) {
                // Only a head can show this: a log that is rotated or still written looks the same.
                (0, _) | (_, true) => assert!(!report.is_complete(), "{first}..{end}: {report}"),
                _ => check(&left, &[("removed", first as u64 + 1)]),
            }
        }
    }
}

#[tokio::test]
async fn removed_records_are_found_if_all_others_are_linked_anew() {
    let log = log().await;
    for index in 1..log.len() - 1 {
        let mut left = log.clone();
        left.remove(index);
        let report = review(joined(&relinked(&left, chain::ChainHead::BEGINNING)).as_bytes());
        assert!(!report.is_complete(), "{index}: {report}");
    }
}

#[tokio::test]
async fn every_swap_and_move_is_found() {
    let log = log().await;
    for from in 0..log.len() {
        for to in (0..log.len()).filter(|to| *to != from) {
            let mut moved = log.clone();
            let line = moved.remove(from);
            moved.insert(to, line);
            assert!(!review(joined(&moved).as_bytes()).is_whole(), "{from} to {to}");
            let mut swapped = log.clone();
            swapped.swap(from, to);
            assert!(!review(joined(&swapped).as_bytes()).is_whole(), "{from} with {to}");
        }
    }
    for index in 1..log.len() - 1 {
        let mut swapped = log.clone();
        swapped.swap(index, index + 1);
        check(&swapped, &[("out of order", index as u64 + 2)]);
    }
}

#[tokio::test]
async fn every_insertion_is_found() {
    let log = log().await;
    for at in 1..log.len() {
        let line = at as u64 + 1;
        let mut copied = log.clone();
        copied.insert(at, log[at - 1].clone());
        check(&copied, &[("inserted", line)]);
        // Linked to the record before it.
        let mut forged = log.clone();
        forged.insert(at, relinked(&log[at - 1..at], head_before(&log[at])).remove(0));
        let found = breaks(&joined(&forged));
        assert!(!found.is_empty() && found.iter().all(|(kind, _)| *kind == "inserted"), "{found:?}");
        let mut without = log.clone();
        without.insert(at, r#"{"event":"decision","session":"x","decision":"accepted"}"#.to_owned());
        check(&without, &[("inserted", line)]);
    }
    let mut appended = log.clone();
    appended.push(r#"{"event":"decision","session":"x","decision":"accepted"}"#.to_owned());
    check(&appended, &[("inserted", log.len() as u64 + 1)]);
}

#[tokio::test]
async fn parts_are_one_chain() {
    let log = log().await;
    let parts: Vec<String> = log.chunks(4).map(joined).collect();
    let read = |order: &[usize]| {
        let parts: Vec<&[u8]> = order.iter().map(|part| parts[*part].as_bytes()).collect();
        review_of(&parts, AuditFilter::default(), &[])
    };
    assert!(read(&[0, 1, 2]).is_complete());
    for order in [&[0, 2][..], &[0, 2, 1], &[1, 0, 2]] {
        assert!(!read(order).is_whole(), "{order:?}");
    }
    let later = read(&[1, 2]);
    assert!(later.is_whole() && !later.is_complete(), "{later}");
    let begun_after = head_before(&log[4]).to_string();
    assert!(later.to_string().contains(&format!("the last of which has the hash {begun_after}")), "{later}");
    let known = review_of(&[parts[1].as_bytes()], AuditFilter::default(), &[begun_after]);
    assert!(known.is_whole(), "{known}");
}

#[tokio::test]
async fn heads_that_were_seen_are_found_again() {
    let log = log().await;
    let text = joined(&log);
    for line in &log {
        let head = chain::ChainHead::after(line.as_bytes()).to_string();
        assert!(review_of(&[text.as_bytes()], AuditFilter::default(), &[head]).is_complete());
    }
    let other = "0123456789abcdef".repeat(4);
    let report = review_of(&[text.as_bytes()], AuditFilter::default(), &[other]);
    assert!(!report.is_whole(), "{report}");
    assert!(AuditReview::new(AuditFilter::default(), &["\u{1b}no".to_owned()]).is_err());
}

#[tokio::test]
async fn logs_of_earlier_versions_are_read_and_cannot_be_verified() {
    let log = log().await;
    let old: Vec<String> = log
        .iter()
        .map(|line| {
            let mut value: Map<String, Value> = serde_json::from_str(line).unwrap();
            value.retain(|name, _| !["number", "previous", "hash"].contains(&name.as_str()));
            Value::from(value).to_string()
        })
        .collect();
    let report = review(joined(&old).as_bytes());
    let text = report.to_string();
    assert!(
        text.starts_with("nothing can be verified: no record has a hash\nnote: 12 records without"),
        "{text}"
    );
    assert!(report.is_complete() && text.contains("server\n    write: 1 permitted"), "{text}");
    // A new version goes on with it; then the old end is protected too.
    let head = chain::ChainHead::after(old[11].as_bytes());
    let new = relinked(&log, head);
    let both: Vec<String> = old.iter().chain(&new).cloned().collect();
    check(&both, &[]);
    let mut edited = both.clone();
    edited[11] = edited[11].replace("session_ended", "session_begun");
    assert_eq!(breaks(&joined(&edited)).len(), 1);
}

#[tokio::test]
async fn half_a_line_of_a_killed_process_is_no_break() {
    let log = log().await;
    let torn = &log[3][..40];
    let (line, _) = chain::link(
        r#"{"session":"z","event":"session_ended"}"#,
        1,
        chain::ChainHead::after(torn.as_bytes()),
    );
    let text = joined(&log) + torn + "\n" + std::str::from_utf8(&line).unwrap();
    let report = review(text.as_bytes());
    assert!(report.is_whole() && report.to_string().contains("1 line is no whole record"), "{report}");
}

#[test]
fn filters_choose_what_is_counted() {
    let at = |hour: u64, session: &str, server: &str| {
        json!({
            "time": format!("2026-01-01T{hour:02}:00:00.000Z"), "session": session, "event": "decision",
            "server": server, "tool": "t", "arguments": {}, "decision": "accepted", "by": "policy",
        })
        .to_string()
    };
    let text = joined(&[at(1, "aa", "x"), at(2, "ab", "x"), at(3, "ab", "y"), at(4, "b", "y")]);
    let count = |filter: AuditFilter| {
        let report = review_of(&[text.as_bytes()], filter, &[]);
        report
            .tally
            .sessions
            .values()
            .flat_map(|session| session.tools.values())
            .map(|tool| tool.permitted)
            .sum::<u64>()
    };
    assert_eq!(count(AuditFilter::default()), 4);
    assert_eq!(count(AuditFilter { session: Some("a".to_owned()), ..AuditFilter::default() }), 3);
    assert_eq!(count(AuditFilter { server: Some("y".to_owned()), ..AuditFilter::default() }), 2);
    let (since, until) = (rfc3339_seconds("2026-01-01T02:00:00Z"), rfc3339_seconds("2026-01-01T03:00:00Z"));
    assert_eq!(count(AuditFilter { since, until, ..AuditFilter::default() }), 2);
}

#[test]
fn nothing_in_a_log_reaches_a_terminal() {
    let line = json!({
        "time": "\u{1b}[2J", "session": "\u{1b}]0;x\u{7}", "event": "decision", "server": "\u{202e}\u{9b}", "tool": "\u{8}",
        "target": "\u{1b}", "arguments": {"\u{1b}": "\u{1b}", "b": ["\u{7f}"]}, "decision": "accepted",
        "by": "\u{1b}", "via": "\u{200b}", "face": "\n", "end": "\r",
    })
    .to_string();
    let lines = [
        line.clone(),
        line.replace("decision\",\"server", "session_started\",\"server"),
        line.replace("\"decision\",\"s", "\"cell_ended\",\"s"),
    ];
    let report = review_of(&[joined(&lines).as_bytes()], AuditFilter::default(), &[]);
    for text in [report.to_string(), report.to_json().unwrap()] {
        assert!(text.chars().all(|c| c == '\n' || c == '…' || (' '..='~').contains(&c)), "{text:?}");
    }
}

proptest! {
    #[test]
    fn anything_is_read(lines in prop::collection::vec(prop_oneof![
        ".{0,80}", r#"\{"event":"(decision|call_ended|cell_ended)","session":"[ab]","call":"[ab]","number":[0-9]{1,20}\}"#,
    ], 0..20), noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = [joined(&lines).into_bytes(), noise].concat();
        let report = review_of(&[&text], AuditFilter::default(), &[]);
        prop_assert!(report.to_json().is_ok() && !report.to_string().is_empty());
    }
}
