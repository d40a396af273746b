//! The recorded scenarios, run by our own kernel: it sends the same as ipykernel except for the differences
//! in `ours.snap`, which `tests/recordings/README.md` explains.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use regex::Regex;
use serde::Deserialize;

use super::recordings::{assert_snapshot, directory, summary};
use crate::ground::process::test_tool;
use crate::kernels::kernel::message::ShownOutput;
use crate::kernels::kernel::{
    ExecuteRequest, Kernel, KernelEvent, KernelLaunch, KernelLimits, KernelMessage, MessageContent,
    ShellCommands,
};
use crate::kernels::sandbox::KernelProgram;

/// Prints the scenarios as JSON.
const SCENARIOS: &str = r#"
import json
from scenarios import SCENARIOS

def as_fields(step):
    if isinstance(step, str):
        return {"code": step}
    fields = vars(step)
    return {"code": fields.get("code"), "until": fields.get("after", fields.get("until"))}

print(json.dumps({name: [as_fields(step) for step in scenario.steps] for name, scenario in SCENARIOS.items()}))
"#;

/// A step of a scenario.
#[derive(Deserialize)]
struct Step {
    /// The cell; none if only time passes.
    code: Option<String>,
    /// The output to wait for before the cell is interrupted, or before the next step.
    until: Option<String>,
}

fn scenarios(python: &Path) -> BTreeMap<String, Vec<Step>> {
    let mut python = std::process::Command::new(python);
    let output = python.args(["-B", "-c", SCENARIOS]).env("PYTHONPATH", directory()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The messages of our own kernel for a scenario.
async fn messages(python: &Path, steps: &[Step], place: &Path) -> Vec<KernelMessage> {
    let program = KernelProgram {
        python: python.to_owned(),
        working_directory: place.to_owned(),
        environment: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        private_directory: place.to_owned(),
    };
    let launch = KernelLaunch {
        program,
        limits: KernelLimits::default(),
        default_limits: KernelLimits::default(),
        timeout: Duration::from_secs(600),
        shell_commands: ShellCommands::Free,
        has_workspace: true,
        has_checkpoints: false,
        held: Arc::default(),
    };
    let mut kernel = Kernel::start(&launch, crate::kernels::kernel::KernelGround::Beside).await.unwrap();
    let mut names = BTreeMap::new();
    let mut messages = Vec::new();
    for step in steps {
        if let Some(code) = &step.code {
            let name = format!("cell-{}", names.len() + 1);
            let request = ExecuteRequest { code: code.clone(), store_history: true, has_views: false };
            names.insert(kernel.execute(&request).await.unwrap(), name);
        }
        let mut until = step.until.as_deref();
        let mut said = String::new();
        while let KernelEvent::Message(mut message) = kernel.next().await.unwrap() {
            if let MessageContent::Shown(ShownOutput::Stream(text)) = &message.content {
                said.push_str(text);
            }
            let is_idle = matches!(message.content, MessageContent::Idle);
            message.parent = message.parent.map(|id| names.get(&id).cloned().unwrap_or(id));
            messages.push(message);
            // A line is printed in two pieces.
            if until.is_some_and(|until| said.contains(until) && said.ends_with('\n')) {
                until = None;
                if step.code.is_none() {
                    break;
                }
                kernel.request_interrupt().unwrap();
            }
            if is_idle {
                break;
            }
        }
    }
    kernel.kill().await;
    messages
}

/// The sections of a snapshot, by scenario.
fn sections(snapshot: &str) -> BTreeMap<String, String> {
    let sections = snapshot.split("\n== ").skip(1);
    sections
        .filter_map(|section| section.split_once('\n'))
        .map(|(name, text)| (name.to_owned(), text.trim_end().to_owned()))
        .collect()
}

async fn said(python: &Path, name: &str, steps: &[Step]) -> String {
    let place = tempfile::tempdir().unwrap();
    let summary = summary(name, messages(python, steps, place.path()).await);
    let prefix = python.parent().and_then(Path::parent).unwrap().display().to_string();
    let summary =
        summary.replace(&prefix, "/python").replace(&place.path().display().to_string(), "/workspace");
    // The times that progress bars show, and the width of a bar, to which the digits of its speed leave more or less.
    let bar = Regex::new(r"\|[█▏▎▍▌▋▊▉]+\| (\d+/\d+) \[\d+:\d+<\d+:\d+, *[0-9.]+(it/s|s/it)\]").unwrap();
    let summary = bar.replace_all(&summary, "|██| $1 [00:00<00:00, 100.00it/s]");
    Regex::new(r"100% \d:\d\d:\d\d").unwrap().replace_all(&summary, "100% 0:00:00").into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_kernel_says_what_ipykernel_says() {
    let recorded = std::fs::read_to_string(directory().join("ipykernel-7.4.snap")).unwrap();
    let recorded = sections(&recorded);
    let Some(python) = test_tool("kernel/bin/python") else { return };
    let scenarios = scenarios(&python);
    assert!(scenarios.len() > 50 && scenarios.keys().eq(recorded.keys()));
    let said = futures::stream::iter(&scenarios).map(|(name, steps)| said(&python, name, steps)).buffered(2);
    let summaries: String = said.collect().await;
    let differing = sections(&format!("\n{summaries}"))
        .into_iter()
        .filter(|(name, text)| recorded.get(name) != Some(text))
        .map(|(name, text)| format!("== {name}\n{text}\n"))
        .collect::<String>();
    assert_snapshot("ours", &differing);
}
