//! The interpreter that the user named by `--python`: used unchanged, or refused with a hint.

use std::path::{Path, PathBuf};

use super::installer::Installer;
use super::probe::{self, PythonFacts};
use super::record::{RecordContent, RecordFile};
use super::{Error, UnusablePython, run};

/// Checks the interpreter that was named as `named`; `path` is the value of `PATH`.
pub(super) async fn prepare(
    named: &Path,
    path: &str,
    record: &RecordFile,
    installer: &Installer,
) -> Result<PythonFacts, Error> {
    let refused = |why| Error::Unusable { python: named.to_owned(), why };
    let python = locate(named, path).map_err(refused)?;
    if let RecordContent::True(record) = record.recall(&python) {
        return Ok(record.facts);
    }
    let facts = examine(named, path, installer).await?;
    facts.note_newer_than_tested();
    if facts.details.executable == python {
        // Without a record the next start is a little slower, no more.
        if let Err(error) = record.keep(&python, installer.default_tool(), &facts) {
            tracing::debug!(%error, "could not keep what the interpreter is");
        }
    }
    Ok(facts)
}

/// The facts about the interpreter, if it can be used; keeps no record of it.
pub(super) async fn examine(named: &Path, path: &str, installer: &Installer) -> Result<PythonFacts, Error> {
    let refused = |why| Error::Unusable { python: named.to_owned(), why };
    let python = locate(named, path).map_err(refused)?;
    let facts = probe::probe(&python, installer.environment())
        .await
        .map_err(|error| refused(UnusablePython::Probe(error)))?;
    accept(&facts, crate::ground::env::on_path("uv", path).is_some()).map_err(refused)?;
    Ok(facts)
}

/// The interpreter's path: a bare name is looked up on `PATH` first, a virtual environment has its python.
fn locate(named: &Path, path: &str) -> Result<PathBuf, UnusablePython> {
    let is_bare = named.components().count() == 1 && !named.is_absolute();
    if is_bare && let Some(program) = named.to_str().and_then(|name| crate::ground::env::on_path(name, path))
    {
        return Ok(program);
    }
    let file = std::path::absolute(named).map_err(|_| UnusablePython::NotFound)?;
    if file.is_dir() {
        let python = file.join("bin/python");
        return if crate::ground::env::is_program(&python) {
            Ok(python)
        } else {
            Err(UnusablePython::NoPythonInside)
        };
    }
    if crate::ground::env::is_program(&file) {
        Ok(file)
    } else if file.exists() {
        Err(UnusablePython::NotExecutable)
    } else if is_bare {
        Err(UnusablePython::NotOnPath)
    } else {
        Err(UnusablePython::NotFound)
    }
}

/// Whether a kernel can run in it and packages can be installed into it.
fn accept(facts: &PythonFacts, has_uv: bool) -> Result<(), UnusablePython> {
    if facts.details.is_externally_managed {
        return Err(UnusablePython::ExternallyManaged);
    }
    let lacking = facts.lacking();
    if lacking.is_empty() {
        return Ok(());
    }
    let python = run::quoted(&facts.details.executable);
    let installer = match (has_uv, facts.details.has_pip) {
        (true, _) => format!("uv pip install --python {python}"),
        (false, true) => format!("{python} -m pip install"),
        (false, false) => format!("{python} -m ensurepip && {python} -m pip install"),
    };
    let command = format!("{installer} '{}'", lacking.join("' '"));
    Err(UnusablePython::Lacking { lacking: lacking.join(" and "), command })
}

#[cfg(test)]
mod tests {
    use super::super::probe::tests::venv;
    use super::*;

    fn check_locate(named: &str, expected: Result<&str, UnusablePython>) {
        assert_eq!(locate(Path::new(named), "/nonexistent:/bin"), expected.map(PathBuf::from), "{named}");
    }

    #[test]
    fn a_name_a_path_and_a_directory_are_located() {
        check_locate("sh", Ok("/bin/sh"));
        check_locate("/bin/sh", Ok("/bin/sh"));
        check_locate("python-of-nobody", Err(UnusablePython::NotOnPath));
        check_locate("./python-of-nobody", Err(UnusablePython::NotFound));
        check_locate("/etc/passwd", Err(UnusablePython::NotExecutable));
        check_locate("/etc", Err(UnusablePython::NoPythonInside));
        check_locate("", Err(UnusablePython::NotFound));
        check_locate("src", Err(UnusablePython::NoPythonInside));
    }

    fn check_accept(facts: &PythonFacts, has_uv: bool, expected: &str) {
        let accepted = accept(facts, has_uv).map_err(|error| error.to_string());
        assert_eq!(accepted.err().as_deref().unwrap_or_default(), expected);
    }

    #[test]
    fn what_is_missing_is_reported_with_the_command_that_installs_it() {
        check_accept(&venv("/venv", Some("8.0"), Some("2.10")), true, "");
        check_accept(
            &venv("/venv", Some("6.9"), Some("2.10")),
            true,
            "it lacks ipython>=8\nhint: run `uv pip install --python /venv/bin/python 'ipython>=8'`",
        );
        check_accept(
            &venv("/my venv", None, None),
            false,
            "it lacks ipython>=8 and pydantic>=2.6\n\
             hint: run `'/my venv/bin/python' -m pip install 'ipython>=8' 'pydantic>=2.6'`",
        );
    }

    #[test]
    fn an_externally_managed_interpreter_is_refused() {
        let mut facts = venv("/usr", Some("8.0"), Some("2.10"));
        facts.details.is_externally_managed = true;
        assert_eq!(accept(&facts, true), Err(UnusablePython::ExternallyManaged));
    }
}
