use std::sync::Arc;

use parking_lot::Mutex;

use super::super::AuditReview;
use super::super::tests::{joined, log};
use super::*;
use crate::approval::audit::chain;

/// A place that an export writes to.
#[derive(Clone, Default)]
struct Exported(Arc<Mutex<Vec<u8>>>);

impl Write for Exported {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The events of a log of OCSF, and whether its chain is whole.
fn exported(lines: &[String], filter: AuditFilter) -> (Vec<Value>, bool) {
    let output = Exported::default();
    let user = json!({"name": "ann"});
    let review = AuditReview::new(filter, &[]).unwrap();
    let mut review = review.exporting(Some(user), Box::new(output.clone()));
    review.read("log", joined(lines).as_bytes()).unwrap();
    let is_whole = review.finish_export().unwrap().is_whole();
    let text = String::from_utf8(output.0.lock().clone()).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), is_whole)
}

#[tokio::test]
async fn calls_are_exported_as_activities_of_an_api() {
    let log = log().await;
    let (events, is_whole) = exported(&log, AuditFilter::default());
    assert!(is_whole && events.len() == log.len());
    let of_call = |event: &&Value| event["class_uid"] == 6003;
    let calls: Vec<&Value> = events.iter().filter(of_call).collect();
    assert_eq!(calls.len(), 4, "{calls:#?}");
    for (place, event) in events.iter().enumerate() {
        let line: Value = serde_json::from_str(&log[place]).unwrap();
        assert_eq!(event["metadata"]["uid"], line["hash"]);
        assert_eq!(event["metadata"]["original_time"], line["time"]);
        let (class, activity) =
            (event["class_uid"].as_u64().unwrap(), event["activity_id"].as_u64().unwrap());
        assert_eq!(event["type_uid"], class * 100 + activity);
        assert!(event["time"].as_u64().unwrap() > 1_700_000_000_000, "{event}");
        assert_eq!(event["actor"]["user"]["name"], "ann");
    }
    let decision = calls.iter().find(|call| call["metadata"]["event_code"] == "decision").unwrap();
    assert_eq!(decision["api"]["operation"], "write");
    assert_eq!(decision["api"]["service"]["name"], "server");
    assert_eq!(decision["unmapped"]["arguments"], json!({"text": "one"}));
    assert_eq!((&decision["action_id"], &decision["status_id"]), (&json!(1), &json!(1)));
    let end = calls.iter().find(|call| call["metadata"]["event_code"] == "call_ended").unwrap();
    assert_eq!((&end["api"]["operation"], &end["status"]), (&json!("write"), &json!("result")));
    // By the server, ends of its calls too.
    let filter = AuditFilter { server: Some("server".to_owned()), ..AuditFilter::default() };
    assert_eq!(exported(&log, filter).0.len(), 4);
}

#[tokio::test]
async fn an_export_ends_where_the_chain_is_broken() {
    let log = log().await;
    let prefix = |events: &[Value], count: usize| {
        events.len() <= count
            && events
                .iter()
                .zip(&log)
                .all(|(event, line)| line.contains(event["metadata"]["uid"].as_str().unwrap()))
    };
    for place in 1..log.len() - 1 {
        let mut edited = log.clone();
        edited[place] = edited[place].replacen("\"session\":\"", "\"session\":\"f", 1);
        let mut removed = log.clone();
        removed.remove(place);
        // With a hash of its own, as somebody would insert it who has no other.
        let mut inserted = log.clone();
        let before = chain::ChainHead::after(log[place - 1].as_bytes());
        let forged = r#"{"time":"2026-01-01T00:00:00.000Z","session":"x","event":"session_started"}"#;
        let (line, _) = chain::link(forged, 1, before);
        inserted.insert(place, String::from_utf8(line).unwrap().trim_end().to_owned());
        for (what, lines) in [("edited", edited), ("removed", removed), ("inserted", inserted)] {
            let (events, is_whole) = exported(&lines, AuditFilter::default());
            assert!(!is_whole && prefix(&events, place), "{what} at {place}: {events:#?}");
        }
    }
}
