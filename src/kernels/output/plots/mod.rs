//! Pages of plots: files of HTML that draw a plot, by a library that is in them, without a network.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use crate::kernels::kernel::PlotKind;

/// A library that draws plots, as packed by gzip. `packaging/views.py` makes them.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlotLibrary {
    Plotly,
    Vega,
}

impl PlotLibrary {
    /// Its script, packed.
    pub(crate) fn bytes(self) -> &'static [u8] {
        match self {
            Self::Plotly => include_bytes!("libraries/plotly.js.gz"),
            Self::Vega => include_bytes!("libraries/vega.js.gz"),
        }
    }
}

/// The page that draws a plot. Code in the kernel has chosen all of `title` and of `specification`, which is JSON.
pub(super) fn page(kind: PlotKind, title: &str, specification: &[u8]) -> Vec<u8> {
    let (library, name) = match kind {
        PlotKind::Plotly => (PlotLibrary::Plotly, "plotly"),
        PlotKind::Vega => (PlotLibrary::Vega, "vega"),
        PlotKind::VegaLite => (PlotLibrary::Vega, "vega-lite"),
    };
    let title = if title.trim().is_empty() { "Plot" } else { title };
    // JSON in which no text ends the script around it.
    let specification = String::from_utf8_lossy(specification).replace('<', "\\u003c");
    let library = BASE64.encode(library.bytes());
    let mut page = String::with_capacity(PAGE.len() + specification.len() + library.len());
    let mut rest = PAGE;
    for (mark, text) in [
        ("/* title */", escaped(title).as_str()),
        ("/* specification */", &specification),
        ("/* library */", &library),
        ("/* kind */", name),
    ] {
        // Each after the one before, so that no text is taken for a mark.
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    page.into_bytes()
}

const PAGE: &str = include_str!("page.html");

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_library_and_no_text_of_code_as_html() {
        let title = "</title><script>alert(1)</script> /* library */ & more";
        let specification = br#"{"a": "</script><script>alert(1)</script> /* kind */"}"#;
        for kind in [PlotKind::Plotly, PlotKind::Vega, PlotKind::VegaLite] {
            let page = String::from_utf8(page(kind, title, specification)).unwrap();
            assert_eq!(page.matches("<script").count(), PAGE.matches("<script").count());
            assert_eq!(page.matches("</script>").count(), PAGE.matches("</script>").count());
            assert!(
                page.contains("&lt;/title>&lt;script>alert(1)&lt;/script> /* library */ &amp; more</title>")
            );
            assert!(
                page.contains(r#"{"a": "\u003c/script>\u003cscript>alert(1)\u003c/script> /* kind */"}"#)
            );
            assert!(page.ends_with("</html>\n") && page.contains("default-src 'none'"));
            assert!(!page.contains("/* title */") && !page.contains("/* specification */"));
        }
        assert!(String::from_utf8(page(PlotKind::Vega, " ", b"{}")).unwrap().contains("<title>Plot</title>"));
    }
}
