use std::os::unix::fs::symlink;

use serde_json::Value;

use super::*;

fn cell(number: usize) -> String {
    format!(
        "  {{\n   \"cell_type\": \"raw\",\n   \"id\": \"{number}\",\n   \"metadata\": {{}},\n   \"source\": []\n  }}"
    )
}

fn numbers(path: &Path) -> Vec<usize> {
    let notebook: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cells = notebook["cells"].as_array().unwrap().iter();
    cells.map(|cell| cell["id"].as_str().unwrap().parse().unwrap()).collect()
}

fn workspace() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

#[track_caller]
fn refused(result: io::Result<()>, expected: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn cells_are_appended_and_directories_made() {
    let (_directory, workspace) = workspace();
    let mut place = NotebookFile::named(&workspace, Path::new("a/b/run.ipynb"));
    for number in 0..3 {
        place.append(&[cell(2 * number), cell(2 * number + 1)]).unwrap();
        assert!(place.known.is_some());
    }
    let path = workspace.join("a/b/run.ipynb");
    assert_eq!((numbers(&path), place.path()), (vec![0, 1, 2, 3, 4, 5], path.clone()));
    let names: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(place.links_from(), path.parent().map(Path::to_owned));
    NotebookFile::named(&workspace, Path::new("a/b/run.ipynb")).append(&[cell(6)]).unwrap();
    assert_eq!(numbers(&path).len(), 7);
}

#[test]
fn what_others_change_meanwhile_is_kept() {
    let (_directory, workspace) = workspace();
    let path = workspace.join("run.ipynb");
    let mut place = NotebookFile::named(&workspace, Path::new("run.ipynb"));
    place.append(&[cell(1)]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap().replace("\"source\": []", "\"source\": [\"mine\"]");
    std::fs::write(&path, text).unwrap();
    place.append(&[cell(2)]).unwrap();
    assert_eq!(numbers(&path), [1, 2]);
    assert!(std::fs::read_to_string(&path).unwrap().contains("mine"));
    // One that is gone begins anew.
    std::fs::remove_file(&path).unwrap();
    place.append(&[cell(3)]).unwrap();
    assert_eq!(numbers(&path), [3]);
}

#[test]
fn two_writers_lose_nothing() {
    const COUNT: usize = 100;
    let (_directory, workspace) = workspace();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let mut place = NotebookFile::named(&workspace, Path::new("run.ipynb"));
            place.lock_timeout = Duration::from_secs(300);
            scope.spawn(move || {
                for number in 0..COUNT {
                    place.append(&[cell(writer * COUNT + number)]).unwrap();
                }
            });
        }
    });
    let mut seen = numbers(&workspace.join("run.ipynb"));
    seen.sort_unstable();
    assert_eq!(seen, (0..2 * COUNT).collect::<Vec<_>>());
}

#[test]
fn files_that_are_not_ours_are_left_as_they_are() {
    let (_directory, workspace) = workspace();
    let path = workspace.join("run.ipynb");
    let foreign = r#"{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"#;
    for (content, expected) in
        [(foreign, "has not begun"), ("print(1)", "no notebook"), ("{}", "no notebook")]
    {
        std::fs::write(&path, content).unwrap();
        let mut place = NotebookFile::named(&workspace, Path::new("run.ipynb"));
        refused(place.check(), expected);
        refused(place.append(&[cell(1)]), expected);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn links_and_pipes_in_its_place_are_refused() {
    let (_directory, workspace) = workspace();
    let (_other, outside) = super::tests::workspace();
    let path = workspace.join("run.ipynb");
    let target = outside.join("target.ipynb");
    let mut outside_place = NotebookFile::named(&outside, Path::new("target.ipynb"));
    outside_place.append(&[cell(1)]).unwrap();

    let mut place = NotebookFile::named(&workspace, Path::new("run.ipynb"));
    place.append(&[cell(1)]).unwrap();
    std::fs::remove_file(&path).unwrap();
    symlink(&target, &path).unwrap();
    refused(place.append(&[cell(2)]), "a symbolic link");
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused(place.append(&[cell(2)]), "not a regular file");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    refused(place.append(&[cell(2)]), "not a regular file");
    assert_eq!(numbers(&target), [1]);

    // A link in place of the directory.
    std::fs::remove_dir(&path).unwrap();
    place.append(&[cell(2)]).unwrap();
    assert_eq!((numbers(&path), numbers(&target)), (vec![2], vec![1]));
    // Also one inside: code in a sandbox may not write there.
    let protected = workspace.join(".vscode");
    std::fs::create_dir(&protected).unwrap();
    for target in [&outside, &protected] {
        symlink(target, workspace.join("sub")).unwrap();
        let appended = NotebookFile::named(&workspace, Path::new("sub/target.ipynb")).append(&[cell(2)]);
        refused(appended, "a symbolic link");
        std::fs::remove_file(workspace.join("sub")).unwrap();
    }
    assert_eq!((numbers(&target), protected.read_dir().unwrap().count()), (vec![1], 0));
}

#[test]
fn a_lock_that_somebody_holds_is_not_waited_for_long() {
    let (_directory, workspace) = workspace();
    let mut place = NotebookFile::named(&workspace, Path::new("run.ipynb"));
    place.append(&[cell(1)]).unwrap();
    let held = File::open(workspace.join("run.ipynb")).unwrap();
    held.lock().unwrap();
    refused(place.append(&[cell(2)]), "held its lock");
    drop(held);
    place.append(&[cell(2)]).unwrap();
    assert_eq!(numbers(&workspace.join("run.ipynb")), [1, 2]);
}

#[test]
fn a_notebook_stays_below_its_limit() {
    let (_directory, workspace) = workspace();
    let mut place = NotebookFile::named(&workspace, Path::new("run.ipynb"));
    let large = |number: usize| {
        let output = "x".repeat(MOST_BYTES / 8);
        format!("  {{\"id\": \"{number}\", \"metadata\": {{\"ipybox\": {{}}}}, \"outputs\": [\"{output}\"]}}")
    };
    for number in 0..12 {
        place.append(&[large(number)]).unwrap();
        assert!(std::fs::metadata(place.path()).unwrap().len() < MOST_BYTES as u64);
    }
    assert_eq!(numbers(&place.path()), (0..12).collect::<Vec<_>>());
}

#[test]
fn modes_are_kept_and_private_ones_are_private() {
    use std::os::unix::fs::PermissionsExt as _;

    let (_directory, workspace) = workspace();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    let mut place = NotebookFile::named(&workspace, Path::new("run.ipynb"));
    place.append(&[cell(1)]).unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
    place.append(&[cell(2)]).unwrap();
    assert_eq!(mode(&place.path()), 0o640);
    let directory = workspace.join("state/notebooks");
    let mut place = NotebookFile::private(directory.clone(), "1.ipynb");
    place.append(&[cell(1)]).unwrap();
    assert_eq!((mode(&place.path()), mode(&directory)), (0o600, 0o700));
}

#[test]
fn the_newest_private_notebooks_are_kept() {
    let (_directory, workspace) = workspace();
    for number in 0..(KEPT.files - 1) + 5 {
        let mut place = NotebookFile::private(workspace.clone(), &format!("{number}.ipynb"));
        place.append(&[cell(1)]).unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
        File::options().write(true).open(place.path()).unwrap().set_modified(time).unwrap();
    }
    std::fs::write(workspace.join("mine.txt"), "").unwrap();
    NotebookFile::private(workspace.clone(), "new.ipynb").append(&[cell(1)]).unwrap();
    let is_there = |name: &str| workspace.join(name).exists();
    assert!(is_there("mine.txt") && is_there("new.ipynb") && is_there("54.ipynb") && !is_there("0.ipynb"));
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let (_directory, workspace) = workspace();
    let mut place = NotebookFile::named(&workspace, &workspace.join("../gone-for-good/run.ipynb"));
    refused(place.append(&[cell(1)]), "does not exist");
}
