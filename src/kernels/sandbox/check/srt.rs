//! The requirements of the backend srt, Anthropic's sandbox-runtime.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::bubblewrap;
use super::finding::{CheckFinding, CheckRemedy};
use super::remedy::NODE;
use super::surroundings::{CheckSurroundings, version};
use crate::ground::env::on_path;
use crate::kernels::sandbox::bwrap::NO_OWN_PROC;

/// The version that ipybox is tested with. Other versions silently ignore settings that they do not know.
pub(super) const TESTED: &str = "0.0.78";
/// The oldest Node.js that srt declares to support.
const OLDEST_NODE: (u64, u64) = (20, 11);
/// Nothing may be written, no host may be reached; srt leaves out empty lists.
const SETTINGS: &str = r#"{"network": {"allowedDomains": [], "deniedDomains": []},
 "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}"#;

pub(super) async fn examine(surroundings: &CheckSurroundings) -> Vec<CheckFinding> {
    let mut findings = if cfg!(target_os = "linux") {
        let ((node, srt), [bwrap, namespaces], helpers) = tokio::join!(
            async { tokio::join!(node(surroundings), runtime(surroundings)) },
            bubblewrap::tried(surroundings),
            helpers(surroundings),
        );
        let [socat, rg, which] = helpers;
        vec![node, srt, bwrap, socat, rg, which, namespaces]
    } else {
        let (node, srt) = tokio::join!(node(surroundings), runtime(surroundings));
        let seatbelt = surroundings.program("sandbox-exec", &[], "srt makes no sandbox without it").await;
        vec![node, srt, seatbelt]
    };
    let start = match surroundings.find("srt") {
        Some(srt) if !findings.iter().any(CheckFinding::is_failed) => start(surroundings, &srt).await,
        _ => CheckFinding::not_needed("start", "not tried, for what is wrong above"),
    };
    findings.push(start);
    findings
}

/// The programs that srt requires, with the policy's key that may name another one.
const PROGRAMS: [(&str, Option<&str>); 6] = [
    ("srt", None),
    ("node", None),
    ("bwrap", Some("bwrapPath")),
    ("socat", Some("socatPath")),
    ("rg", Some("ripgrep")),
    ("which", None),
];

/// Whether a program is missing or too old, as far as possible without running any.
pub(super) fn lacks(path: &str, is_named: impl Fn(&str) -> bool) -> bool {
    let needed = PROGRAMS.iter().take(if cfg!(target_os = "linux") { PROGRAMS.len() } else { 2 });
    let mut needed = needed.filter(|(_, key)| !key.is_some_and(&is_named));
    let version = on_path("srt", path).and_then(|srt| packaged_version(&srt));
    needed.any(|(name, _)| on_path(name, path).is_none())
        || version.is_some_and(|version| numbers(&version) < numbers(TESTED))
}

async fn node(surroundings: &CheckSurroundings) -> CheckFinding {
    let finding = surroundings.program("node", &["--version"], "srt does not run without it").await;
    match version(&finding.found).and_then(major_and_minor) {
        Some(found) if !finding.is_failed() && found < OLDEST_NODE => CheckFinding::failed(
            "node",
            finding.found,
            "srt needs 20.11 or newer",
            CheckRemedy::Advice(NODE.to_owned()),
        ),
        _ => finding,
    }
}

async fn helpers(surroundings: &CheckSurroundings) -> [CheckFinding; 3] {
    let find = |name, consequence| surroundings.program(name, &[], consequence);
    let (socat, rg, which) = tokio::join!(
        find("socat", "srt does not start without it: it connects the sandbox with the proxies"),
        find("rg", "srt does not start without it: it finds the files that must not be written"),
        find("which", "srt does not start without it: it finds the other programs"),
    );
    [socat, rg, which]
}

/// srt itself, by its version.
async fn runtime(surroundings: &CheckSurroundings) -> CheckFinding {
    let remedy = || CheckRemedy::Command(format!("npm install -g @anthropic-ai/sandbox-runtime@{TESTED}"));
    let failed =
        |found: String| CheckFinding::failed("srt", found, "`--sandbox` does not start without it", remedy());
    let Some(srt) = surroundings.find("srt") else { return failed("not on PATH".to_owned()) };
    let found = match packaged_version(&srt) {
        Some(version) => version,
        None => match surroundings.run(&srt, &["--version"]).await {
            Ok(text) => version(&text).unwrap_or("a version that it does not report").to_owned(),
            Err(said) => return failed(format!("`{}` does not run: {said}", srt.display())),
        },
    };
    let words = format!("{found} (`{}`)", srt.display());
    let other = format!("{words}, not {TESTED}, with which ipybox is tested");
    match (numbers(&found), numbers(TESTED)) {
        (one, tested) if one == tested => CheckFinding::ok("srt", words),
        (one, tested) if one > tested => CheckFinding::warning(
            "srt",
            other,
            "the sandbox may not start, or be another than it should",
            remedy(),
        ),
        _ => CheckFinding::failed(
            "srt",
            other,
            "one so old may leave open what its settings should close: what it does not know it ignores",
            remedy(),
        ),
    }
}

/// A sandbox as ipybox starts it, with nothing in it.
async fn start(surroundings: &CheckSurroundings, srt: &Path) -> CheckFinding {
    let failed = |found: String| {
        let advice = if found.contains(NO_OWN_PROC) {
            "`--sandbox --sandbox-backend bwrap` works within another sandbox".to_owned()
        } else {
            format!("try it yourself: `{} --debug -- true`", srt.display())
        };
        CheckFinding::failed("start", found, "no sandbox starts", CheckRemedy::Advice(advice))
    };
    let settings = surroundings.directory().join("settings.json");
    if let Err(error) = tokio::fs::write(&settings, SETTINGS).await {
        return failed(format!("cannot be tried: write `{}`: {error}", settings.display()));
    }
    let arguments = ["--settings", &settings.display().to_string(), "--", "true"];
    match surroundings.run(srt, &arguments).await {
        Ok(_) => CheckFinding::ok("start", "a sandbox was started"),
        Err(said) => failed(said),
    }
}

/// The version in the package that `srt` is a link into: to run it would take a third of a second.
fn packaged_version(srt: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct SrtPackage {
        name: String,
        version: String,
    }

    let program = srt.canonicalize().ok()?;
    let package: PathBuf = program.parent()?.parent()?.join("package.json");
    let package: SrtPackage = serde_json::from_slice(&std::fs::read(package).ok()?).ok()?;
    (package.name == "@anthropic-ai/sandbox-runtime").then_some(package.version)
}

fn numbers(version: &str) -> Option<Vec<u64>> {
    version.split('.').map(|number| number.parse().ok()).collect()
}

fn major_and_minor(version: &str) -> Option<(u64, u64)> {
    let numbers = numbers(version)?;
    Some((*numbers.first()?, *numbers.get(1)?))
}
