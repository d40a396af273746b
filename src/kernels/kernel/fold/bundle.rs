//! The text and images of a shown object, for readers without a browser. Pure.
//!
//! An object comes in several representations, by
//! [MIME type](https://jupyter-client.readthedocs.io/en/stable/messaging.html#display-data).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use serde_json::Value;

use crate::kernels::kernel::message::MimeBundle;

/// The longest HTML, in characters and without its scripts and styles, that is shown if there is no text.
/// Longer HTML is data: a sound, an interactive plot.
const HTML_CHARS: usize = 20_000;

/// The MIME types of the images that are kept, the best first, and the extensions of their files.
const IMAGES: [(&str, &str); 6] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    (SVG, "svg"),
    ("application/pdf", "pdf"),
];

/// How many of them are pixels. An object has one of these: the others would be the same picture again. The rest are drawings,
/// which are there only if code wants such files of its figures.
const PIXELS: usize = 4;

const SVG: &str = "image/svg+xml";

/// A file that the kernel sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownFile {
    /// Its name. Code chooses it.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// What it is for.
    pub(crate) role: FileRole,
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileRole {
    /// Code has named it by `show_file`.
    Copy,
    /// It is a view: what clients that have views show instead of an object's text.
    View,
}

impl ShownFile {
    /// The MIME type of a copy: its name, a line break, and its bytes in Base64. `ipybox_files.py` makes it.
    const COPY: &str = "application/vnd.ipybox.file";
    /// The MIME type of a view: its name, a line break, and its text. `ipybox_views.py` makes it.
    const VIEW: &str = "application/vnd.ipybox.view";

    /// Whether a representation of this MIME type is a file.
    pub(crate) fn is_of(mime_type: &str) -> bool {
        [Self::COPY, Self::VIEW].contains(&mime_type)
    }
}

/// An image, as the kernel sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// The extension of its file.
    pub(crate) extension: &'static str,
    /// The file's bytes.
    pub(crate) bytes: Vec<u8>,
}

/// The files that an object's representations come to: its picture, and its drawings.
pub(super) fn images(bundle: &MimeBundle) -> Vec<Image> {
    let image = |&(mime_type, extension): &(&str, &'static str)| {
        let data = text(bundle, mime_type)?;
        let bytes = if mime_type == SVG { data.as_bytes().to_vec() } else { decode(data)? };
        Some(Image { extension, bytes })
    };
    let (pixels, drawings) = IMAGES.split_at(PIXELS);
    pixels.iter().find_map(image).into_iter().chain(drawings.iter().filter_map(image)).collect()
}

/// The file among an object's representations.
pub(super) fn file(bundle: &MimeBundle) -> Option<ShownFile> {
    if let Some((name, data)) = text(bundle, ShownFile::COPY).and_then(|file| file.split_once('\n')) {
        return Some(ShownFile { name: name.to_owned(), bytes: decode(data)?, role: FileRole::Copy });
    }
    let (name, data) = text(bundle, ShownFile::VIEW)?.split_once('\n')?;
    Some(ShownFile { name: name.to_owned(), bytes: data.as_bytes().to_vec(), role: FileRole::View })
}

/// Decodes Base64, possibly in lines.
fn decode(data: &str) -> Option<Vec<u8>> {
    let packed: String = data.split_ascii_whitespace().collect();
    BASE64.decode(packed).ok()
}

/// The most informative text of an object that is shown beside its `images`.
pub(super) fn best_text(bundle: &MimeBundle, images: &[Image]) -> Option<String> {
    let plain = text(bundle, "text/plain");
    let informative = plain.filter(|plain| !is_placeholder(plain));
    if !images.is_empty() {
        return informative.map(str::to_owned);
    }
    let written = text(bundle, "text/markdown").or(informative).or_else(|| text(bundle, "text/latex"));
    written
        .map(str::to_owned)
        .or_else(|| json(bundle.get("application/json")?))
        .or_else(|| readable_html(text(bundle, "text/html")?))
        .or_else(|| plain.map(str::to_owned))
        .filter(|text| !text.is_empty())
}

/// JSON as text; `ipybox_messages.py` sends it as such already, since there is no limit to how deep it may be nested.
fn json(value: &Value) -> Option<String> {
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn text<'a>(bundle: &'a MimeBundle, mime_type: &str) -> Option<&'a str> {
    bundle.get(mime_type)?.as_str()
}

/// `<Figure size 640x480 with 1 Axes>`, `<IPython.core.display.HTML object>`: adds nothing to the object
/// itself.
fn is_placeholder(text: &str) -> bool {
    text.starts_with('<') && text.ends_with('>') && !text.contains('\n')
}

/// HTML without scripts and styles, if it is not too long to read.
fn readable_html(html: &str) -> Option<String> {
    let html = without_element(&without_element(html, "script"), "style");
    let html = html.trim();
    (!html.is_empty() && html.chars().count() <= HTML_CHARS).then(|| html.to_owned())
}

/// Cuts every `<name …>…</name>` out of `html`, whatever its case.
fn without_element(html: &str, name: &str) -> String {
    // Of the same length, so that offsets in one are offsets in the other.
    let lower = html.to_ascii_lowercase();
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut kept = String::new();
    let mut from = 0;
    while let Some(begin) = lower[from..].find(&open) {
        kept.push_str(&html[from..from + begin]);
        let end = lower[from + begin..].find(&close);
        from = end.map_or(html.len(), |end| from + begin + end + close.len());
    }
    kept.push_str(&html[from..]);
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(bundle: Value, expected: Option<&str>, extensions: &[&str]) {
        let Value::Object(bundle) = bundle else { panic!("a bundle is an object") };
        let images = images(&bundle);
        assert_eq!(best_text(&bundle, &images).as_deref(), expected, "{bundle:?}");
        assert_eq!(Vec::from_iter(images.iter().map(|image| image.extension)), extensions);
    }

    /// The texts and images that `ipybox_messages.py` sends; other representations would not be read.
    #[test]
    fn the_kernel_sends_what_is_read() {
        let script = include_str!("../ipybox_messages.py");
        let listed = |name: &str| {
            let list = script.split_once(&format!("\n{name} = (")).unwrap().1.split_once(')').unwrap().0;
            let list = list.replace("ipybox_views.KIND", &format!("\"{}\"", ShownFile::VIEW));
            Vec::from_iter(list.split('"').skip(1).step_by(2).map(str::to_owned))
        };
        let images = IMAGES.into_iter().map(|(mime_type, _)| mime_type);
        let read = images.chain([ShownFile::COPY, ShownFile::VIEW]);
        assert_eq!(listed("READ"), Vec::from_iter(read));
        let texts = listed("TEXTS");
        assert_eq!(texts.len(), 5);
        texts.into_iter().for_each(|mime_type| check(json!({ mime_type: "x" }), Some("x"), &[]));
    }

    #[test]
    fn a_picture_is_not_described_by_its_repr() {
        let figure = "<Figure size 640x480 with 1 Axes>";
        check(json!({"image/png": "iVBO\nRw==\n", "text/plain": figure}), None, &["png"]);
        check(json!({"image/png": "iVBORw==", "text/plain": "cat"}), Some("cat"), &["png"]);
        check(json!({"image/png": "%", "text/plain": figure}), Some(figure), &[]);
    }

    #[test]
    fn a_file_has_a_name_and_bytes() {
        let file_of = |content: &str| {
            let Value::Object(bundle) = json!({ ShownFile::COPY: content, "text/plain": "<file a.bin>" })
            else {
                unreachable!()
            };
            file(&bundle)
        };
        let shown = ShownFile { name: "a.bin".to_owned(), bytes: b"\x01\x02".to_vec(), role: FileRole::Copy };
        assert_eq!(file_of("a.bin\nAQI="), Some(shown));
        assert_eq!(file_of("a.bin\n").unwrap().bytes, b"");
        for wrong in ["", "a.bin", "a.bin\n%"] {
            assert_eq!(file_of(wrong), None, "{wrong}");
        }
        let script = include_str!("../ipybox_files.py");
        assert!(script.contains(&format!("KIND = \"{}\"", ShownFile::COPY)));
    }

    #[test]
    fn a_view_is_a_text_with_a_name() {
        let Value::Object(bundle) =
            json!({ ShownFile::VIEW: "table.jsonl\n{}\n[1]", "text/plain": "a table" })
        else {
            unreachable!()
        };
        let view =
            ShownFile { name: "table.jsonl".to_owned(), bytes: b"{}\n[1]".to_vec(), role: FileRole::View };
        assert_eq!(file(&bundle), Some(view));
        assert_eq!(best_text(&bundle, &[]).as_deref(), Some("a table"));
        let script = include_str!("../ipybox_views.py");
        assert!(script.contains(&format!("KIND = \"{}\"", ShownFile::VIEW)));
    }

    #[test]
    fn a_picture_is_kept_once_and_every_drawing() {
        let (png, jpeg) = ("iVBORw==", "/9j/");
        check(json!({"image/jpeg": jpeg, "image/png": png}), None, &["png"]);
        check(json!({"image/png": "%", "image/jpeg": jpeg}), None, &["jpg"]);
        check(json!({"image/webp": "UklG", "image/gif": "R0lG"}), None, &["gif"]);
        check(json!({"image/webp": "UklG"}), None, &["webp"]);
        check(
            json!({"image/svg+xml": "<svg/>", "application/pdf": "JVBERg==", "image/jpeg": jpeg}),
            None,
            &["jpg", "svg", "pdf"],
        );
    }

    #[test]
    fn the_most_informative_text_is_shown() {
        let placeholder = "<IPython.core.display.Thing object>";
        check(json!({"text/plain": placeholder, "text/markdown": "**bold**"}), Some("**bold**"), &[]);
        check(json!({"text/plain": placeholder, "text/latex": "$x$"}), Some("$x$"), &[]);
        check(json!({"text/plain": "x", "text/latex": "$x$"}), Some("x"), &[]);
        check(json!({"text/plain": placeholder, "application/json": {"a": [1]}}), Some(r#"{"a":[1]}"#), &[]);
        check(json!({"text/plain": "a  b", "text/html": "<table/>"}), Some("a  b"), &[]);
        check(json!({"text/plain": placeholder}), Some(placeholder), &[]);
        check(json!({"text/plain": "", "text/html": "<pre></pre>"}), None, &[]);
        check(json!({}), None, &[]);
    }

    #[test]
    fn html_is_shown_for_want_of_a_text() {
        let placeholder = "<pandas.io.formats.style.Styler at 0x7f>";
        let styled = "<STYLE a='b'>.x {}</STYLE><b>é</b><script>1</script> text<style>";
        check(json!({"text/plain": placeholder, "text/html": styled}), Some("<b>é</b> text"), &[]);
        check(json!({"text/html": "<script>", "text/plain": placeholder}), Some(placeholder), &[]);
        let sound = format!("<audio src='data:{}'>", "x".repeat(HTML_CHARS));
        check(json!({"text/html": sound, "text/plain": placeholder}), Some(placeholder), &[]);
    }
}
