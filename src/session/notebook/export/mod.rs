//! A notebook as a Python file, as Markdown, or as a page.
//!
//! What is in a notebook may come from hostile code: control characters are taken out, and nothing in the page is run.

mod html;
mod input;
mod markdown;
mod python;
mod read;
mod scan;

use std::io::{self, Write as _};
use std::path::Path;

use self::read::Page;
use crate::ground::files::inside;

/// What a notebook is made into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportFormat {
    /// Python in cells (`# %%`), which editors run one by one; without outputs.
    Python,
    /// Markdown.
    Markdown,
    /// One file of HTML, without scripts.
    Html,
}

/// A notebook in another format.
#[derive(Debug)]
#[non_exhaustive]
pub struct Export {
    /// Its text.
    pub text: String,
    /// The files that it refers to, by their names in the directory that it was made for.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Why a file cannot be made into something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// It is no notebook.
    #[error("it is no Jupyter notebook")]
    NoNotebook,
    /// It has a version that is not known.
    #[error("it is a notebook in version {0} of the format, and only version 4 is understood")]
    Version(i64),
}

/// Makes a notebook into something else. Markdown refers to images in the directory `files`; without one it leaves them out.
///
/// # Errors
/// It is no notebook of version 4.
pub fn export(notebook: &[u8], format: ExportFormat, files: Option<&str>) -> Result<Export, ExportError> {
    let page = Page::read(notebook)?;
    Ok(match format {
        ExportFormat::Python => Export { text: python::text(&page), files: Vec::new() },
        ExportFormat::Markdown => markdown::export(&page, files),
        ExportFormat::Html => Export { text: html::text(&page), files: Vec::new() },
    })
}

impl Export {
    /// Writes it to `output`, and its files into the directory `files` beside that. What is there already is replaced, and no
    /// link is followed: code in a kernel may have made it. Blocks.
    ///
    /// # Errors
    /// `output` is something else than a regular file, or the files cannot be written.
    pub fn save(&self, output: &Path, files: &str) -> io::Result<()> {
        let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        match std::fs::symlink_metadata(output) {
            Ok(there) if there.is_symlink() => {
                return Err(refused("it is a symbolic link, which is not followed"));
            }
            Ok(there) if !there.is_file() => return Err(refused("it is not a regular file")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let directory = match output.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        };
        for (name, bytes) in &self.files {
            inside::put(directory, files, name, bytes)?;
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(directory)?;
        file.write_all(self.text.as_bytes())?;
        file.persist(output)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
