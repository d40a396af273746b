//! Saves the images of cells, in the workspace or the directory that the user has set.
//!
//! Code in the kernel can write to the workspace too: a symbolic link in place of the directory must not make
//! us write into another one.

use std::io::{self, Write};
use std::path::PathBuf;

use cap_std::fs::Dir;

use super::kept;
use crate::kernels::kernel::Image;

/// The directories for files of cells.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Long texts go below it.
    pub(crate) workspace: PathBuf,
    /// Images go into it; an absolute path.
    pub(crate) images: PathBuf,
}

impl Places {
    /// Opens the directory of images. Inside the workspace, no link is followed.
    fn open_images(&self) -> io::Result<Dir> {
        match self.images.strip_prefix(&self.workspace) {
            Ok(directory) => kept::directory_below(&self.workspace, directory),
            Err(_) => {
                std::fs::create_dir_all(&self.images)?;
                Dir::open_ambient_dir(&self.images, cap_std::ambient_authority())
            }
        }
    }
}

/// An image that a cell showed.
#[derive(Debug)]
pub(crate) struct SavedImage {
    /// Where it is saved: `<images directory>/<8 hex digits>.<extension>`.
    pub(crate) path: PathBuf,
    /// The file's bytes as the cell showed them, unless there are too many to hold.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Saves an image. Blocks.
pub(crate) fn save(places: &Places, image: Image) -> io::Result<SavedImage> {
    let directory = places.open_images()?;
    let (name, mut file) = kept::create_new(&directory, |digits| format!("{digits}.{}", image.extension))?;
    file.write_all(&image.bytes)?;
    Ok(SavedImage { path: places.images.join(name), bytes: Some(image.bytes) })
}

/// Removes an image that was saved. Blocks.
pub(crate) fn remove(places: &Places, image: &SavedImage) -> io::Result<()> {
    places.open_images()?.remove_file(image.path.file_name().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn image(extension: &'static str, bytes: &[u8]) -> Image {
        Image { extension, bytes: bytes.to_vec() }
    }

    fn places(workspace: &Path) -> Places {
        Places { workspace: workspace.to_owned(), images: workspace.join("images") }
    }

    #[test]
    fn a_directory_outside_the_workspace_is_made() {
        let [workspace, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let images = outside.path().join("a/b");
        let places = Places { workspace: workspace.path().to_owned(), images: images.clone() };
        let saved = save(&places, image("png", b"\x89")).unwrap();
        assert_eq!(saved.path.parent().unwrap(), images);
        assert!(saved.path.exists());
    }

    #[test]
    fn images_are_saved_under_eight_hex_digits() {
        let workspace = tempfile::tempdir().unwrap();
        let saved = save(&places(workspace.path()), image("svg", b"<svg/>")).unwrap();
        assert_eq!(std::fs::read(&saved.path).unwrap(), b"<svg/>");
        let stem = saved.path.file_stem().unwrap().to_str().unwrap();
        assert!(stem.len() == 8 && stem.chars().all(|digit| digit.is_ascii_hexdigit()), "{stem}");
        assert_eq!(saved.path.extension().unwrap(), "svg");
        remove(&places(workspace.path()), &saved).unwrap();
        assert!(!saved.path.exists());
    }

    #[test]
    fn a_link_is_not_followed() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let inside = workspace.path().join(".vscode");
        std::fs::create_dir(&inside).unwrap();
        for target in [outside.path(), &inside] {
            let link = workspace.path().join("images");
            std::os::unix::fs::symlink(target, &link).unwrap();
            save(&places(workspace.path()), image("png", b"\x89")).unwrap_err();
            assert_eq!(std::fs::read_dir(target).unwrap().count(), 0);
            std::fs::remove_file(link).unwrap();
        }
    }
}
