//! Files in `uploads/` of the workspace, for a kernel that has no access to it: in parts, by their names.
//!
//! Code chooses the names. No link is followed: beside `uploads/` lies `.env`.

use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ground::files::inside;

const DIRECTORY: &str = "uploads";

/// The part that one answer has, in bytes.
const PART_BYTES: u64 = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UploadPart {
    name: String,
    from: u64,
}

/// Answers a request for `/upload`: a part of a file with the length of the whole, or why it is not there.
pub(super) fn answer(workspace: &Path, body: &str) -> Result<Value, String> {
    let UploadPart { name, from } = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let mut parts = Path::new(&name).components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if !is_name || name.starts_with('.') {
        return Ok(missing(&name, "it is not the name of a file"));
    }
    let mut file = match inside::open(workspace, &Path::new(DIRECTORY).join(&name)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(missing(&name, "there is no such file"));
        }
        Err(error) => return Ok(missing(&name, &error.to_string())),
    };
    let mut bytes = Vec::new();
    let size = file.metadata().and_then(|metadata| {
        file.seek(SeekFrom::Start(from))?;
        file.take(PART_BYTES).read_to_end(&mut bytes)?;
        Ok(metadata.len())
    });
    match size {
        Ok(size) => Ok(json!({"size": size, "data": BASE64.encode(bytes)})),
        Err(error) => Ok(missing(&name, &error.to_string())),
    }
}

fn missing(name: &str, why: &str) -> Value {
    json!({"missing": format!("`{DIRECTORY}/{name}` of the workspace cannot be read: {why}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_directory_are_served() {
        let workspace = tempfile::tempdir().unwrap();
        let place = |name: &str| workspace.path().join(name);
        std::fs::create_dir(place(DIRECTORY)).unwrap();
        std::fs::write(place(".env"), "KEY=secret").unwrap();
        std::fs::write(place("uploads/data"), vec![7; PART_BYTES as usize + 2]).unwrap();
        std::os::unix::fs::symlink("../.env", place("uploads/link")).unwrap();
        let ask = |name: &str, from: u64| {
            answer(workspace.path(), &json!({"name": name, "from": from}).to_string()).unwrap()
        };
        let first = ask("data", 0);
        assert_eq!(first["size"], PART_BYTES + 2);
        assert_eq!(BASE64.decode(first["data"].as_str().unwrap()).unwrap().len() as u64, PART_BYTES);
        assert_eq!(ask("data", PART_BYTES)["data"], "Bwc=");
        assert_eq!(ask("data", u64::from(u32::MAX))["data"], "");
        for name in ["link", "../.env", ".env", "", ".", "missing", "/etc/passwd", "data/x"] {
            assert!(ask(name, 0)["missing"].is_string(), "{name}");
        }
        answer(workspace.path(), r#"{"name": "data"}"#).unwrap_err();
    }
}
