//! Markdown: code and outputs between fences, images as files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Export;
use super::read::{Cell, Code, Image, Output, Page};

pub(super) fn export(page: &Page, directory: Option<&str>) -> Export {
    let mut export = Export { text: String::new(), files: Vec::new() };
    for cell in &page.cells {
        match cell {
            Cell::Words(words) => push(&mut export.text, words.trim()),
            Cell::Code(code) => push_code(&mut export, code, directory),
        }
    }
    export
}

fn push_code(export: &mut Export, code: &Code, directory: Option<&str>) {
    push(&mut export.text, &fenced("python", &code.source));
    for output in &code.outputs {
        let text = match output {
            Output::Text(text) | Output::Error(text) | Output::Markdown(text) => fenced("text", text),
            // Markdown would show it.
            Output::Html(html) => fenced("html", &crate::ground::text::plain(html)),
            Output::Image(image) => image_text(image, directory, &mut export.files),
        };
        push(&mut export.text, &text);
    }
    let end = code.end.map(|end| format!("*This cell did not end by itself: {end}.*"));
    end.iter().for_each(|end| push(&mut export.text, end));
    if !code.calls.is_empty() {
        push(&mut export.text, &fenced("text", &format!("Calls:\n{}", code.calls.join("\n"))));
    }
}

fn image_text(image: &Image, directory: Option<&str>, files: &mut Vec<(String, Vec<u8>)>) -> String {
    let Some((directory, bytes)) = directory.zip(BASE64.decode(&image.data).ok()) else {
        return "*[an image]*".to_owned();
    };
    let name = format!("{}.{}", files.len() + 1, image.extension);
    let shown = if image.extension == "pdf" { "" } else { "!" };
    let text = format!("{shown}[an image](<{directory}/{name}>)");
    files.push((name, bytes));
    text
}

/// A block that ends where it should, whatever is in it.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|char| char != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end())
}

fn push(text: &mut String, block: &str) {
    if block.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(block);
    text.push('\n');
}
