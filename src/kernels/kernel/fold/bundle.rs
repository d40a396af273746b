//! The text and images of a shown object, for readers without a browser. Pure.
//!
//! An object comes in several representations, by
//! [MIME type](https://jupyter-client.readthedocs.io/en/stable/messaging.html#display-data).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use serde_json::Value;

use crate::kernels::kernel::message::MimeBundle;

/// The MIME types of the images that are kept, the best first, and the extensions of their files.
const IMAGES: [(&str, &str); 6] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    (SVG, "svg"),
    ("application/pdf", "pdf"),
];

/// The number of them that are pixels. An object has one of these: others would be the same picture again. The rest are drawings,
/// which are there only if code wants such files of its figures.
const PIXELS: usize = 4;

const SVG: &str = "image/svg+xml";

/// The MIME types of what `ipybox_views.py` makes. Of a page: its HTML.
const PAGE: &str = "application/vnd.ipybox.page";
/// Of the title of a picture.
const TITLE: &str = "application/vnd.ipybox.title";

/// The longest title, in characters.
const TITLE_CHARS: usize = 200;

/// A file that the kernel sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownFile {
    /// Its name. Code chooses it.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// The role of the file.
    pub(crate) role: FileRole,
}

/// The role of a file.
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
    /// The MIME type of the same of a plot, for a reader without views.
    const PLOT: &str = "application/vnd.ipybox.plot";

    /// Whether a representation of this MIME type is for ipybox alone.
    pub(crate) fn is_of(mime_type: &str) -> bool {
        [Self::COPY, Self::VIEW, Self::PLOT, PAGE, TITLE].contains(&mime_type)
    }
}

/// An image, as the kernel sent it: also what needs a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownImage {
    /// Its title, if it has one. Code chooses it.
    pub(crate) title: String,
    /// The extension of its file.
    pub(crate) extension: &'static str,
    /// The file's bytes; of a plot its specification, as JSON.
    pub(crate) bytes: Vec<u8>,
    /// The kind of plot that they specify, if they do.
    pub(crate) plot: Option<PlotKind>,
}

/// A kind of plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlotKind {
    Plotly,
    Vega,
    VegaLite,
}

impl PlotKind {
    /// The kind by the name of a view.
    fn of_view(name: &str) -> Option<Self> {
        match name {
            "plotly.json" => Some(Self::Plotly),
            "vega.json" => Some(Self::Vega),
            "vegalite.json" => Some(Self::VegaLite),
            _ => None,
        }
    }
}

/// The plot among an object's representations: its kind and its specification, as JSON. None if nothing here draws plots.
pub(crate) fn plot(bundle: &MimeBundle) -> Option<(PlotKind, &str)> {
    if !cfg!(feature = "views") {
        return None;
    }
    let view = text(bundle, ShownFile::VIEW).or_else(|| text(bundle, ShownFile::PLOT))?;
    let (name, specification) = view.split_once('\n')?;
    Some((PlotKind::of_view(name)?, specification))
}

/// The files that an object's representations come to: its picture, its drawings, and what needs a browser.
pub(super) fn images(bundle: &MimeBundle) -> Vec<ShownImage> {
    let title: String = text(bundle, TITLE).unwrap_or_default().chars().take(TITLE_CHARS).collect();
    let image = |extension, bytes, plot| ShownImage { title: title.clone(), extension, bytes, plot };
    let file = |&(mime_type, extension): &(&str, &'static str)| {
        let data = text(bundle, mime_type)?;
        let bytes = if mime_type == SVG { data.as_bytes().to_vec() } else { decode(data)? };
        Some(image(extension, bytes, None))
    };
    let page = text(bundle, PAGE).map(|html| image("html", html.as_bytes().to_vec(), None));
    let plot = plot(bundle).map(|(kind, json)| image("html", json.as_bytes().to_vec(), Some(kind)));
    let (pixels, drawings) = IMAGES.split_at(PIXELS);
    let pictures = pixels.iter().find_map(file).into_iter().chain(drawings.iter().filter_map(file));
    pictures.chain(page.or(plot)).collect()
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
pub(super) fn best_text(bundle: &MimeBundle, images: &[ShownImage]) -> Option<String> {
    let plain = text(bundle, "text/plain");
    let informative = plain.filter(|plain| !is_placeholder(plain));
    if !images.is_empty() {
        return informative.map(str::to_owned);
    }
    let written = text(bundle, "text/markdown").or(informative).or_else(|| text(bundle, "text/latex"));
    written
        .map(str::to_owned)
        .or_else(|| json(bundle.get("application/json")?))
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

/// Whether a text says no more than the class of an object: `<Figure size 640x480 with 1 Axes>`,
/// `<IPython.core.display.HTML object>`, `<module.Class object at 0x7f00>`. `ipybox_viewing.py` has the same rule.
fn is_placeholder(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')) else { return false };
    let is_address = |end: &str| !end.is_empty() && end.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_bare = inner.ends_with(" object") || inner.starts_with("Figure size ");
    !inner.contains('\n') && (is_bare || inner.rsplit_once(" at 0x").is_some_and(|(_, end)| is_address(end)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
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
            let quoted = |name: &str| format!("\"{name}\"");
            let list = list.replace("ipybox_views.KIND", &quoted(ShownFile::VIEW));
            let list = list.replace("ipybox_views.PLOT", &quoted(ShownFile::PLOT));
            let list = list.replace("ipybox_views.PAGE", &quoted(PAGE));
            let list = list.replace("ipybox_views.TITLE", &quoted(TITLE));
            Vec::from_iter(list.split('"').skip(1).step_by(2).map(str::to_owned))
        };
        let images = IMAGES.into_iter().map(|(mime_type, _)| mime_type);
        let read = images.chain([ShownFile::COPY, ShownFile::VIEW, ShownFile::PLOT, PAGE, TITLE]);
        assert_eq!(listed("READ"), Vec::from_iter(read));
        let texts = listed("TEXTS");
        assert_eq!(texts.len(), 5);
        // The kernel reads HTML, and sends its text.
        let shown = texts.into_iter().filter(|mime_type| mime_type != "text/html");
        shown.for_each(|mime_type| check(json!({ mime_type: "x" }), Some("x"), &[]));
    }

    #[test]
    fn a_picture_is_not_described_by_its_repr() {
        let figure = "<Figure size 640x480 with 1 Axes>";
        check(json!({"image/png": "iVBO\nRw==\n", "text/plain": figure}), None, &["png"]);
        for repr in ["cat", "<POINT (1 2)>", "<Client: 'tcp://127.0.0.1:1' processes=4>", "<Quantity 3. m>"] {
            check(json!({"image/png": "iVBORw==", "text/plain": repr}), Some(repr), &["png"]);
        }
        for repr in ["<a.B object at 0x7f00aa>", "<PIL.Image.Image image mode=RGB size=2x2 at 0x7F00>"] {
            check(json!({"image/png": "iVBORw==", "text/plain": repr}), None, &["png"]);
        }
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
        check(json!({"text/plain": "<POINT (1 2)>", "text/html": "<table/>"}), Some("<POINT (1 2)>"), &[]);
        check(json!({"text/plain": placeholder}), Some(placeholder), &[]);
        check(json!({"text/plain": "", "text/html": "<pre></pre>"}), None, &[]);
        check(json!({}), None, &[]);
    }

    #[test]
    fn pages_and_plots_are_images_with_a_title() {
        let check = |bundle: Value, expected: (&str, &str, Option<PlotKind>)| {
            let Value::Object(bundle) = bundle else { panic!("a bundle is an object") };
            let [image] = &images(&bundle)[..] else { panic!("one image") };
            let content = std::str::from_utf8(&image.bytes).unwrap();
            assert_eq!((image.title.as_str(), content, image.plot), expected);
            assert_eq!(image.extension, "html");
        };
        check(json!({ PAGE: "<p>", TITLE: "A title" }), ("A title", "<p>", None));
        check(json!({ ShownFile::PLOT: "plotly.json\n{}" }), ("", "{}", Some(PlotKind::Plotly)));
        check(json!({ ShownFile::VIEW: "vegalite.json\n{}" }), ("", "{}", Some(PlotKind::VegaLite)));
        let script = include_str!("../ipybox_views.py");
        for kind in [PAGE, TITLE, ShownFile::PLOT] {
            assert!(script.contains(&format!(" = \"{kind}\"")), "{kind}");
        }
    }
}
