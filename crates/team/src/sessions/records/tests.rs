use super::*;

fn records(directory: &Path) -> Arc<SessionRecords> {
    Arc::new(SessionRecords::open(directory.to_owned(), 2).unwrap())
}

fn state() -> SessionState {
    SessionState::new(InitializeRequestParams::default())
}

fn wish(slot: &SessionSlot) -> serde_json::Value {
    serde_json::from_value(slot.wish()).unwrap()
}

/// Begins a session, as a request of a client does.
async fn begin(records: &Arc<SessionRecords>, owner: &str, id: &str, keeper: &str) -> Vec<String> {
    let slot = records.slot(owner, None);
    slot.set_keeper(keeper);
    records.store(id, &state()).await.unwrap();
    assert!(!records.is_owned(id, owner), "nobody has it yet");
    records.bind(id, &slot)
}

#[tokio::test]
async fn a_session_is_its_users_and_found_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = records(directory.path());
    assert_eq!(begin(&first, "ann", "1", "k1").await, Vec::<String>::new());
    for records in [first, records(directory.path())] {
        assert!(records.is_owned("1", "ann"));
        assert!(!records.is_owned("1", "bob") && !records.is_owned("2", "ann"));
        assert!(records.load("1").await.unwrap().is_some());
        assert_eq!(wish(&records.slot("ann", Some("1"))), json!({"session":"k1","leave":[]}));
        assert_eq!(wish(&records.slot("ann", None)), json!({"session": null,"leave":["k1"]}));
        assert_eq!(wish(&records.slot("bob", None)), json!({"session": null,"leave":[]}));
    }
}

#[tokio::test]
async fn a_session_that_is_deleted_leaves_its_kernel_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let first = records(directory.path());
    begin(&first, "ann", "1", "k1").await;
    first.delete("1").await.unwrap();
    for records in [first, records(directory.path())] {
        assert!(!records.is_owned("1", "ann") && records.load("1").await.unwrap().is_none());
        assert_eq!(wish(&records.slot("ann", None)), json!({"session": null,"leave":[]}));
    }
}

#[tokio::test]
async fn the_oldest_of_too_many_sessions_goes() {
    let directory = tempfile::tempdir().unwrap();
    let records = records(directory.path());
    begin(&records, "ann", "1", "k1").await;
    records.records.lock().get_mut("1").unwrap().used -= 10;
    begin(&records, "bob", "2", "k2").await;
    begin(&records, "ann", "3", "k3").await;
    assert_eq!(begin(&records, "ann", "4", "k4").await, ["1"]);
    assert!(!records.is_owned("1", "ann") && records.is_owned("3", "ann") && records.is_owned("2", "bob"));
}

#[tokio::test]
async fn what_is_no_record_is_removed_and_ids_are_in_no_name() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("junk.json"), "{").unwrap();
    let records = records(directory.path());
    begin(&records, "ann", "secret-id", "k1").await;
    let names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1);
    assert!(!names[0].to_str().unwrap().contains("secret"));
}
