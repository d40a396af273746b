//! The file of a recording: made anew, opened once, appended to in whole lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::FILE_BYTES;

/// Why a session cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// There is a file of this name, which may be another recording.
    #[error(
        "make the recording `{path}`: it exists\n\
         hint: remove it, or name a directory, in which each session gets a file of its own",
        path = path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be made.
    #[error("make the recording `{path}`", path = path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// An open recording.
#[derive(Debug)]
pub(super) struct RecordingFile {
    file: File,
    length: u64,
}

impl RecordingFile {
    /// Makes the file, for this user alone. No link is followed.
    pub(super) fn create(path: &Path) -> Result<Self, RecordingError> {
        let created = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
        match created {
            Ok(file) => Ok(Self { file, length: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(RecordingError::Exists { path: path.to_owned() })
            }
            Err(source) => Err(RecordingError::Create { path: path.to_owned(), source }),
        }
    }

    /// Appends whole lines, and waits until the disk has them. After an error the file ends with the last whole line.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let after = self.length + lines.len() as u64;
        if after > FILE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it would be larger than {FILE_BYTES} bytes"),
            ));
        }
        if let Err(error) = self.file.write_all(lines) {
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length = after;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_replaces_nothing_and_follows_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.jsonl");
        let mut file = RecordingFile::create(&path).unwrap();
        file.append(b"1\n").unwrap();
        file.append(b"2\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n");
        assert!(matches!(RecordingFile::create(&path), Err(RecordingError::Exists { .. })));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &link).unwrap();
        assert!(matches!(RecordingFile::create(&link), Err(RecordingError::Exists { .. })));
        assert!(!directory.path().join("elsewhere").exists());
    }
}
