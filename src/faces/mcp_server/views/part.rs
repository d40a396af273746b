//! Parts of files and libraries, as bytes.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::ground::files::inside;
use crate::kernels::output::PlotLibrary;

/// The number of bytes of a part: clients pass on answers of about a megabyte.
const PART_BYTES: usize = 384 * 1024;

/// The longest view that is read, in bytes: the page holds all of it. `ipybox_viewing.py` makes shorter ones.
const VIEW_BYTES: u64 = 32 * 1024 * 1024;

/// A part of a library.
pub(super) fn of_library(library: PlotLibrary, from: u64) -> Result<Value, String> {
    let bytes = library.bytes();
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
    let end = bytes.len().min(from + PART_BYTES);
    Ok(part(&bytes[from..end], from as u64, bytes.len() as u64))
}

/// A part of a file below `root`. Blocks, but never waits for others.
pub(super) fn of_file(root: &Path, path: &Path, from: u64) -> Result<Value, String> {
    let unread = |error: std::io::Error| format!("the view is not read: {error}");
    let mut file = inside::open(root, path).map_err(unread)?;
    let size = file.metadata().map_err(unread)?.len();
    if size > VIEW_BYTES {
        return Err(too_long());
    }
    let from = from.min(size);
    file.seek(SeekFrom::Start(from)).map_err(unread)?;
    let mut bytes = Vec::new();
    file.take(PART_BYTES as u64).read_to_end(&mut bytes).map_err(unread)?;
    Ok(part(&bytes, from, size))
}

/// A whole text below `root`, as `of_file`.
pub(super) fn whole(root: &Path, path: &Path) -> Result<String, String> {
    let unread = |error: std::io::Error| format!("the view is not read: {error}");
    let mut file = inside::open(root, path).map_err(unread)?.take(VIEW_BYTES + 1);
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > VIEW_BYTES { Err(too_long()) } else { Ok(text) }
}

fn too_long() -> String {
    format!("the view is not read: it has more than {} MiB; the file is in the workspace", VIEW_BYTES >> 20)
}

fn part(bytes: &[u8], from: u64, size: u64) -> Value {
    let end = from + bytes.len() as u64;
    let next = (end < size && !bytes.is_empty()).then_some(end);
    json!({ "data": BASE64.encode(bytes), "size": size, "next": next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_whole() {
        let place = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..PART_BYTES * 2 + 5).map(|at| (at % 251) as u8).collect();
        std::fs::write(place.path().join("file"), &content).unwrap();
        let read_all = |read: &dyn Fn(u64) -> Value| {
            let (mut from, mut all) = (Some(0), Vec::new());
            while let Some(at) = from {
                let part = read(at);
                all.extend(BASE64.decode(part["data"].as_str().unwrap()).unwrap());
                from = part["next"].as_u64();
            }
            all
        };
        assert_eq!(read_all(&|from| of_file(place.path(), "file".as_ref(), from).unwrap()), content);
        for library in [PlotLibrary::Plotly, PlotLibrary::Vega] {
            assert_eq!(read_all(&|from| of_library(library, from).unwrap()), library.bytes());
        }
        let beyond = of_file(place.path(), "file".as_ref(), u64::MAX / 4).unwrap();
        assert_eq!((&beyond["data"], &beyond["next"]), (&json!(""), &Value::Null));
    }

    #[test]
    fn long_files_are_not_read() {
        let place = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(place.path().join("file")).unwrap();
        file.set_len(VIEW_BYTES).unwrap();
        of_file(place.path(), "file".as_ref(), 0).unwrap();
        file.set_len(VIEW_BYTES + 1).unwrap();
        for error in [
            of_file(place.path(), "file".as_ref(), 0).unwrap_err(),
            whole(place.path(), "file".as_ref()).unwrap_err(),
        ] {
            assert!(error.contains("more than 32 MiB"), "{error}");
        }
    }

    #[test]
    fn links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place.path().join("link")).unwrap();
        of_file(place.path(), "link".as_ref(), 0).unwrap_err();
        whole(place.path(), "link".as_ref()).unwrap_err();
    }
}
