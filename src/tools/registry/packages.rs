//! The generated packages: `mcptools/<server>/` in a workspace.
//!
//! A package is written beside the old one and swapped in whole. Code in the kernel can write in the
//! workspace too: symbolic links in it are not followed out of it.

use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{RenameFlags, renameat_with};

use crate::ground::files::{if_there, persist};
use crate::tools::codegen;

/// The directory of all packages in a workspace.
const WORKSPACE_DIRECTORY: &str = "mcptools";

/// The packages in one directory.
#[derive(Clone)]
pub(crate) struct Packages {
    /// Trusted, while its contents are not.
    root: PathBuf,
    directory: PathBuf,
}

/// A package that has just been put in place, and the earlier one.
#[must_use = "confirm or undo the replacement"]
pub(super) struct Replaced {
    directory: Dir,
    name: String,
    /// Where the old package is now.
    old: Option<String>,
}

impl Packages {
    /// The packages of a workspace.
    pub(crate) fn of_workspace(workspace: &Path) -> Self {
        Self::new(workspace, WORKSPACE_DIRECTORY)
    }

    /// The packages in `directory`, a path relative to `root`.
    pub(super) fn new(root: &Path, directory: impl Into<PathBuf>) -> Self {
        Self { root: root.to_owned(), directory: directory.into() }
    }

    /// Writes `package` and puts it in the place of the package called `name`.
    pub(super) fn replace(&self, name: &str, package: &codegen::Package) -> io::Result<Replaced> {
        let root = Dir::open_ambient_dir(&self.root, cap_std::ambient_authority())?;
        root.create_dir_all(&self.directory)?;
        let directory = root.open_dir(&self.directory)?;
        // Not importable under this name, and ignored by the reader.
        let fresh = format!(".{name}-{}", uuid::Uuid::new_v4().simple());
        let written = write(&directory, &fresh, package).and_then(|()| swap(&directory, &fresh, name));
        match written {
            Ok(had_old) => Ok(Replaced { directory, name: name.to_owned(), old: had_old.then_some(fresh) }),
            Err(error) => {
                remove(&directory, &fresh);
                Err(error)
            }
        }
    }

    /// Removes the package called `name`, if there is one.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let root = Dir::open_ambient_dir(&self.root, cap_std::ambient_authority())?;
        if_there(root.open_dir(&self.directory).and_then(|directory| directory.remove_dir_all(name)))
            .map(drop)
    }

    /// Writes one module of an existing package, atomically.
    pub(super) fn replace_module(&self, package: &str, module: &str, text: &str) -> io::Result<()> {
        let root = Dir::open_ambient_dir(&self.root, cap_std::ambient_authority())?;
        let directory = root.open_dir(self.directory.join(package))?;
        let fresh = format!(".{module}-{}", uuid::Uuid::new_v4().simple());
        let written = directory
            .write(&fresh, text)
            .and_then(|()| directory.rename(&fresh, &directory, format!("{module}.py")));
        written.inspect_err(|_| remove(&directory, &fresh))
    }
}

impl Replaced {
    /// Removes the old package.
    pub(super) fn confirm(self) {
        if let Some(old) = self.old {
            remove(&self.directory, &old);
        }
    }

    /// Puts the old package back.
    pub(super) fn undo(self) -> io::Result<()> {
        let Some(old) = self.old else { return self.directory.remove_dir_all(&self.name) };
        swap(&self.directory, &old, &self.name)?;
        remove(&self.directory, &old);
        Ok(())
    }
}

fn write(directory: &Dir, name: &str, package: &codegen::Package) -> io::Result<()> {
    directory.create_dir(name)?;
    let target = directory.open_dir(name)?;
    for file in &package.files {
        target.write(&file.path, &file.text)?;
    }
    Ok(())
}

/// Exchanges `fresh` and `name` atomically; the earlier `name` is called `fresh` then.
///
/// Returns whether `name` existed.
fn swap(directory: &Dir, fresh: &str, name: &str) -> io::Result<bool> {
    persist(is_outrun, || match renameat_with(directory, fresh, directory, name, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOENT) => directory.rename(fresh, directory, name).map(|()| false),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            swap_by_a_third_name(directory, fresh, name).map(|()| true)
        }
        Err(error) => Err(error.into()),
    })
}

/// For a file system without exchange: the package is missing for a moment, but never lost.
fn swap_by_a_third_name(directory: &Dir, fresh: &str, name: &str) -> io::Result<()> {
    let aside = format!("{fresh}-old");
    directory.rename(name, directory, &aside)?;
    if let Err(error) = directory.rename(fresh, directory, name) {
        match directory.rename(&aside, directory, name) {
            // Another server has put its package there.
            Err(occupied) if is_outrun(&occupied) => remove(directory, &aside),
            restored => restored?,
        }
        return Err(error);
    }
    directory.rename(&aside, directory, fresh)
}

/// Whether a package has appeared or disappeared since it was looked for.
fn is_outrun(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
    )
}

/// Removes a leftover; a failure is not worth failing a registration for.
fn remove(directory: &Dir, name: &str) {
    let removed = match if_there(directory.symlink_metadata(name)) {
        Ok(Some(metadata)) if metadata.is_dir() => directory.remove_dir_all(name),
        Ok(Some(_)) => directory.remove_file(name),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        tracing::warn!(%error, name, "could not remove a leftover of a package");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

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

    #[test]
    fn a_package_replaces_the_one_before_and_leaves_nothing_else() {
        let workspace = tempfile::tempdir().unwrap();
        let packages = Packages::new(workspace.path(), WORKSPACE_DIRECTORY);
        packages.replace("s", &package("one")).unwrap().confirm();
        packages.replace("s", &package("two")).unwrap().confirm();
        assert_eq!(entries(&workspace.path().join("mcptools")), ["s"]);
        let modules = entries(&workspace.path().join("mcptools/s"));
        assert!(
            modules.contains(&"two.py".to_owned()) && !modules.contains(&"one.py".to_owned()),
            "{modules:?}"
        );
    }

    #[test]
    fn a_replacement_can_be_undone() {
        let workspace = tempfile::tempdir().unwrap();
        let packages = Packages::new(workspace.path(), WORKSPACE_DIRECTORY);
        packages.replace("s", &package("one")).unwrap().undo().unwrap();
        assert_eq!(entries(&workspace.path().join("mcptools")), [""; 0]);
        packages.replace("s", &package("one")).unwrap().confirm();
        packages.replace("s", &package("two")).unwrap().undo().unwrap();
        assert!(entries(&workspace.path().join("mcptools/s")).contains(&"one.py".to_owned()));
        assert_eq!(entries(&workspace.path().join("mcptools")), ["s"]);
    }

    /// Has two servers put a package in place at the same moment, many times.
    fn check_together(swap: impl Fn(&Dir, &str, &str) -> io::Result<()> + Sync) {
        let workspace = tempfile::tempdir().unwrap();
        let directory = Dir::open_ambient_dir(workspace.path(), cap_std::ambient_authority()).unwrap();
        for _ in 0..200 {
            let (begin, package) = (Barrier::new(2), package("one"));
            std::thread::scope(|scope| {
                for fresh in ["a", "b"] {
                    let (directory, begin, package, swap) = (&directory, &begin, &package, &swap);
                    scope.spawn(move || {
                        write(directory, fresh, package).unwrap();
                        begin.wait();
                        swap(directory, fresh, "s").unwrap();
                        remove(directory, fresh);
                    });
                }
            });
            assert_eq!(entries(workspace.path()), ["s"]);
            directory.remove_dir_all("s").unwrap();
        }
    }

    #[test]
    fn servers_that_register_at_the_same_moment_replace_each_other() {
        check_together(|directory, fresh, name| swap(directory, fresh, name).map(drop));
    }

    #[test]
    fn they_also_do_on_a_file_system_without_exchange() {
        check_together(|directory, fresh, name| {
            persist(is_outrun, || match directory.exists(name) {
                true => swap_by_a_third_name(directory, fresh, name),
                false => directory.rename(fresh, directory, name),
            })
        });
    }

    #[test]
    fn a_link_in_place_of_the_directory_is_not_followed() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(outside.path().join("s")).unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join("mcptools")).unwrap();
        assert!(Packages::new(workspace.path(), WORKSPACE_DIRECTORY).replace("s", &package("one")).is_err());
        assert_eq!(entries(outside.path()), ["s"]);
    }

    #[test]
    fn a_link_in_place_of_a_package_is_replaced_and_its_target_left_alone() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("precious"), "x").unwrap();
        std::fs::create_dir(workspace.path().join("mcptools")).unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join("mcptools/s")).unwrap();
        Packages::new(workspace.path(), WORKSPACE_DIRECTORY).replace("s", &package("one")).unwrap().confirm();
        assert_eq!(entries(outside.path()), ["precious"]);
        assert!(!workspace.path().join("mcptools/s").is_symlink());
    }
}
