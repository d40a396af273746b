//! The facts about an interpreter, from one short run of it. Other modules decide whether it is usable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::run::{self, ProgramInvocation};

/// Printed by the interpreter: its version, and the details if it is new enough to run the rest of the probe.
const PROBE: &str = include_str!("probe.py");
/// A probe takes 40 ms, and seconds on a cold network file system; a longer one hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The part of a program's error output that is shown: some repeat the whole probe.
const SHOWN_CHARS: usize = 200;

/// The oldest Python that is supported.
pub(super) const OLDEST: (u32, u32) = (3, 10);
/// The newest Python that is tested; newer ones are tried.
pub(super) const NEWEST: (u32, u32) = (3, 14);
/// The imports of the kernel and of the generated code: the requirement, and its oldest version, `(major, minor)`.
/// The oldest IPython for which there are tests.
const NEEDED: [(&str, (u32, u32)); 2] = [("ipython", (8, 0)), ("pydantic", (2, 6))];

/// `major.minor.micro`.
pub(crate) type PythonVersion = (u32, u32, u32);

/// The facts about an interpreter of a supported version.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct PythonFacts {
    pub(super) version: PythonVersion,
    pub(super) details: PythonDetails,
}

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct PythonDetails {
    /// `sys.executable`: never a shim, and a virtual environment's own `python`.
    pub(super) executable: PathBuf,
    /// The interpreter that the virtual environment was made from; outside one, the real executable.
    pub(super) base_executable: PathBuf,
    /// `sys.prefix`.
    pub(super) prefix: PathBuf,
    /// The directory for console scripts of installed packages.
    pub(super) scripts: PathBuf,
    pub(super) is_venv: bool,
    pub(super) is_conda: bool,
    /// PEP 668: packages may not be installed into it.
    pub(super) is_externally_managed: bool,
    pub(super) has_pip: bool,
    /// Whether `python -m venv` works: Debian leaves `ensurepip` out of its `python3`.
    pub(super) has_venv: bool,
    pub(super) ipython: Option<Distribution>,
    pub(super) pydantic: Option<Distribution>,
}

/// An installed distribution.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Distribution {
    pub(super) version: String,
    /// Its metadata directory, which another version would not have.
    pub(super) path: Option<PathBuf>,
}

/// Why a program cannot be used as an interpreter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("it could not be run: {0}")]
    Start(String),
    #[error("it is not a Python interpreter: {0}")]
    NotPython(String),
    #[error("it did not answer within {} s", LIMIT.as_secs())]
    Silent,
    #[error("it is Python {}, and {}.{} or newer is needed", dotted(*.0), OLDEST.0, OLDEST.1)]
    TooOld(PythonVersion),
}

/// The output of the probe.
#[derive(Deserialize)]
struct ProbeAnswer {
    version: PythonVersion,
    details: Option<PythonDetails>,
}

/// Runs `python` once and returns its facts.
pub(super) async fn probe(
    python: &Path,
    environment: &BTreeMap<String, String>,
) -> Result<PythonFacts, ProbeError> {
    let invocation = ProgramInvocation::new(python, environment).args(["-I", "-c", PROBE]);
    let Ok(run) = tokio::time::timeout(LIMIT, run::run(&invocation, Stdio::null(), &|_| ())).await else {
        return Err(ProbeError::Silent);
    };
    let run = run.map_err(|error| ProbeError::Start(error.to_string()))?;
    parse(&run.output)
}

/// Finds the answer in the interpreter's output: `.pth` files of its environment may write too.
fn parse(output: &str) -> Result<PythonFacts, ProbeError> {
    let answer = output.lines().rev().find_map(|line| serde_json::from_str::<ProbeAnswer>(line).ok());
    match answer {
        Some(ProbeAnswer { version, details: Some(details) }) => Ok(PythonFacts { version, details }),
        Some(ProbeAnswer { version, details: None }) => Err(ProbeError::TooOld(version)),
        None => {
            let said: String = run::last_lines(output, 3).chars().take(SHOWN_CHARS).collect();
            Err(ProbeError::NotPython(said))
        }
    }
}

impl PythonFacts {
    /// The major and the minor version.
    pub(super) fn minor_version(&self) -> (u32, u32) {
        (self.version.0, self.version.1)
    }

    /// Whether it is newer than what ipybox is tested with.
    pub(super) fn is_untested(&self) -> bool {
        self.minor_version() > NEWEST
    }

    /// The requirements that its environment does not meet.
    pub(super) fn lacking(&self) -> Vec<String> {
        let installed = [&self.details.ipython, &self.details.pydantic];
        let lacking = NEEDED.iter().zip(installed).filter(|((_, oldest), installed)| {
            let version = installed.as_ref().and_then(|installed| major_and_minor(&installed.version));
            version.is_none_or(|version| version < *oldest)
        });
        lacking.map(|(needed, _)| requirement(needed)).collect()
    }

    /// The places of the needed packages' metadata, if they are known for all.
    pub(super) fn metadata(&self) -> Option<[&Path; 2]> {
        Some([
            self.details.ipython.as_ref()?.path.as_deref()?,
            self.details.pydantic.as_ref()?.path.as_deref()?,
        ])
    }

    /// Logs if this Python is newer than the ones that ipybox is tested with.
    pub(super) fn note_newer_than_tested(&self) {
        if self.is_untested() {
            tracing::warn!(version = %dotted(self.version), "this Python is newer than what ipybox is tested with");
        }
    }
}

/// Everything that an environment must hold, as requirements.
pub(super) fn needed() -> [String; 2] {
    NEEDED.each_ref().map(requirement)
}

pub(super) fn dotted((major, minor, micro): PythonVersion) -> String {
    format!("{major}.{minor}.{micro}")
}

fn requirement((name, oldest): &(&str, (u32, u32))) -> String {
    match oldest {
        (major, 0) => format!("{name}>={major}"),
        (major, minor) => format!("{name}>={major}.{minor}"),
    }
}

/// The beginning of a version; the minor number is 0 if there is none.
fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    // Our packages use no epochs (`1!2.0`).
    let mut numbers = version.split(|character: char| !character.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next().and_then(|minor| minor.parse().ok()).unwrap_or_default()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The facts of a virtual environment at `prefix` that holds these versions.
    pub(in super::super) fn venv(prefix: &str, ipython: Option<&str>, pydantic: Option<&str>) -> PythonFacts {
        let prefix = PathBuf::from(prefix);
        let distribution = |name: &str, version: Option<&str>| {
            version.map(|version| Distribution {
                version: version.to_owned(),
                path: Some(prefix.join(format!("{name}-{version}.dist-info"))),
            })
        };
        PythonFacts {
            version: (3, 12, 1),
            details: PythonDetails {
                executable: prefix.join("bin/python"),
                base_executable: PathBuf::from("/usr/bin/python3.12"),
                scripts: prefix.join("bin"),
                is_venv: true,
                is_conda: false,
                is_externally_managed: false,
                has_pip: true,
                has_venv: true,
                ipython: distribution("ipython", ipython),
                pydantic: distribution("pydantic", pydantic),
                prefix,
            },
        }
    }

    fn check_lacking(ipython: Option<&str>, pydantic: Option<&str>, expected: &[&str]) {
        assert_eq!(venv("/venv", ipython, pydantic).lacking(), expected, "{ipython:?} {pydantic:?}");
    }

    #[test]
    fn what_is_missing_or_too_old_is_lacking() {
        check_lacking(Some("9.5.0"), Some("2.14.3"), &[]);
        check_lacking(Some("10.0.0rc1"), Some("3"), &[]);
        check_lacking(Some("7.34.0"), Some("2.6"), &["ipython>=8"]);
        check_lacking(Some("8.0"), Some("2.5.3"), &["pydantic>=2.6"]);
        check_lacking(None, Some("1.10.1"), &["ipython>=8", "pydantic>=2.6"]);
        check_lacking(Some("7.9"), Some("2.6.0"), &["ipython>=8"]);
        check_lacking(Some("8.0.0a1"), Some("2.10"), &[]);
        check_lacking(Some("8"), Some("2.13.0"), &[]);
        check_lacking(Some("unknown"), Some("2.6"), &["ipython>=8"]);
    }

    #[test]
    fn the_answer_is_found_among_other_output() {
        let facts = venv("/venv", None, None);
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(parse(&format!("a noisy .pth file\n{json}\n\n")), Ok(facts));
        assert_eq!(parse("{\"version\": [3, 9, 18]}\n"), Err(ProbeError::TooOld((3, 9, 18))));
        assert_eq!(parse("a\nb\nc\nd\n"), Err(ProbeError::NotPython("b\nc\nd".to_owned())));
    }

    #[tokio::test]
    async fn a_program_that_is_not_python_is_reported_with_its_output() {
        let environment = BTreeMap::new();
        let error = probe(Path::new("/bin/ls"), &environment).await.unwrap_err();
        assert!(error.to_string().starts_with("it is not a Python interpreter: "), "{error}");
        let error = probe(Path::new("/nonexistent"), &environment).await.unwrap_err();
        assert!(error.to_string().starts_with("it could not be run: "), "{error}");
    }
}
