//! Audit logs that somebody changes while their sessions go on.

use std::path::Path;

use super::audit_command::{audit_of, log, start};
use crate::support::{Ipybox, Place, eventually};

/// Runs so many cells, and waits until the log has their ends.
async fn cells(ipybox: &mut Ipybox, path: &Path, count: usize) {
    let ends = || std::fs::read_to_string(path).unwrap_or_default().matches("\"cell_ended\"").count();
    let before = ends();
    for _ in 0..count {
        ipybox.cell("1").await.ok();
    }
    eventually("the cells are in the log", || ends() >= before + count).await;
}

fn replaced(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).unwrap();
    std::fs::rename(new, path).unwrap();
}

fn appended(path: &Path, bytes: &[u8]) {
    let text = std::fs::read(path).unwrap();
    std::fs::write(path, [&text[..], bytes].concat()).unwrap();
}

/// The damage to a log, of which there is an older copy.
type Tampering = fn(&Path, &[u8]);

#[tokio::test]
async fn a_log_that_is_changed_while_its_session_goes_on_is_not_whole() {
    let ways: [(&str, Tampering, i32, &str); 7] = [
        ("nothing", |_, _| {}, 0, "the chain is whole"),
        ("an older copy in its place", |path, old| std::fs::write(path, old).unwrap(), 1, "removed"),
        ("an older copy by another file", replaced, 1, "removed"),
        ("emptied", |path, _| std::fs::write(path, "").unwrap(), 3, "begins after other records"),
        ("deleted", |path, _| std::fs::remove_file(path).unwrap(), 3, "begins after other records"),
        (
            "the last record once more",
            |path, _| {
                let text = std::fs::read_to_string(path).unwrap();
                appended(path, format!("{}\n", text.lines().last().unwrap()).as_bytes());
            },
            1,
            "inserted",
        ),
        ("the older records once more", appended, 1, "inserted"),
    ];
    for (way, tamper, code, words) in ways {
        let place = Place::new();
        let mut ipybox = start(&place, &[]).await;
        cells(&mut ipybox, &log(&place), 2).await;
        let old = std::fs::read(log(&place)).unwrap();
        cells(&mut ipybox, &log(&place), 2).await;
        tamper(&log(&place), &old);
        cells(&mut ipybox, &log(&place), 2).await;
        ipybox.stop().await;
        let (ended, text) = audit_of("", &[log(&place).to_str().unwrap()]);
        assert!(ended == code && text.contains(words), "{way}: {ended} {text}");
    }
}

#[tokio::test]
async fn two_logs_that_are_swapped_while_their_sessions_go_on_are_both_broken() {
    let places = [Place::new(), Place::new()];
    let mut sessions = Vec::new();
    for place in &places {
        let mut ipybox = start(place, &[]).await;
        cells(&mut ipybox, &log(place), 2).await;
        sessions.push(ipybox);
    }
    let texts = places.each_ref().map(|place| std::fs::read(log(place)).unwrap());
    for (place, text) in places.iter().zip(texts.iter().rev()) {
        replaced(&log(place), text);
    }
    for (place, mut ipybox) in places.iter().zip(sessions) {
        cells(&mut ipybox, &log(place), 1).await;
        ipybox.stop().await;
        let (ended, text) = audit_of("", &[log(place).to_str().unwrap()]);
        assert!(ended == 1 && text.contains("removed"), "{text}");
    }
}
