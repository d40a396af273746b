//! Saves the images of cells, and pages of what needs a browser, in the workspace or the directory that the user has set.
//!
//! Code in the kernel can write to the workspace too: a symbolic link in place of the directory must not make
//! us write into another one.

use std::io::{self, Write};
use std::path::PathBuf;

use cap_std::fs::Dir;

use super::kept;
#[cfg(feature = "views")]
use super::plots;
use crate::ground::budget::{IMAGES, Lease};
use crate::kernels::kernel::ShownImage;

/// The directories for files of cells.
#[derive(Debug, Clone)]
pub(crate) struct OutputPlaces {
    /// Long texts go below it.
    pub(crate) workspace: PathBuf,
    /// Images go into it; an absolute path.
    pub(crate) images: PathBuf,
}

impl OutputPlaces {
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

/// The longest part of a file's name that comes from a title, in characters.
const NAME_CHARS: usize = 40;

/// An image that a cell showed.
#[derive(Debug)]
pub(crate) struct SavedImage {
    /// The path of the file: `<images directory>/[<title>-]<8 hex digits>.<extension>`.
    pub(crate) path: PathBuf,
    /// The file's bytes as the cell showed them, unless there are too many to hold, or it is a page.
    pub(crate) bytes: Option<Vec<u8>>,
    /// The memory of these bytes.
    _lease: Lease,
}

impl SavedImage {
    /// An image in a file. Its bytes are held if the images of all cells that wait for answers leave room.
    pub(crate) fn new(path: PathBuf, bytes: Option<Vec<u8>>) -> Self {
        let mut lease = IMAGES.lease();
        let bytes = bytes.filter(|bytes| lease.grow(bytes.len()).is_ok());
        Self { path, bytes, _lease: lease }
    }

    /// Its title, as far as a file can have it; the digits if there is none.
    pub(crate) fn name(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        stem.rsplit_once('-').map_or_else(|| stem.to_string(), |(title, _)| title.to_owned())
    }

    /// Whether it is a page for a browser.
    pub(crate) fn is_page(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == PAGE)
    }
}

/// The extension of pages.
const PAGE: &str = "html";

/// Saves an image. Blocks.
pub(crate) fn save(places: &OutputPlaces, image: ShownImage) -> io::Result<SavedImage> {
    let ShownImage { title, extension, bytes, plot } = image;
    #[cfg(feature = "views")]
    let bytes = match plot {
        Some(kind) => plots::page(kind, &title, &bytes),
        None => bytes,
    };
    #[cfg(not(feature = "views"))]
    debug_assert_eq!(plot, None, "nothing here draws plots");
    let directory = places.open_images()?;
    let prefix = prefix(&title);
    let (name, mut file) = kept::create_new(&directory, |digits| format!("{prefix}{digits}.{extension}"))?;
    file.write_all(&bytes)?;
    Ok(SavedImage::new(places.images.join(name), (extension != PAGE).then_some(bytes)))
}

/// The beginning of a file's name: the words of the title, in letters and digits.
fn prefix(title: &str) -> String {
    let words = title.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut prefix = String::new();
    for word in words {
        if prefix.len() + word.len() > NAME_CHARS {
            break;
        }
        prefix.push_str(&word.to_ascii_lowercase());
        prefix.push('-');
    }
    prefix
}

/// Removes an image that was saved. Blocks.
pub(crate) fn remove(places: &OutputPlaces, image: &SavedImage) -> io::Result<()> {
    places.open_images()?.remove_file(image.path.file_name().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::kernels::kernel::PlotKind;

    fn image(extension: &'static str, bytes: &[u8]) -> ShownImage {
        ShownImage { title: String::new(), extension, bytes: bytes.to_vec(), plot: None }
    }

    fn places(workspace: &Path) -> OutputPlaces {
        OutputPlaces { workspace: workspace.to_owned(), images: workspace.join("images") }
    }

    #[test]
    fn a_directory_outside_the_workspace_is_made() {
        let [workspace, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let images = outside.path().join("a/b");
        let places = OutputPlaces { workspace: workspace.path().to_owned(), images: images.clone() };
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
    fn the_name_of_a_file_begins_with_the_words_of_its_title() {
        let workspace = tempfile::tempdir().unwrap();
        let check = |title: &str, expected: &str| {
            let titled = ShownImage { title: title.to_owned(), ..image("png", b"\x89") };
            let saved = save(&places(workspace.path()), titled).unwrap();
            let name = saved.path.file_name().unwrap().to_str().unwrap();
            assert_eq!((&name[..name.len() - 12], name.len()), (expected, expected.len() + 12));
            saved
        };
        let first = check("Sales by Region (2026)", "sales-by-region-2026-");
        let second = check("Sales by Region (2026)", "sales-by-region-2026-");
        assert_ne!(first.path, second.path);
        assert_eq!(first.name(), "sales-by-region-2026");
        assert_eq!(check("", "").name().len(), 8);
        check("../../.env\0\u{202e}", "env-");
        check("\u{58f2}\u{4e0a}", "");
        check(&"long ".repeat(20), &"long-".repeat(8));
        check(&"x".repeat(300), "");
    }

    #[test]
    fn a_plot_is_saved_as_a_page() {
        let workspace = tempfile::tempdir().unwrap();
        let plot = ShownImage { plot: Some(PlotKind::Plotly), ..image("html", br#"{"data": []}"#) };
        let saved = save(&places(workspace.path()), plot).unwrap();
        let page = std::fs::read_to_string(&saved.path).unwrap();
        assert!(page.contains(r#"{"data": []}"#) && page.len() > 1_000_000);
        assert!(saved.is_page() && saved.bytes.is_none());
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
