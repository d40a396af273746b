//! Saves the images of cells in the workspace.
//!
//! Code in the kernel can write there too: a symbolic link in place of the directory must not lead
//! us to write elsewhere.

use std::io::{self, Write};
use std::path::PathBuf;

use cap_std::fs::{Dir, OpenOptions};

use crate::kernel::Png;

/// The directory's name in the workspace.
const DIRECTORY: &str = "images";

/// Where images are saved.
#[derive(Debug, Clone)]
pub(super) struct ImageStore {
    workspace: PathBuf,
}

impl ImageStore {
    pub(super) fn new(workspace: PathBuf) -> Self {
        Self { workspace }
    }

    /// Saves each image as `images/<8 hex digits>.png`; what cannot be saved is told in `notes`.
    pub(super) async fn save(&self, images: Vec<Png>, notes: &mut Vec<String>) -> Vec<PathBuf> {
        if images.is_empty() {
            return Vec::new();
        }
        let store = self.clone();
        let saved =
            tokio::task::spawn_blocking(move || images.iter().map(|image| store.save_one(image)).collect());
        let saved: Vec<io::Result<PathBuf>> = match saved.await {
            Ok(saved) => saved,
            Err(error) => vec![Err(io::Error::other(error))],
        };
        let mut paths = Vec::new();
        for result in saved {
            match result {
                Ok(path) => paths.push(path),
                Err(error) => notes.push(format!("An image could not be saved in `{DIRECTORY}/`: {error}")),
            }
        }
        paths
    }

    fn save_one(&self, image: &Png) -> io::Result<PathBuf> {
        let workspace = Dir::open_ambient_dir(&self.workspace, cap_std::ambient_authority())?;
        workspace.create_dir_all(DIRECTORY)?;
        let directory = workspace.open_dir(DIRECTORY)?;
        loop {
            let name = format!("{:08x}.png", uuid::Uuid::new_v4().as_fields().0);
            match directory.open_with(&name, OpenOptions::new().write(true).create_new(true)) {
                Ok(mut file) => {
                    file.write_all(&image.0)?;
                    return Ok(self.workspace.join(DIRECTORY).join(name));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn images_are_saved_under_eight_hex_digits() {
        let workspace = tempfile::tempdir().unwrap();
        let mut notes = Vec::new();
        let store = ImageStore::new(workspace.path().to_owned());
        let saved = store.save(vec![Png(vec![1]), Png(vec![2])], &mut notes).await;
        assert_eq!(std::fs::read(&saved[1]).unwrap(), [2]);
        let stem = saved[0].file_stem().unwrap().to_str().unwrap();
        assert!(stem.len() == 8 && stem.chars().all(|digit| digit.is_ascii_hexdigit()), "{stem}");
        assert_eq!(notes, [""; 0]);
    }

    #[tokio::test]
    async fn a_link_out_of_the_workspace_is_not_followed() {
        let workspace = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), workspace.path().join(DIRECTORY)).unwrap();
        let mut notes = Vec::new();
        let saved = ImageStore::new(workspace.path().to_owned()).save(vec![Png(vec![1])], &mut notes).await;
        assert!(saved.is_empty() && notes.len() == 1, "{saved:?} {notes:?}");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
