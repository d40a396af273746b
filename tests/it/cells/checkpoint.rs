//! `--checkpoint`: which variables come back after a kernel's death, and in the next session.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ipybox::CodeExecutor;

use crate::support::{Ipybox, PATIENT_EXIT, Place, equipped, eventually, kernel_python};

const KILL: &str = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)";
const RESTORE: &str = "import ipybox_checkpoint; ipybox_checkpoint.restore()";

async fn session(place: &Place) -> Ipybox {
    session_with(place, &[], &[]).await
}

async fn session_with(place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--checkpoint", "--python", python.to_str().unwrap()], flags].concat();
    let mut ipybox = place.start_with(&flags, variables).await;
    ipybox.initialize().await;
    ipybox
}

async fn sandboxed(place: &Place, backend: &str) -> Ipybox {
    let flags = ["--sandbox", "--sandbox-backend", backend];
    session_with(place, &flags, &[("PATH", &equipped())]).await
}

/// The files of the given name, or all, of all checkpoints.
fn files(place: &Place, name: Option<&str>) -> Vec<PathBuf> {
    place.checkpoint_files().into_iter().filter(|file| name.is_none_or(|name| file.ends_with(name))).collect()
}

/// Waits until a checkpoint names this variable.
async fn saved(place: &Place, name: &str) {
    eventually(&format!("`{name}` is in a checkpoint"), || place.has_saved(name)).await;
}

/// The last cell, which names a variable by which the test knows that all before it are saved.
async fn end_with(ipybox: &mut Ipybox, place: &Place, code: &str) {
    assert_eq!(ipybox.cell(&format!("{code}\nlast_one = 0")).await.ok(), "[no output]");
    saved(place, "last_one").await;
}

#[tokio::test]
async fn variables_come_back_after_a_death() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "
import functools, threading, numpy as np
from pydantic import BaseModel
factor = 2
array = np.ones(3)
def scaled(values): return values * factor
class Shape:
    class Kind: pass
    def __init__(self, size): self.size = size
    def area(self): return scaled(self.size)
class Model(BaseModel):
    shape: int
shape, kind, model = Shape(4), Shape.Kind(), Model(shape=1)
def counter():
    count = 0
    def step():
        nonlocal count
        count += 1
        return count
    return step
step = counter()
step()
own = [1]
own.append(own)
@functools.lru_cache(maxsize=3)
def cached(value): return scaled(value)
lock = threading.Lock()
_private = 1";
    end_with(&mut ipybox, &place, code).await;
    ipybox.cell(KILL).await.error();
    let note = ipybox.cell("1 + 1").await.ok();
    assert!(note.contains("Variables of an earlier kernel are saved (") && note.ends_with("\n\n2"), "{note}");
    for words in ["`factor`", "`Shape`", "`np`", "Not saved: `lock`", "ipybox_checkpoint.restore()"] {
        assert!(note.contains(words), "{words}: {note}");
    }
    let text = ipybox.cell(RESTORE).await.ok();
    assert!(text.contains("Restored: ") && text.contains("factor, array, scaled, Shape"), "{text}");
    assert!(text.contains("- lock: was not saved: cannot pickle '_thread.lock' object"), "{text}");
    let check = "
assert array.sum() == 3 and scaled(5) == 10 and shape.area() == 8
assert type(shape) is Shape and type(kind) is Shape.Kind and type(model) is Model
assert cached(1) == 2 and cached.cache_info().maxsize == 3 and step() == 2 and own[1] is own and '_private' not in globals()
factor = 3
scaled(5), shape.area()";
    assert_eq!(ipybox.cell(check).await.ok(), "(15, 12)");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_next_session_restores_name_by_name() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    end_with(&mut ipybox, &place, "a, b, c = [1], [2], [3]\ndef f(): return a").await;
    ipybox.stop().await;
    let mut ipybox = session(&place).await;
    let first = ipybox.cell("b = 'new'; sorted(set(globals()) & set('abcf'))").await.ok();
    assert!(first.starts_with("Variables of an earlier kernel are saved"), "{first}");
    assert!(first.ends_with("['b']"), "{first}");
    let text = ipybox.cell("from ipybox_checkpoint import restore\nrestore('a', 'missing')").await.ok();
    assert_eq!(text, "Restored: a\nNot restored:\n- missing: was not saved");
    // A name that code has assigned anew refers to the new value from now on.
    end_with(&mut ipybox, &place, "").await;
    let text = ipybox.cell("restore()").await.ok();
    assert!(text.starts_with("Restored: c, f"), "{text}");
    assert_eq!(ipybox.cell("f(), b, c").await.ok(), "([1], 'new', [3])");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_name_that_is_taken_is_replaced_only_if_it_is_named() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    end_with(&mut ipybox, &place, "a = 'old'").await;
    ipybox.cell(KILL).await.error();
    let code = "a = 'new'\nimport ipybox_checkpoint as checkpoint\ncheckpoint.restore()\nprint(a)\ncheckpoint.restore('a')\na";
    let text = ipybox.cell(code).await.ok();
    assert!(text.contains("- a: the name is taken; restore('a') replaces the value\nnew"), "{text}");
    assert!(text.ends_with("Restored: a\n'old'"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_is_not_restored_is_offered_until_it_is() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    end_with(&mut ipybox, &place, "a = 1").await;
    ipybox.cell(KILL).await.error();
    ipybox.cell("b = 2").await.ok();
    saved(&place, "b").await;
    ipybox.cell(KILL).await.error();
    let text = ipybox.cell(RESTORE).await.ok();
    assert!(text.contains("Restored: b, a, last_one"), "{text}");
    // What was deleted after that is not offered again.
    ipybox.cell("del a\nc = 3").await.ok();
    saved(&place, "c").await;
    ipybox.cell(KILL).await.error();
    let note = ipybox.cell("1").await.ok();
    assert!(note.contains("`b`") && note.contains("`c`") && !note.contains("`a`"), "{note}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_reset_discards_what_is_saved() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    end_with(&mut ipybox, &place, "a = 1").await;
    ipybox.reset().await;
    let text = ipybox.cell(RESTORE).await.ok();
    assert_eq!(text, "Nothing is saved that could be restored.");
    ipybox.stop().await;
    assert!(files(&place, None).iter().all(|file| file.extension().is_some_and(|end| end != "json")));
}

#[tokio::test]
async fn a_kernel_that_nobody_uses_ends_and_the_next_one_has_its_variables() {
    let sandboxed = ["--sandbox", "--sandbox-backend", "bwrap"];
    for flags in [&[][..], &sandboxed] {
        let place = Place::new();
        let flags = [flags, &["--kernel-idle-timeout", "1s"], &PATIENT_EXIT].concat();
        let mut ipybox = session_with(&place, &flags, &[("PATH", &equipped())]).await;
        // What prints is not idle.
        let code = "
import atexit, threading, time
kept = 41
def work():
    for number in range(15):
        print(number, flush=True)
        time.sleep(0.3)
atexit.register(lambda: open('ended', 'w').close())
threading.Thread(target=work).start()";
        ipybox.cell(code).await.ok();
        let ended = place.workspace().join("ended");
        eventually("the kernel ends", || ended.exists()).await;
        // One right after the other: the kernel would end again while a slow machine stalls between them.
        let first = ipybox.start_cell("kept + 1").await;
        let second = ipybox.start_cell("kept").await;
        let back = first.answer().await.ok();
        assert!(back.contains("42") && back.contains("\n14\n"), "{back}");
        assert!(back.contains("its kernel has ended, and another one has started. Variables"), "{back}");
        assert!(!second.answer().await.ok().contains("was not used"), "it is told once");
        let nothing = ipybox.call("reset", serde_json::json!({"cells": 9})).await.error();
        assert!(nothing.contains("there are"), "{nothing}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn kernels_beside_the_clients_own_end_too_and_nothing_of_them_is_kept_after_their_session() {
    let place = Place::new();
    let flags = [&["--kernel-idle-timeout", "2s"][..], &PATIENT_EXIT].concat();
    let mut ipybox = session_with(&place, &flags, &[]).await;
    let workspace = place.workspace();
    let of = |session: &str, code: &str| serde_json::json!({"code": code, "session": session});
    // A copy does not do at its exit what its origin registered.
    let code = |name: &str| format!("import atexit\natexit.register(lambda: open('{name}', 'w').close())");
    let first = format!("kept = 41\n{}", code("new"));
    let begun = ipybox.call("execute_ipython_cell", of("new", &first)).await.ok();
    let new = begun.split('`').nth(1).unwrap();
    let copied = ipybox.call("execute_ipython_cell", of(&format!("copy of {new}"), &code("copy"))).await.ok();
    let copy = copied.split('`').nth(1).unwrap();
    for (session, name) in [(new, "new"), (copy, "copy")] {
        eventually("the kernel ends", || workspace.join(name).exists()).await;
        let back = ipybox.call("execute_ipython_cell", of(session, "kept + 1")).await.ok();
        assert!(back.ends_with("42") && back.contains("another one has started"), "{back}");
    }
    // As a session that was killed leaves it.
    let workspaces = std::fs::read_dir(place.states().join("workspaces")).unwrap();
    let [beside] =
        &workspaces.map(|each| each.unwrap().path().join("checkpoints-beside")).collect::<Vec<_>>()[..]
    else {
        panic!("there is more than one workspace")
    };
    std::fs::create_dir_all(beside.join("left")).unwrap();
    let kept = || std::fs::read_dir(beside).unwrap().count();
    assert_eq!(kept(), 3);
    let end = serde_json::json!({"session": new, "end": true});
    ipybox.call("reset", end).await.ok();
    assert_eq!(kept(), 2);
    ipybox.call("execute_ipython_cell", of("new", "1")).await.ok();
    assert_eq!(kept(), 2);
    ipybox.stop().await;
    assert_eq!(kept(), 0);
}

#[tokio::test]
async fn a_kernel_that_works_is_used_and_what_its_threads_make_is_saved() {
    let place = Place::new();
    let flags = [&["--kernel-idle-timeout", "2s"][..], &PATIENT_EXIT].concat();
    let mut ipybox = session_with(&place, &flags, &[]).await;
    let code = "
import atexit, threading, time
made = []
def work():
    end = time.monotonic() + 6
    while time.monotonic() < end:
        sum(range(10_000))
    made.append('all')
atexit.register(lambda: open('ended', 'w').close())
threading.Thread(target=work).start()";
    ipybox.cell(code).await.ok();
    let ended = place.workspace().join("ended");
    eventually("the kernel ends", || ended.exists()).await;
    let back = ipybox.cell("made").await.ok();
    assert!(back.contains("['all']") && back.contains("another one has started"), "{back}");
    ipybox.stop().await;
}

#[tokio::test]
async fn code_that_pickling_runs_disturbs_nobody() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "
import ctypes, os, sys, time
class Odd:
    def __init__(self, reduce): self.reduce = reduce
    def __reduce__(self): return self.reduce()
def talk():
    print('talk')
    os.write(1, b'raw talk')
    global changed
    changed = True
    raise ValueError('no\\nway')
changed = False
talking, leaving, endless = Odd(talk), Odd(lambda: os._exit(0)), Odd(lambda: time.sleep(1000))
busy = Odd(lambda: ctypes.CDLL(None).sleep(1000))
crashing, interrupting = Odd(lambda: ctypes.string_at(0)), Odd(lambda: os.kill(os.getppid(), 2))
nonsense = Odd(lambda: [os.write(number, b'x' * 1000) for number in range(3, 30)])
recursive = Odd(lambda: recursive.reduce())
hungry = Odd(lambda: (len, (b'x' * (1 << 30),)))";
    assert_eq!(ipybox.cell(code).await.ok(), "[no output]");
    // While they are being pickled, for which they get a minute.
    let begun = Instant::now();
    assert_eq!(ipybox.cell("changed").await.ok(), "False");
    assert!(begun.elapsed() < Duration::from_secs(50), "the cell has waited for {:?}", begun.elapsed());
    saved(&place, "endless").await;
    assert_eq!(ipybox.cell("changed").await.ok(), "False");
    end_with(&mut ipybox, &place, "").await;
    ipybox.cell(KILL).await.error();
    let text = ipybox.cell(RESTORE).await.ok();
    for words in [
        "- talking: was not saved: ValueError: no way",
        "- leaving: was not saved: pickling it ",
        "- endless: was not saved: pickling it ",
        "- busy: was not saved: pickling it ",
        "- crashing: was not saved: pickling it ",
        "- nonsense: was not saved: ",
        "- recursive: was not saved: ",
        "- hungry: was not saved: pickling it takes too much memory",
        "Restored: Odd, talk, changed, last_one",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn values_that_are_too_large_are_left_out_and_reported() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code =
        "import numpy as np\nlarge = np.ones(1 << 27)\nlist_of_many = [object()] * 10\nsmall = np.ones(10)";
    end_with(&mut ipybox, &place, code).await;
    ipybox.cell(KILL).await.error();
    let text = ipybox.cell(RESTORE).await.ok();
    assert!(text.contains("- large: was not saved: it takes more than 128 MiB"), "{text}");
    assert!(text.contains("small"), "{text}");
    // Files of a saving that goes on are renamed.
    let files = files(&place, None);
    let size: u64 = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len()).sum();
    assert!(size < 1 << 20, "{size} bytes");
    ipybox.stop().await;
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn values_that_a_full_disk_has_no_room_for_are_reported_and_the_rest_comes_back() {
    let place = Place::new();
    let (states, python) = (place.states(), kernel_python());
    std::fs::create_dir_all(&states).unwrap();
    let mount =
        format!("mount -t tmpfs -o size=8m,mode=700 tmpfs '{}' && exec \"$0\" \"$@\"", states.display());
    let launcher = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &mount];
    let flags = ["--checkpoint", "--python", python.to_str().unwrap()];
    let mut ipybox = place.start_by(&launcher, &flags, &[]).await;
    ipybox.initialize().await;
    ipybox.cell("kept = 7; import os; large = os.urandom(12 << 20)").await.ok();
    let manifests = format!("pathlib.Path({states:?}).glob('workspaces/*/checkpoints/*/manifest.json')");
    let is_saved = format!("import pathlib; any('\"kept\"' in each.read_text() for each in {manifests})");
    while ipybox.cell(&is_saved).await.ok() != "True" {
        // A cell that comes early puts the saving off.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ipybox.cell(KILL).await.error();
    let text = ipybox.cell(&format!("{RESTORE}\nprint('kept is', kept)")).await.ok();
    assert!(text.contains("kept is 7"), "{text}");
    assert!(
        text.contains("- large: was not saved: the host did not keep it: No space left on device"),
        "{text}"
    );
    // What had been written of it is gone.
    let left = format!("import os; fs = os.statvfs({states:?}); fs.f_bavail * fs.f_frsize > (6 << 20)");
    assert_eq!(ipybox.cell(&left).await.ok(), "True");
    ipybox.stop().await;
}

#[tokio::test]
async fn damaged_files_are_refused_before_they_are_loaded() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "changed, cut, gone, whole = ('x' * size for size in (10_000, 20_000, 30_000, 40_000))";
    end_with(&mut ipybox, &place, code).await;
    ipybox.stop().await;
    for file in files(&place, None) {
        let mut bytes = std::fs::read(&file).unwrap();
        match bytes.len() {
            10_000..20_000 => bytes[5_000] = b'y',
            20_000..30_000 => bytes.truncate(5_000),
            30_000..40_000 => {
                std::fs::remove_file(&file).unwrap();
                continue;
            }
            _ => continue,
        }
        std::fs::write(&file, bytes).unwrap();
    }
    let mut ipybox = session(&place).await;
    let text = ipybox.cell(RESTORE).await.ok();
    for name in ["changed", "cut", "gone"] {
        assert!(text.contains(&format!("- {name}: the saved data is damaged")), "{text}");
    }
    assert_eq!(ipybox.cell("len(whole)").await.ok(), "40000");
    end_with(&mut ipybox, &place, "").await;
    ipybox.stop().await;
    // Without its document nothing is offered, and the next one is made.
    let [manifest] = files(&place, Some("manifest.json")).try_into().unwrap();
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    let mut ipybox = session(&place).await;
    let text = ipybox.cell(RESTORE).await.ok();
    assert!(
        text.contains("Variables of an earlier session are lost: ") && text.ends_with("be restored."),
        "{text}"
    );
    end_with(&mut ipybox, &place, "").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_checkpoint_of_another_python_is_refused_with_the_reason() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    end_with(&mut ipybox, &place, "a = 1").await;
    ipybox.stop().await;
    let [manifest] = files(&place, Some("manifest.json")).try_into().unwrap();
    let text = std::fs::read_to_string(&manifest).unwrap().replace("CPython 3", "PyPy 3");
    std::fs::write(&manifest, text).unwrap();
    let mut ipybox = session(&place).await;
    let text = ipybox.cell(RESTORE).await.ok();
    assert!(text.contains("Nothing is restored: it was saved by PyPy 3"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_kernel_that_dies_while_it_saves_leaves_the_earlier_checkpoint() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    end_with(&mut ipybox, &place, "a = 'before'").await;
    let slow = "
import time
class Slow:
    def __reduce__(self):
        time.sleep(1000)
        return str, ()
a, slow = 'after', Slow()";
    ipybox.cell(slow).await.ok();
    ipybox.cell(KILL).await.error();
    let text = ipybox.cell(&format!("{RESTORE}\na")).await.ok();
    assert!(text.ends_with("'before'"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn two_sessions_of_a_workspace_do_not_overwrite_each_other() {
    let place = Place::new();
    let mut first = session(&place).await;
    end_with(&mut first, &place, "a = 1").await;
    let mut second = session(&place).await;
    let note = second.cell("b = 2").await.ok();
    assert!(note.contains("another session in this workspace saves its own"), "{note}");
    assert_eq!(second.cell("b").await.ok(), "2", "it is reported once");
    first.stop().await;
    let note = second.cell("c = 3").await.ok();
    assert!(note.contains("Variables of an earlier kernel are saved") && note.contains("`a`"), "{note}");
    saved(&place, "c").await;
    second.stop().await;
}

#[tokio::test]
async fn without_cloudpickle_data_is_saved_and_the_note_says_so() {
    let place = Place::new();
    place.write("none/cloudpickle.py", "raise ImportError('not here')");
    let path = place.workspace().join("none");
    let variables = [("KERNEL_ENV_PYTHONPATH", path.to_str().unwrap())];
    let mut ipybox = session_with(&place, &[], &variables).await;
    end_with(&mut ipybox, &place, "import json\na = {'b': [1]}\ndef f(): pass").await;
    let note = ipybox.cell("1").await.ok();
    assert!(note.contains("Install the package `cloudpickle`"), "{note}");
    assert_eq!(ipybox.cell("1").await.ok(), "1");
    ipybox.cell(KILL).await.error();
    let text = ipybox.cell(RESTORE).await.ok();
    assert!(text.contains("- f: was not saved: functions and classes of cells need"), "{text}");
    assert_eq!(ipybox.cell("json.dumps(a)").await.ok(), "'{\"b\": [1]}'");
    ipybox.stop().await;
}

#[tokio::test]
async fn without_the_flag_nothing_is_saved() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("a = 1").await.ok();
    assert!(ipybox.cell(RESTORE).await.error().contains("ModuleNotFoundError"));
    ipybox.stop().await;
    assert!(files(&place, None).is_empty());
}

#[tokio::test]
async fn an_application_saves_variables_too() {
    let place = Place::new();
    let executor = || {
        let builder = CodeExecutor::builder().working_dir(place.workspace()).state_dir(place.states());
        builder.python(kernel_python()).checkpoint(true).start()
    };
    let first = executor().await.unwrap();
    first.execute("a = 1").await.unwrap();
    saved(&place, "a").await;
    first.stop().await;
    let second = executor().await.unwrap();
    let result = second.execute(&format!("{RESTORE}\nprint(a)")).await.unwrap();
    assert_eq!(result.text.as_deref(), Some("Restored: a\n1"));
    second.stop().await;
}

async fn check_sandboxed(backend: &str) {
    let place = Place::new();
    let mut ipybox = sandboxed(&place, backend).await;
    end_with(&mut ipybox, &place, "def f(): return 7\na = f()").await;
    let [manifest] = files(&place, Some("manifest.json")).try_into().unwrap();
    assert_eq!(ipybox.cell(&format!("import os; os.path.exists({manifest:?})")).await.ok(), "False");
    ipybox.cell(KILL).await.error();
    let text = ipybox.cell(&format!("{RESTORE}\nf() + a")).await.ok();
    assert!(text.ends_with("14"), "{text}");
    ipybox.stop().await;
    // It never comes to a kernel that may do more.
    let mut plain = session(&place).await;
    let text = plain.cell(RESTORE).await.ok();
    let why = format!("saved by a kernel in a sandbox ({backend}), and this one runs without a sandbox");
    assert!(text.contains(&why) && text.ends_with("Nothing is saved that could be restored."), "{text}");
    end_with(&mut plain, &place, "b = 1").await;
    plain.stop().await;
    place.write("policy.json", &include_str!("../../../sandbox-default.json").replace("~/.aws", "~/.awss"));
    let policy = place.workspace().join("policy.json");
    let flags = ["--sandbox", "--sandbox-backend", backend, "--sandbox-config", policy.to_str().unwrap()];
    let mut other = session_with(&place, &flags, &[("PATH", &equipped())]).await;
    let text = other.cell(RESTORE).await.ok();
    assert!(text.contains("are not offered to this kernel"), "{text}");
    other.stop().await;
    let mut ipybox = sandboxed(&place, backend).await;
    let text = ipybox.cell(&format!("{RESTORE}\nf()")).await.ok();
    assert!(text.ends_with('7'), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn what_a_sandboxed_kernel_saves_stays_in_such_sandboxes() {
    check_sandboxed("bwrap").await;
}

#[tokio::test]
async fn srt_saves_as_bubblewrap_does() {
    check_sandboxed("srt").await;
}
