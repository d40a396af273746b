//! The packages of a broken environment, read from its files.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::probe::Distribution;

/// How much of a package's metadata is read. Its requirements come before its description.
const METADATA_BYTES: u64 = 1024 * 1024;

/// Packages that the managed environment is created with, by us, by an earlier ipybox or by an old `venv`.
const OWN: [&str; 7] = ["ipython", "pydantic", "cloudpickle", "pip", "setuptools", "wheel", "ipykernel"];

/// The packages that no other package there requires: those that were installed by name.
///
/// The `REQUESTED` files of PEP 376 are useless, since uv writes one for every package.
pub(super) fn requested_packages(environment: &Path) -> Vec<String> {
    let libraries = entries(&environment.join("lib"));
    let packages: Vec<PathBuf> = libraries
        .iter()
        .flat_map(|library| entries(&library.join("site-packages")))
        .filter(|path| path.extension().is_some_and(|extension| extension == "dist-info"))
        .collect();
    let required: BTreeSet<String> = packages.iter().flat_map(|package| requirements(package)).collect();
    let names = packages.iter().filter_map(|package| Some(package.file_name()?.to_str()?.split_once('-')?.0));
    let mut names: Vec<String> = names
        .map(normalized)
        .filter(|name| !required.contains(name) && !OWN.contains(&name.as_str()))
        .collect();
    names.sort();
    names
}

/// The distribution of this name in a directory of packages, if it is there.
pub(super) fn installed(packages: &Path, name: &str) -> Option<Distribution> {
    let version_of = |path: &Path| {
        let (found, version) = path.file_name()?.to_str()?.strip_suffix(".dist-info")?.split_once('-')?;
        (normalized(found) == name).then(|| version.to_owned())
    };
    let mut found = entries(packages).into_iter();
    found.find_map(|path| Some(Distribution { version: version_of(&path)?, path: Some(path) }))
}

/// An unreadable directory counts as empty.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(directory).into_iter().flatten();
    read.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The names that a package requires without any extra.
fn requirements(package: &Path) -> Vec<String> {
    let metadata = text_of(&package.join("METADATA")).unwrap_or_default();
    let required = metadata.lines().filter_map(|line| line.strip_prefix("Requires-Dist:"));
    required
        .filter(|required| !required.contains("extra =="))
        .map(|required| {
            let name = required.trim_start();
            let is_part = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
            normalized(name.split(|character| !is_part(character)).next().unwrap_or_default())
        })
        .collect()
}

/// The beginning of a regular file. Installed packages may have put anything there: a pipe that nobody writes
/// to, a link.
fn text_of(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(METADATA_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The one spelling of a name (PEP 503).
pub(super) fn normalized(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    Vec::from_iter(parts).join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let metadata = directory.path().join("METADATA");
        nix::unistd::mkfifo(&metadata, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(text_of(&metadata).is_err());
        std::fs::remove_file(&metadata).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &metadata).unwrap();
        assert!(text_of(&metadata).is_err());
    }

    #[test]
    fn packages_that_others_require_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let site = directory.path().join("lib/python3.12/site-packages");
        for (name, metadata) in [
            ("pandas-2.2.0", "Name: pandas\nRequires-Dist: numpy>=1.20; python_version < \"3.15\"\n"),
            ("numpy-2.1.0", "Name: numpy\nRequires-Dist: attrs; extra == \"dev\"\n"),
            ("ipykernel-7.0", "Requires-Dist: jupyter-client (>=8)\n"),
            ("jupyter_client-8.1", ""),
            ("Attrs-24.1", ""),
        ] {
            let info = site.join(format!("{name}.dist-info"));
            std::fs::create_dir_all(&info).unwrap();
            std::fs::write(info.join("METADATA"), metadata).unwrap();
        }
        assert_eq!(requested_packages(directory.path()), ["attrs", "pandas"]);
        assert_eq!(requested_packages(Path::new("/nonexistent")), Vec::<String>::new());
    }
}
