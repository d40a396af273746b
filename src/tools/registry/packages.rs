//! The generated packages: `mcptools/<server>/` in a workspace.
//!
//! A package is written beside the old one and swapped in whole. Code in the kernel can write in the
//! workspace too: symbolic links in it are not followed out of it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ground::files::replacement::{PUBLIC, Replacement, flush_directory, replace, sweep};
use crate::ground::files::{if_there, remove_tree_in};
use ipybox_codegen as codegen;

/// The directory of all packages in a workspace.
const WORKSPACE_DIRECTORY: &str = "mcptools";

/// The packages in one directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PackageDirectory {
    /// Trusted, while its contents are not.
    #[serde(serialize_with = "as_bytes", deserialize_with = "from_bytes")]
    root: PathBuf,
    directory: PathBuf,
}

/// A package that is written and not yet in place. If dropped before, it is removed.
#[must_use = "put it in place"]
pub(super) struct NewPackage {
    written: Replacement,
    name: String,
}

impl PackageDirectory {
    /// The packages of a workspace.
    pub(crate) fn of_workspace(workspace: &Path) -> Self {
        Self::new(workspace, WORKSPACE_DIRECTORY)
    }

    /// The packages in `directory`, a path relative to `root`.
    pub(super) fn new(root: &Path, directory: impl Into<PathBuf>) -> Self {
        // A process that completes a change for this one may have another working directory.
        let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Self { root: absolute, directory: directory.into() }
    }

    /// Writes `package` beside the package called `name`, and removes what earlier processes have left there.
    pub(super) fn write(&self, name: &str, package: &codegen::Package) -> io::Result<NewPackage> {
        let root = Dir::open_ambient_dir(&self.root, cap_std::ambient_authority())?;
        root.create_dir_all(&self.directory)?;
        let directory = root.open_dir(&self.directory)?;
        sweep(&directory);
        let written = Replacement::directory(&directory)?;
        let files = package.files.iter();
        written.fill(files.map(|file| (file.path.as_str(), file.text.as_str())))?;
        Ok(NewPackage { written, name: name.to_owned() })
    }

    /// Removes the package called `name`, if there is one.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let root = Dir::open_ambient_dir(&self.root, cap_std::ambient_authority())?;
        let Some(directory) = if_there(root.open_dir(&self.directory))? else { return Ok(()) };
        sweep(&directory);
        if_there(remove_tree_in(&directory, name))?;
        flush_directory(&directory);
        Ok(())
    }

    /// Removes what processes have left that died while they wrote a package.
    pub(super) fn sweep(&self) {
        let root = Dir::open_ambient_dir(&self.root, cap_std::ambient_authority());
        if let Ok(directory) = root.and_then(|root| root.open_dir(&self.directory)) {
            sweep(&directory);
        }
    }

    /// Writes one module of an existing package, atomically.
    pub(super) fn replace_module(&self, package: &str, module: &str, text: &str) -> io::Result<()> {
        let root = Dir::open_ambient_dir(&self.root, cap_std::ambient_authority())?;
        let directory = root.open_dir(self.directory.join(package))?;
        sweep(&directory);
        replace(&directory, format!("{module}.py"), PUBLIC, text.as_bytes())
    }
}

/// Paths need not be text.
fn as_bytes<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(path.as_os_str().as_bytes())
}

fn from_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(OsString::from_vec(Vec::deserialize(deserializer)?).into())
}

impl NewPackage {
    /// Puts it in the place of the package of its name.
    pub(super) fn put(self) -> io::Result<()> {
        self.written.exchange(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(text: &str) -> codegen::Package {
        let tool = codegen::Tool {
            name: text.to_owned(),
            title: None,
            description: None,
            input_schema: serde_json::Map::new(),
            output_schema: None,
            observed: None,
        };
        codegen::generate(&codegen::Server { name: "s".to_owned(), description: None }, &[tool])
    }

    fn entries(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn replace(packages: &PackageDirectory, text: &str) {
        packages.write("s", &package(text)).unwrap().put().unwrap();
    }

    #[test]
    fn a_package_replaces_the_one_before_and_leaves_nothing_else() {
        let workspace = tempfile::tempdir().unwrap();
        let packages = PackageDirectory::new(workspace.path(), WORKSPACE_DIRECTORY);
        replace(&packages, "one");
        replace(&packages, "two");
        assert_eq!(entries(&workspace.path().join("mcptools")), ["s"]);
        let modules = entries(&workspace.path().join("mcptools/s"));
        assert!(
            modules.contains(&"two.py".to_owned()) && !modules.contains(&"one.py".to_owned()),
            "{modules:?}"
        );
    }

    #[test]
    fn a_package_that_is_not_put_in_place_is_removed() {
        let workspace = tempfile::tempdir().unwrap();
        let packages = PackageDirectory::new(workspace.path(), WORKSPACE_DIRECTORY);
        replace(&packages, "one");
        drop(packages.write("s", &package("two")).unwrap());
        assert_eq!(entries(&workspace.path().join("mcptools")), ["s"]);
        assert!(entries(&workspace.path().join("mcptools/s")).contains(&"one.py".to_owned()));
    }

    #[test]
    fn a_link_in_place_of_the_directory_is_not_followed() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(outside.path().join("s")).unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join("mcptools")).unwrap();
        let packages = PackageDirectory::new(workspace.path(), WORKSPACE_DIRECTORY);
        assert!(packages.write("s", &package("one")).is_err());
        assert_eq!(entries(outside.path()), ["s"]);
    }

    #[test]
    fn a_link_in_place_of_a_package_is_replaced_and_its_target_left_alone() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("precious"), "x").unwrap();
        std::fs::create_dir(workspace.path().join("mcptools")).unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join("mcptools/s")).unwrap();
        replace(&PackageDirectory::new(workspace.path(), WORKSPACE_DIRECTORY), "one");
        assert_eq!(entries(outside.path()), ["precious"]);
        assert!(!workspace.path().join("mcptools/s").is_symlink());
    }
}
