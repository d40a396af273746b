use std::io::Read as _;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;

const PYTHON: (u32, u32) = (3, 12);

fn checkpoint(state_dir: &Path) -> Arc<Checkpoint> {
    let conditions = CheckpointConditions { site: "without a sandbox".to_owned(), policy: String::new() };
    Arc::new(Checkpoint::new(state_dir, conditions, &CheckpointOwner::Workspace))
}

fn started(state_dir: &Path) -> Arc<Checkpoint> {
    let checkpoint = checkpoint(state_dir);
    checkpoint.kernel_started(PYTHON.0, PYTHON.1);
    checkpoint
}

fn asked(checkpoint: &Checkpoint) -> u64 {
    checkpoint.cell_ended();
    checkpoint.begin().unwrap()
}

fn report(variables: &Value, restored: &[&str]) -> CheckpointReport {
    serde_json::from_value(json!({
        "python": "CPython 3.12", "has_cloudpickle": true, "restored": restored, "variables": variables, "missing": [],
    }))
    .unwrap()
}

async fn send(checkpoint: &Arc<Checkpoint>, number: u64, value: &str) -> Result<Value, Error> {
    let mut receiving = ArrivingValue::begin(checkpoint, number)?;
    receiving.write(value.as_bytes()).await?;
    receiving.finish().await?;
    Ok(json!(format!("{:x}", Sha256::digest(value))))
}

/// Saves these variables, whose values are their names.
async fn save(checkpoint: &Arc<Checkpoint>, names: &[&str], restored: &[&str]) {
    let number = asked(checkpoint);
    let mut sent = Vec::new();
    for name in names {
        let digest = send(checkpoint, number, name).await.unwrap();
        sent.push(json!({"name": name, "digest": digest, "bytes": name.len()}));
    }
    checkpoint.end(number, report(&json!(sent), restored)).unwrap();
}

fn offered(checkpoint: &Checkpoint) -> Vec<String> {
    let mut names: Vec<String> =
        checkpoint.saved().variables.into_iter().map(|variable| variable.name).collect();
    names.sort();
    names
}

fn values(checkpoint: &Checkpoint) -> usize {
    let state = checkpoint.state.lock();
    let place = state.open.as_ref().unwrap().directory.value("");
    std::fs::read_dir(place)
        .unwrap()
        .filter(|entry| manifest::is_digest(entry.as_ref().unwrap().file_name().to_str().unwrap()))
        .count()
}

#[tokio::test]
async fn a_later_kernel_is_offered_what_an_earlier_one_has_saved() {
    let state = tempfile::tempdir().unwrap();
    let first = started(state.path());
    save(&first, &["a", "b"], &[]).await;
    assert!(offered(&first).is_empty(), "it has them");
    first.kernel_started(PYTHON.0, PYTHON.1);
    assert!(first.notes().concat().contains("`a`, `b`"));
    drop(first);
    let second = started(state.path());
    assert_eq!(offered(&second), ["a", "b"]);
    let variable = &second.saved().variables[0];
    let (mut file, bytes) = second.load(&variable.name, &variable.digest).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), bytes), (variable.name.as_str(), 1));
    // Until it has restored them, or named them anew.
    save(&second, &["c"], &[]).await;
    assert_eq!(offered(&second), ["a", "b"]);
    save(&second, &["b", "c"], &[]).await;
    assert_eq!(offered(&second), ["a"]);
    assert_eq!(values(&second), 3);
    save(&second, &["b"], &["a"]).await;
    assert!(offered(&second).is_empty());
    assert_eq!(values(&second), 1, "the others are removed");
}

#[tokio::test]
async fn only_what_was_asked_for_is_taken() {
    let state = tempfile::tempdir().unwrap();
    let checkpoint = started(state.path());
    assert!(checkpoint.begin().is_none(), "no cell has ended");
    let number = asked(&checkpoint);
    checkpoint.cell_ended();
    assert!(checkpoint.begin().is_none(), "one at a time");
    assert!(matches!(send(&checkpoint, number + 1, "x").await, Err(Error::NotAsked)));
    let first = ArrivingValue::begin(&checkpoint, number).unwrap();
    assert!(matches!(send(&checkpoint, number, "x").await, Err(Error::Occupied)));
    assert!(checkpoint.end(number, report(&json!([]), &[])).is_err(), "a value is under way");
    drop(first);
    checkpoint.state.lock().saving.as_mut().unwrap().room = 3;
    assert!(matches!(send(&checkpoint, number, "four").await, Err(Error::TooLarge)));
    assert_eq!(values(&checkpoint), 0);
    send(&checkpoint, number, "two").await.unwrap();
    // The fresh kernel has another number.
    checkpoint.kernel_started(PYTHON.0, PYTHON.1);
    assert!(matches!(send(&checkpoint, number, "x").await, Err(Error::NotAsked)));
    assert!(matches!(checkpoint.end(number, report(&json!([]), &[])), Err(Error::NotAsked)));
    assert_eq!(values(&checkpoint), 0, "what had arrived is removed");
}

#[tokio::test(start_paused = true)]
async fn a_kernel_whose_save_has_died_is_asked_again() {
    let state = tempfile::tempdir().unwrap();
    let checkpoint = started(state.path());
    let number = asked(&checkpoint);
    checkpoint.ask_again();
    assert!(checkpoint.begin().is_none() && !checkpoint.is_saved());
    tokio::time::advance(SAVING_TIMEOUT).await;
    checkpoint.ask_again();
    checkpoint.due().await;
    let next = checkpoint.begin().unwrap();
    assert!(matches!(checkpoint.end(number, report(&json!([]), &[])), Err(Error::NotAsked)));
    checkpoint.end(next, report(&json!([]), &[])).unwrap();
    assert!(checkpoint.is_saved());
}

#[tokio::test]
async fn a_copy_saves_under_the_conditions_of_its_origin_before_a_rest_alone() {
    let state = tempfile::tempdir().unwrap();
    let origin = started(state.path());
    let confined = || CheckpointConditions { site: "in a sandbox".to_owned(), policy: "a".to_owned() };
    origin.move_to(confined());
    origin.kernel_started(PYTHON.0, PYTHON.1);
    let open = CheckpointConditions { site: "without a sandbox".to_owned(), policy: String::new() };
    let beside = CheckpointOwner::Beside { id: "copy".to_owned() };
    let copy = Arc::new(Checkpoint::new(state.path(), open.clone(), &beside));
    copy.kernel_copied(&origin);
    copy.cell_ended();
    assert!(copy.begin().is_none() && !copy.is_saved());
    copy.save_now();
    let number = copy.begin().unwrap();
    let digest = send(&copy, number, "a").await.unwrap();
    copy.end(number, report(&json!([{"name": "a", "digest": digest, "bytes": 1}]), &[])).unwrap();
    copy.kernel_rests();
    // Code that was not confined is offered nothing, and gets nothing back.
    copy.move_to(open);
    copy.kernel_started(PYTHON.0, PYTHON.1);
    assert!(offered(&copy).is_empty() && !copy.take_resuming());
    copy.move_to(confined());
    copy.kernel_started(PYTHON.0, PYTHON.1);
    assert_eq!(offered(&copy), ["a"]);
    copy.close();
    assert!(!state.path().join("checkpoints-beside/copy").exists());
}

#[tokio::test]
async fn nothing_stays_of_values_whose_document_cannot_be_written() {
    let state = tempfile::tempdir().unwrap();
    let checkpoint = started(state.path());
    save(&checkpoint, &["a"], &[]).await;
    let manifest = checkpoint.state.lock().open.as_ref().unwrap().directory.value("manifest.json");
    std::fs::remove_file(&manifest).unwrap();
    std::fs::create_dir(&manifest).unwrap();
    let number = asked(&checkpoint);
    let digest = send(&checkpoint, number, "b").await.unwrap();
    let sent = json!([{"name": "b", "digest": digest, "bytes": 1}]);
    assert!(matches!(checkpoint.end(number, report(&sent, &[])), Err(Error::Disk(_))));
    assert_eq!(values(&checkpoint), 1);
}

/// Puts something else in the place of a file: nothing that is read may come from it, or hang.
fn plant(kind: &str, path: &Path, elsewhere: &Path) {
    match kind {
        "link" => std::os::unix::fs::symlink(elsewhere, path).unwrap(),
        "device" => std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        "fifo" => nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        "directory" => std::fs::create_dir(path).unwrap(),
        _ => std::fs::File::create(path).unwrap().set_len(1 << 40).unwrap(),
    }
}

fn removed(path: &Path) {
    let removed = if path.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
    // A session removes what it cannot use.
    assert!(removed.is_ok() || !path.exists(), "{removed:?}");
}

#[tokio::test]
async fn what_takes_the_place_of_a_file_is_not_read() {
    let (state, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = elsewhere.path().join("copy");
    std::fs::write(&copy, "a").unwrap();
    let first = started(state.path());
    save(&first, &["a"], &[]).await;
    let place = |name: &str| first.state.lock().open.as_ref().unwrap().directory.value(name);
    let digest = format!("{:x}", Sha256::digest("a"));
    let (value, manifest) = (place(&digest), place("manifest.json"));
    drop(first);
    for kind in ["link", "device", "fifo", "directory", "sparse"] {
        removed(&value);
        plant(kind, &value, &copy);
        let second = started(state.path());
        assert!(second.load("a", &digest).is_err(), "{kind}");
    }
    for kind in ["device", "fifo", "directory", "sparse"] {
        removed(&manifest);
        plant(kind, &manifest, &copy);
        assert!(offered(&started(state.path())).is_empty(), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kernel_that_sends_nothing_is_asked_again() {
    let state = tempfile::tempdir().unwrap();
    let checkpoint = started(state.path());
    asked(&checkpoint);
    assert!(tokio::time::timeout(2 * SAVING_TIMEOUT, checkpoint.due()).await.is_err(), "nothing has changed");
    checkpoint.cell_ended();
    checkpoint.due().await;
    assert_eq!(checkpoint.notes(), [SILENT]);
    assert!(checkpoint.begin().is_some());
}

#[tokio::test]
async fn a_reset_leaves_nothing() {
    let state = tempfile::tempdir().unwrap();
    let checkpoint = started(state.path());
    save(&checkpoint, &["a"], &[]).await;
    let number = asked(&checkpoint);
    checkpoint.discard();
    assert!(matches!(checkpoint.end(number, report(&json!([]), &[])), Err(Error::NotAsked)));
    checkpoint.kernel_started(PYTHON.0, PYTHON.1);
    assert!(offered(&checkpoint).is_empty() && checkpoint.notes().is_empty());
    assert_eq!(values(&checkpoint), 0);
}

#[tokio::test]
async fn other_conditions_have_another_directory() {
    let state = tempfile::tempdir().unwrap();
    let conditions = CheckpointConditions { site: "in a sandbox (bwrap)".to_owned(), policy: "p".to_owned() };
    let sandboxed = Arc::new(Checkpoint::new(state.path(), conditions, &CheckpointOwner::Workspace));
    sandboxed.kernel_started(PYTHON.0, PYTHON.1);
    save(&sandboxed, &["hostile"], &[]).await;
    let plain = started(state.path());
    let note = plain.notes().concat();
    assert!(note.contains("saved by a kernel in a sandbox (bwrap)") && !note.contains("hostile"), "{note}");
    assert!(offered(&plain).is_empty());
    plain.kernel_started(3, 13);
    assert!(plain.notes().is_empty(), "it is reported once");
    save(&plain, &["own"], &[]).await;
    sandboxed.kernel_started(PYTHON.0, PYTHON.1);
    assert_eq!(offered(&sandboxed), ["hostile"]);
}

#[tokio::test]
async fn a_second_session_waits_for_the_end_of_the_first() {
    let state = tempfile::tempdir().unwrap();
    let first = started(state.path());
    save(&first, &["a"], &[]).await;
    let second = started(state.path());
    assert_eq!(second.notes(), [BUSY]);
    second.cell_ended();
    assert!(second.begin().is_none());
    assert!(second.notes().is_empty());
    first.close();
    assert!(second.notes().concat().contains("`a`"));
    save(&second, &["b"], &[]).await;
    assert_eq!(offered(&second), ["a"]);
}
