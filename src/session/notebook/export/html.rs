//! One file of HTML. The page has no scripts, and its policy lets nothing in it run or fetch: text is escaped, images
//! are data, and the HTML of displays is in frames that may do nothing.

use super::read::{Cell, Code, Image, Output, Page};

const CSS: &str = include_str!("page.css");

/// It holds for the frames too.
const POLICY: &str =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(super) fn text(page: &Page) -> String {
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Notebook</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n"
    );
    for cell in &page.cells {
        match cell {
            Cell::Words(words) => text.push_str(&format!("<p class=\"words\">{}</p>\n", escaped(words))),
            Cell::Code(code) => push_code(&mut text, code),
        }
    }
    text.push_str("</body>\n</html>\n");
    text
}

fn push_code(text: &mut String, code: &Code) {
    text.push_str("<section>\n");
    let number = code.number.map(|number| format!("[{number}]")).unwrap_or_default();
    let head = [number, code.time.clone().unwrap_or_default(), code.end.unwrap_or_default().to_owned()];
    let head: Vec<String> = head.into_iter().filter(|part| !part.is_empty()).collect();
    text.push_str(&format!("<header>{}</header>\n", escaped(&head.join(" · "))));
    push_block(text, "code", &code.source);
    for output in &code.outputs {
        match output {
            Output::Text(shown) | Output::Markdown(shown) => push_block(text, "text", shown),
            Output::Error(shown) => push_block(text, "error", shown),
            Output::Html(html) => text.push_str(&format!(
                "<iframe sandbox loading=\"lazy\" title=\"output\" srcdoc=\"{}\"></iframe>\n",
                escaped(html)
            )),
            Output::Image(image) => text.push_str(&image_text(image)),
        }
    }
    if !code.calls.is_empty() {
        text.push_str("<footer>Calls</footer>\n");
        push_block(text, "calls", &code.calls.join("\n"));
    }
    text.push_str("</section>\n");
}

/// Nothing in an image runs: a script in SVG neither.
fn image_text(Image { kind, extension, data }: &Image) -> String {
    match *extension {
        "pdf" => "<p class=\"words\">[an image as PDF]</p>\n".to_owned(),
        _ => format!("<img alt=\"an image\" src=\"data:{kind};base64,{data}\">\n"),
    }
}

fn push_block(text: &mut String, class: &str, shown: &str) {
    text.push_str(&format!("<pre class=\"{class}\">{}</pre>\n", escaped(shown.trim_end())));
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\0' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
