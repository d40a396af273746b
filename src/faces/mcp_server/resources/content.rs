//! The content of a resource, or a part of it, within bounds.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::string::FromUtf8Error;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rmcp::model::{MetaObject, ResourceContents};
use serde_json::json;

use super::media::{is_text, media_type};
use crate::faces::mcp_server::resource_address::{ResourceAddress, ResourcePart};
use crate::ground::files::inside;
use crate::ground::text::unfinished_character;

/// The part of a resource that is read at once, in bytes: the longest file that a cell can show.
pub(super) const MOST_BYTES: u64 = 24 * 1024 * 1024;

/// The number of bytes that are read if a part does not say how long it is.
const PAGE_BYTES: u64 = 1024 * 1024;

/// Why a resource is not read.
#[derive(Debug)]
pub(super) enum ResourceFailure {
    /// There is no such file, or it must not be opened.
    Refused(io::Error),
    /// It is longer than what is read at once.
    TooLong { bytes: u64 },
    /// It ends before the part begins.
    Beyond { bytes: u64 },
    /// The file cannot be read.
    Unreadable(io::Error),
}

/// Reads a part of a file below `root`. Blocks, but never waits for others.
pub(super) fn read(
    root: &Path,
    path: &Path,
    address: &ResourceAddress,
    part: ResourcePart,
) -> Result<ResourceContents, ResourceFailure> {
    let mut file = inside::open(root, path).map_err(ResourceFailure::Refused)?;
    let size = file.metadata().map_err(ResourceFailure::Unreadable)?.len();
    let (from, count) = match part {
        ResourcePart::Whole if size > MOST_BYTES => return Err(ResourceFailure::TooLong { bytes: size }),
        ResourcePart::Whole => (0, MOST_BYTES),
        ResourcePart::Bytes { from, .. } if from > size => {
            return Err(ResourceFailure::Beyond { bytes: size });
        }
        ResourcePart::Bytes { from, count } => (from, count.unwrap_or(PAGE_BYTES).min(MOST_BYTES)),
    };
    file.seek(SeekFrom::Start(from)).map_err(ResourceFailure::Unreadable)?;
    let mut bytes = Vec::new();
    file.take(count).read_to_end(&mut bytes).map_err(ResourceFailure::Unreadable)?;
    Ok(content(address, part, from, size, bytes))
}

fn content(
    address: &ResourceAddress,
    part: ResourcePart,
    from: u64,
    size: u64,
    mut bytes: Vec<u8>,
) -> ResourceContents {
    let uri = address.uri();
    let media_type = media_type(address.name());
    let mut begin = from;
    if is_text(media_type) && part != ResourcePart::Whole {
        begin += cut_characters(&mut bytes) as u64;
    }
    let end = begin + bytes.len() as u64;
    // Control characters are six times as long in JSON.
    let controls = bytes.iter().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
    let text = if is_text(media_type) && controls <= bytes.len() / 16 {
        String::from_utf8(bytes).map_err(FromUtf8Error::into_bytes)
    } else {
        Err(bytes)
    };
    let content = match text {
        Ok(text) => ResourceContents::text(text, &uri),
        Err(bytes) => ResourceContents::blob(BASE64.encode(bytes), &uri),
    };
    let content = content.with_mime_type(media_type);
    if part == ResourcePart::Whole {
        return content;
    }
    let mut meta = MetaObject::new();
    meta.0.insert("ipybox/from".to_owned(), json!(begin));
    meta.0.insert("ipybox/size".to_owned(), json!(size));
    if end < size && end > begin {
        meta.0.insert("ipybox/next".to_owned(), json!(format!("{uri}?from={end}")));
    }
    content.with_meta(meta)
}

/// Cuts off the halves of characters at both ends, unless there is nothing else. Returns how many bytes were at the
/// beginning.
fn cut_characters(bytes: &mut Vec<u8>) -> usize {
    let is_continued = |byte: &u8| byte & 0xc0 == 0x80;
    let head = bytes.iter().take(3).take_while(|byte| is_continued(byte)).count();
    let end = bytes.len() - unfinished_character(bytes);
    if head >= end {
        return 0;
    }
    bytes.truncate(end);
    bytes.drain(..head);
    head
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const NAME: &str = "0a1b2c3d.txt";

    fn place(bytes: &[u8]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(NAME), bytes).unwrap();
        place
    }

    fn read_part(place: &tempfile::TempDir, part: ResourcePart) -> Result<Value, ResourceFailure> {
        let address = ResourceAddress::Output(NAME.to_owned());
        let content = read(place.path(), Path::new(NAME), &address, part)?;
        Ok(serde_json::to_value(content).unwrap())
    }

    fn bytes(from: u64, count: u64) -> ResourcePart {
        ResourcePart::Bytes { from, count: Some(count) }
    }

    #[test]
    fn a_whole_text_is_text() {
        let content = read_part(&place("a\u{e9}".as_bytes()), ResourcePart::Whole).unwrap();
        let expected =
            json!({"uri": "ipybox://outputs/0a1b2c3d.txt", "mimeType": "text/plain", "text": "a\u{e9}"});
        assert_eq!(content, expected);
        let content = read_part(&place(b"a\xff"), ResourcePart::Whole).unwrap();
        assert_eq!((&content["blob"], &content["text"]), (&json!("Yf8="), &Value::Null));
    }

    #[test]
    fn parts_of_a_text_make_the_whole() {
        let text = "a\u{e9}\u{1f600}\u{4e2d}z".repeat(3);
        let place = place(text.as_bytes());
        for count in 4..9 {
            let (mut from, mut whole) = (0, String::new());
            loop {
                let content = read_part(&place, bytes(from, count)).unwrap();
                whole.push_str(content["text"].as_str().unwrap());
                assert_eq!(content["_meta"]["ipybox/size"], text.len());
                assert_eq!(content["_meta"]["ipybox/from"], from);
                let Some(next) = content["_meta"]["ipybox/next"].as_str() else { break };
                let (_, ResourcePart::Bytes { from: next, .. }) = ResourceAddress::parse(next).unwrap()
                else {
                    panic!("{next}")
                };
                from = next;
            }
            assert_eq!(whole, text, "in parts of {count}");
        }
    }

    #[test]
    fn a_part_within_a_character_begins_after_it() {
        let place = place("\u{1f600}ab".as_bytes());
        let content = read_part(&place, bytes(1, 100)).unwrap();
        assert_eq!((&content["text"], &content["_meta"]["ipybox/from"]), (&json!("ab"), &json!(4)));
        // Less than a character is no text.
        assert_eq!(read_part(&place, bytes(1, 2)).unwrap()["blob"], json!("n5g="));
    }

    #[test]
    fn what_is_too_long_is_read_in_parts() {
        let place = place(b"");
        let file = std::fs::File::options().write(true).open(place.path().join(NAME)).unwrap();
        file.set_len(MOST_BYTES + 5).unwrap();
        assert!(matches!(read_part(&place, ResourcePart::Whole), Err(ResourceFailure::TooLong { .. })));
        let page = read_part(&place, ResourcePart::Bytes { from: 0, count: None }).unwrap();
        // What is mostly control characters is no text.
        let length = |content: &Value| BASE64.decode(content["blob"].as_str().unwrap()).unwrap().len() as u64;
        assert_eq!(length(&page), PAGE_BYTES);
        let most = read_part(&place, bytes(3, u64::MAX)).unwrap();
        assert_eq!(length(&most), MOST_BYTES);
        let last = read_part(&place, bytes(MOST_BYTES + 4, u64::MAX)).unwrap();
        assert_eq!((&last["blob"], &last["_meta"]["ipybox/next"]), (&json!("AA=="), &Value::Null));
        assert_eq!(read_part(&place, bytes(MOST_BYTES + 5, 1)).unwrap()["text"], "");
        assert!(matches!(read_part(&place, bytes(MOST_BYTES + 6, 1)), Err(ResourceFailure::Beyond { .. })));
    }
}
