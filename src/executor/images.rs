//! Saves the images of cells in the workspace.
//!
//! Code in the kernel can write there too: a symbolic link in place of the directory must not lead
//! us to write elsewhere.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions};

use crate::kernel::Image;

/// The directory's name in the workspace.
pub(super) const DIRECTORY: &str = "images";

/// An image that a cell showed.
#[derive(Debug)]
pub(crate) struct SavedImage {
    /// Where it is saved: `<workspace>/images/<8 hex digits>.<extension>`.
    pub(crate) path: PathBuf,
    /// The file's bytes as the cell showed them, unless there are too many to hold.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Saves an image below `workspace`. Blocks.
pub(super) fn save(workspace: &Path, image: Image) -> io::Result<SavedImage> {
    let root = Dir::open_ambient_dir(workspace, cap_std::ambient_authority())?;
    root.create_dir_all(DIRECTORY)?;
    let directory = root.open_dir(DIRECTORY)?;
    loop {
        let name = format!("{:08x}.{}", uuid::Uuid::new_v4().as_fields().0, image.extension);
        match directory.open_with(&name, OpenOptions::new().write(true).create_new(true)) {
            Ok(mut file) => {
                file.write_all(&image.bytes)?;
                let path = workspace.join(DIRECTORY).join(name);
                return Ok(SavedImage { path, bytes: Some(image.bytes) });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes an image that was saved below `workspace`. Blocks.
pub(super) fn remove(workspace: &Path, image: &SavedImage) -> io::Result<()> {
    let root = Dir::open_ambient_dir(workspace, cap_std::ambient_authority())?;
    let name = image.path.file_name().unwrap_or_default();
    root.remove_file(Path::new(DIRECTORY).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(extension: &'static str, bytes: &[u8]) -> Image {
        Image { extension, bytes: bytes.to_vec() }
    }

    #[test]
    fn images_are_saved_under_eight_hex_digits() {
        let workspace = tempfile::tempdir().unwrap();
        let saved = save(workspace.path(), image("svg", b"<svg/>")).unwrap();
        assert_eq!(std::fs::read(&saved.path).unwrap(), b"<svg/>");
        let stem = saved.path.file_stem().unwrap().to_str().unwrap();
        assert!(stem.len() == 8 && stem.chars().all(|digit| digit.is_ascii_hexdigit()), "{stem}");
        assert_eq!(saved.path.extension().unwrap(), "svg");
        remove(workspace.path(), &saved).unwrap();
        assert!(!saved.path.exists());
    }

    #[test]
    fn a_link_out_of_the_workspace_is_not_followed() {
        let workspace = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), workspace.path().join(DIRECTORY)).unwrap();
        save(workspace.path(), image("png", b"\x89")).unwrap_err();
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
