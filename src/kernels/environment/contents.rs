//! The packages of a broken environment, read from its files: requested ones, and incomplete ones.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::probe::Distribution;

/// The part of a package's metadata that is read. Its requirements come before its description.
const METADATA_BYTES: u64 = 1024 * 1024;
/// The part of the list of its files that is read. The largest packages have lists of 2 MB.
const RECORD_BYTES: u64 = 16 * 1024 * 1024;

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

/// The packages in a directory of packages that lack files, or the last file that installers write, as requirements.
///
/// Installers take them for installed, whatever they lack.
pub(super) fn incomplete(packages: &Path) -> Vec<String> {
    let requirement = |path: &Path| {
        let (name, version) = path.file_name()?.to_str()?.strip_suffix(".dist-info")?.split_once('-')?;
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._+!".contains(c));
        (is_plain(name) && is_plain(version)).then(|| format!("{name}=={version}"))
    };
    let found = entries(packages).into_iter();
    let named = found.filter_map(|path| Some((requirement(&path)?, path)));
    let mut incomplete: Vec<String> =
        named.filter(|(_, path)| !is_complete(packages, path)).map(|(requirement, _)| requirement).collect();
    incomplete.sort();
    incomplete
}

/// Whether all files of a package are there, with their sizes.
fn is_complete(packages: &Path, package: &Path) -> bool {
    let Ok(record) = text_of(&package.join("RECORD"), RECORD_BYTES) else { return false };
    package.join("INSTALLER").exists() && record.lines().all(|line| is_as_recorded(packages, line))
}

/// Whether the file of a line of a record, `path,hash,size`, is there. Bytecode is written and removed by Python too.
fn is_as_recorded(packages: &Path, line: &str) -> bool {
    let mut parts = line.rsplitn(3, ',');
    let (Some(size), Some(_hash), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        return true;
    };
    let path = path.trim_matches('"');
    if path.contains("__pycache__/") {
        return true;
    }
    let found = std::fs::metadata(packages.join(path));
    found.is_ok_and(|found| size.parse::<u64>().map_or(true, |size| size == found.len()))
}

/// An unreadable directory counts as empty.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(directory).into_iter().flatten();
    read.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The names that a package requires without any extra.
fn requirements(package: &Path) -> Vec<String> {
    let metadata = text_of(&package.join("METADATA"), METADATA_BYTES).unwrap_or_default();
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
fn text_of(path: &Path, most_bytes: u64) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(most_bytes).read_to_end(&mut text)?;
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
        assert!(text_of(&metadata, METADATA_BYTES).is_err());
        std::fs::remove_file(&metadata).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &metadata).unwrap();
        assert!(text_of(&metadata, METADATA_BYTES).is_err());
    }

    #[test]
    fn a_package_without_some_of_its_files_is_incomplete() {
        let directory = tempfile::tempdir().unwrap();
        let site = directory.path().join("site-packages");
        let make = |name: &str, files: &[(&str, &str)]| {
            let info = site.join(format!("{name}-1.0.dist-info"));
            std::fs::create_dir_all(&info).unwrap();
            for (file, text) in files {
                std::fs::write(info.join(file), text).unwrap();
            }
        };
        let record = |text: &'static str| [("INSTALLER", "uv"), ("RECORD", text)];
        std::fs::create_dir_all(&site).unwrap();
        std::fs::write(site.join("a,b.py"), "12345").unwrap();
        let files = "\"a,b.py\",sha256=x,5\nwhole-1.0.dist-info/RECORD,,\n__pycache__/a.pyc,sha256=y,7\n";
        make("whole", &record(files));
        make("other_size", &record("\"a,b.py\",sha256=x,6\n"));
        make("lacks_a_file", &record("gone.py,sha256=x,5\n"));
        make("lacks_its_record", &[("INSTALLER", "uv")]);
        make("lacks_the_last_file", &[("RECORD", "\"a,b.py\",sha256=x,5\n")]);
        make("--no-name", &[]);
        let expected =
            ["lacks_a_file==1.0", "lacks_its_record==1.0", "lacks_the_last_file==1.0", "other_size==1.0"];
        assert_eq!(incomplete(&site), expected);
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
