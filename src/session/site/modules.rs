//! The workspace's packages, for a kernel that has no access to its files: which Python files there are, and their text.
//!
//! Code chooses the paths in its requests. Only Python files below the three directories are returned, and no
//! symbolic link out of them is followed: `.env` lies beside them.

use std::io::Read as _;
use std::path::{Component, Path};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ground::files::if_there;
use crate::tools::tool_server::IMPORTABLE;

/// The most entries of a package that are listed: a stranger may have made them.
const ENTRIES_MAX: usize = 20_000;
/// The depth that directories may have.
const DEPTH_MAX: usize = 16;
/// The longest file.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    package: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceQuery {
    file: String,
}

/// Answers a request for `/files` or `/source`.
pub(super) fn answer(workspace: &Path, path: &str, body: &str) -> Result<Value, String> {
    if path == "/files" {
        let Files { package } = serde_json::from_str(body).map_err(|error| error.to_string())?;
        Ok(json!(files(workspace, &package)?))
    } else {
        let SourceQuery { file } = serde_json::from_str(body).map_err(|error| error.to_string())?;
        Ok(json!(source(workspace, &file)?))
    }
}

/// The Python files of a package by their paths, which begin with its name. One that does not exist has none.
fn files(workspace: &Path, package: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    if let Some(directory) = open(workspace, package)? {
        let mut entries = ENTRIES_MAX;
        collect(&directory, package, DEPTH_MAX, &mut entries, &mut found);
        found.sort();
    }
    Ok(found)
}

fn collect(directory: &Dir, path: &str, depth: usize, entries: &mut usize, found: &mut Vec<String>) {
    // An unreadable directory counts as missing.
    let Ok(children) = directory.entries() else { return };
    for entry in children.flatten() {
        if *entries == 0 {
            return;
        }
        *entries -= 1;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{path}/{name}");
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            if let Ok(directory) = entry.open_dir() {
                collect(&directory, &path, depth - 1, entries, found);
            }
        } else if kind.is_file() && name.ends_with(".py") {
            found.push(path);
        }
    }
}

fn source(workspace: &Path, file: &str) -> Result<String, String> {
    let failed = |why: &str| format!("`{file}` of the workspace cannot be read: {why}");
    let path = Path::new(file);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let (Some((package, rest)), true) = (file.split_once('/'), is_plain && file.ends_with(".py")) else {
        return Err(failed("it is no Python file of a package"));
    };
    let directory = open(workspace, package)?.ok_or_else(|| failed("there is no such package"))?;
    // Opening something else than a file may block.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let opened = directory.open_with(rest, &options).map_err(|error| failed(&error.to_string()))?;
    let metadata = opened.metadata().map_err(|error| failed(&error.to_string()))?;
    if !metadata.is_file() {
        return Err(failed("it is no file"));
    }
    let mut bytes = Vec::new();
    opened.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error.to_string()))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(failed("it is too long"));
    }
    String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8"))
}

/// The directory of a package, which must not be a link.
fn open(workspace: &Path, package: &str) -> Result<Option<Dir>, String> {
    if !IMPORTABLE.contains(&package) {
        return Err(format!("the package is none of `{}`", IMPORTABLE.join("`, `")));
    }
    let failed = |error: std::io::Error| format!("`{package}` in the workspace cannot be read: {error}");
    let root = Dir::open_ambient_dir(workspace, cap_std::ambient_authority()).map_err(failed)?;
    match if_there(root.symlink_metadata(package)).map_err(failed)? {
        Some(metadata) if metadata.is_dir() => root.open_dir(package).map(Some).map_err(failed),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn workspace() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("mcptools/git/deep")).unwrap();
        for file in
            ["mcptools/git/__init__.py", "mcptools/git/deep/b.py", "mcptools/git/notes.txt", ".env", "own.py"]
        {
            std::fs::write(root.path().join(file), file).unwrap();
        }
        root
    }

    #[test]
    fn python_files_of_packages_are_listed() {
        let root = workspace();
        let files = answer(root.path(), "/files", r#"{"package": "mcptools"}"#).unwrap();
        assert_eq!(files, json!(["mcptools/git/__init__.py", "mcptools/git/deep/b.py"]));
        assert_eq!(answer(root.path(), "/files", r#"{"package": "gentools"}"#).unwrap(), json!([]));
        let source = answer(root.path(), "/source", r#"{"file": "mcptools/git/deep/b.py"}"#);
        assert_eq!(source.unwrap(), json!("mcptools/git/deep/b.py"));
    }

    #[track_caller]
    fn check_refused(root: &Path, file: &str) {
        let body = json!({ "file": file }).to_string();
        answer(root, "/source", &body).unwrap_err();
    }

    #[test]
    fn nothing_else_is_served() {
        let root = workspace();
        symlink("../.env", root.path().join("mcptools/leak.py")).unwrap();
        symlink("/etc/passwd", root.path().join("mcptools/passwd.py")).unwrap();
        symlink(".", root.path().join("gentools")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("mcptools/pipe.py"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for file in [
            ".env",
            "own.py",
            "mcptools/pipe.py",
            "mcptools/leak.py",
            "mcptools/passwd.py",
            "mcptools/../own.py",
            "mcptools/git/notes.txt",
            "mcptools/git",
            "gentools/own.py",
            "/etc/passwd.py",
            "mcptools/missing.py",
        ] {
            check_refused(root.path(), file);
        }
        assert!(answer(root.path(), "/files", r#"{"package": "."}"#).is_err());
        assert_eq!(answer(root.path(), "/files", r#"{"package": "gentools"}"#).unwrap(), json!([]));
    }
}
