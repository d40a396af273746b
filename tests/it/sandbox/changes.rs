//! Changes that wait in a copy of the workspace until a user applies them.

use serde_json::{Value, json};

use super::session::{document, names, policy, start, uninitialized};
use crate::support::Place;
use crate::support::changes::{copies, refused, shown, told};

const ASK: [&str; 2] = ["--changes", "ask"];

#[tokio::test]
async fn nothing_is_in_the_workspace_until_a_user_has_applied_it() {
    let place = Place::new();
    for (path, text) in [
        ("a.py", "one\ntwo\n"),
        ("b.py", "b\n"),
        ("c.py", "c\n"),
        (".git/config", "[core]\n"),
        (".env", "SECRET_KEY=s3cret\n"),
        ("sub/.envrc", "echo\n"),
    ] {
        place.write(path, text);
    }
    let before = names(&place.workspace());
    let mut ipybox = start(&place, "bwrap", &ASK).await;
    assert_eq!(ipybox.cell("open('a.py').read()").await.ok(), r"'one\ntwo\n'");
    let workspace = place.workspace();
    let code = format!(
        "import os, pathlib
there = pathlib.Path({workspace:?})
assert there.samefile('.') and os.getcwd() == str(there)
(there / 'a.py').write_text('one\\nthree\\n')
os.remove('b.py')
os.makedirs('out/deep'); open('out/deep/result.csv', 'w').write('1,2')
open('Makefile', 'w').write('all:\\n')
for kept in ['.git/config', '.env', 'sub/.envrc', 'mcptools/x', '.ipybox/x', 'uploads/x', '.vscode/tasks.json', '.bashrc']:
    try: open(kept, 'a'); print('written', kept)
    except OSError: pass
print(open('.git/config').read(), end='')
try: print(open('.env').read())
except OSError: print('hidden')"
    );
    let text = ipybox.cell(&code).await.ok();
    assert!(text.contains("[core]\nhidden") && !text.contains("written"), "{text}");
    let text = told(&mut ipybox, None, text).await;
    assert!(text.contains("6 changes wait there until the user applies them"), "{text}");
    let id = text.split("`ipybox changes ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    ipybox.reset().await;
    let text = ipybox.cell("open('c.py', 'w').write('new')\nopen('out/deep/result.csv').read()").await.ok();
    assert_eq!(text, "'1,2'", "the copy is the session's, and the note comes once");

    let own = [".ipybox", "mcptools", "uploads"].map(str::to_owned);
    let mut expected = [before.as_slice(), &own].concat();
    expected.sort();
    assert_eq!(names(&workspace), expected);
    assert_eq!(place.read("a.py"), "one\ntwo\n");

    let unseen = refused(&place, &["apply", "a.py"]);
    assert!(unseen.contains("`a.py` is left: it has not been shown yet"), "{unseen}");
    let diff = shown(&place, &["--diff"]);
    for words in [
        "changed  a.py",
        "-two\n+three\n",
        "deleted  b.py",
        "added    Makefile (5 bytes)  [configures programs]",
    ] {
        assert!(diff.contains(words), "{diff}");
    }
    assert!(!diff.contains(".vscode") && !diff.contains(".git"), "{diff}");
    ipybox.cell("open('Makefile', 'w').write('bad:\\n')").await.ok();
    place.write("c.py", "of the user\n");
    let changed = refused(&place, &["apply", "Makefile", "a.py", "c.py"]);
    assert!(changed.contains("`Makefile` is left: code has changed it since it was shown"), "{changed}");
    assert_eq!((place.read("a.py").as_str(), place.read("c.py").as_str()), ("one\nthree\n", "of the user\n"));
    shown(&place, &[]);
    let conflict = refused(&place, &["apply", "c.py"]);
    assert!(conflict.contains("`c.py` is left: the workspace's has changed"), "{conflict}");

    ipybox.stop().await;
    let listed: Value = serde_json::from_str(&shown(&place, &[&id[..4], "--json"])).unwrap();
    let paths: Vec<&str> =
        listed["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["Makefile", "b.py", "c.py", "out", "out/deep", "out/deep/result.csv"]);
    shown(&place, &["discard", "Makefile", "c.py"]);
    shown(&place, &["apply"]);
    assert_eq!(place.read("out/deep/result.csv"), "1,2");
    assert!(!workspace.join("b.py").exists() && !workspace.join("Makefile").exists());
    assert_eq!(copies(&place), [""; 0].map(std::path::PathBuf::from));
    assert!(shown(&place, &[]).contains("No changes wait"));
}

#[tokio::test]
async fn a_policy_decides_in_a_copy_as_it_does_in_the_workspace() {
    let place = Place::new();
    for path in ["data/raw/x", "data/out/y", "plain", "kept/file", "secret/key", "secret/open/z"] {
        place.write(path, path);
    }
    let file = document(
        &json!({}),
        &json!({"denyRead": ["secret", "later/key"], "allowWrite": [".", "secret/open"], "denyWrite": ["kept", "data/raw"]}),
    );
    let file = policy(&place, &file);
    let mut ipybox = start(&place, "bwrap", &["--changes", "ask", "--sandbox-config", &file]).await;
    let code = "
import os
for path in ['data/raw/x', 'data/out/y', 'plain', 'kept/file', 'secret/key', 'secret/open/z', 'later/key', 'kept']:
    done = ''
    try: done += 'r' if open(path).read() == path else '-'
    except OSError: done += '-'
    try: os.makedirs(os.path.dirname(path) or '.', exist_ok=True); open(path, 'w'); done += 'w'
    except OSError: done += '-'
    print(done, end=' ')
try: os.rename('data', 'moved'); print('moved')
except OSError: print('pinned')";
    let text = ipybox.cell(code).await.ok();
    assert!(text.ends_with("r- rw rw r- -- rw -- -- pinned"), "{text}");
    let shown = shown(&place, &[]);
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("changed")).collect();
    assert_eq!(lines, ["changed  data/out/y", "changed  plain", "changed  secret/open/z"]);
    assert!(!shown.contains("later") && !shown.contains("added"), "{shown}");
    ipybox.stop().await;
    assert_eq!(place.read("plain"), "plain");
    assert!(!place.workspace().join("later").exists());
}

#[tokio::test]
async fn a_session_that_changes_nothing_leaves_no_copy() {
    let place = Place::new();
    let mut ipybox = start(&place, "bwrap", &ASK).await;
    let text = ipybox.cell("import os; open('x', 'w').close(); os.remove('x'); 'done'").await.ok();
    assert_eq!(text, "'done'");
    assert_eq!(copies(&place).len(), 1);
    ipybox.stop().await;
    assert_eq!(copies(&place).len(), 0);
}

#[tokio::test]
async fn srt_is_refused_since_it_cannot_show_a_copy() {
    let place = Place::new();
    let mut ipybox = uninitialized(&place, "srt", &ASK, &[]).await;
    assert!(!ipybox.ended().await.success());
    let log = ipybox.log();
    assert!(log.contains("srt cannot show a copy of the workspace") && log.contains("bwrap"), "{log}");
}
