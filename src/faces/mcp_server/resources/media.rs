//! Media types by the extensions of files: pure.

/// The media type of a file.
pub(super) fn media_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    match extension.as_str() {
        "csv" => "text/csv",
        "css" => "text/css",
        "gif" => "image/gif",
        "gz" | "tgz" => "application/gzip",
        "htm" | "html" => "text/html",
        "ipynb" => "application/x-ipynb+json",
        "jpeg" | "jpg" => "image/jpeg",
        "js" => "text/javascript",
        "json" => "application/json",
        "jsonl" => "application/jsonl",
        "md" => "text/markdown",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        "parquet" => "application/vnd.apache.parquet",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "py" => "text/x-python",
        "svg" => "image/svg+xml",
        "toml" => "application/toml",
        "tsv" => "text/tab-separated-values",
        "txt" | "log" => "text/plain",
        "wav" => "audio/wav",
        "webp" => "image/webp",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "zip" => "application/zip",
        _ => "application/octet-stream",
    }
}

/// Whether a resource of this type is sent as text, if its bytes are UTF-8.
pub(super) fn is_text(media_type: &str) -> bool {
    const TEXTS: [&str; 5] = ["json", "jsonl", "toml", "xml", "yaml"];

    let kind = media_type.strip_prefix("application/").unwrap_or_default();
    let kind = media_type.rsplit_once('+').map_or(kind, |(_, structure)| structure);
    media_type.starts_with("text/") || TEXTS.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_say_what_files_are() {
        let check = |name: &str, expected: &str, text: bool| {
            assert_eq!((media_type(name), is_text(media_type(name))), (expected, text), "{name}");
        };
        check("0a1b2c3d.txt", "text/plain", true);
        check("0a1b2c3d-table.CSV", "text/csv", true);
        check("0a1b2c3d.svg", "image/svg+xml", true);
        check("notes.ipynb", "application/x-ipynb+json", true);
        check("a.json", "application/json", true);
        check("0a1b2c3d.png", "image/png", false);
        check("a.tar.gz", "application/gzip", false);
        check("noextension", "application/octet-stream", false);
    }
}
