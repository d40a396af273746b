//! The texts in what a tool returned, binary data among it, as code may read them. Pure.

use std::fmt::{self, Write};

use super::{ResourceBody, ToolContent, ToolOutput};

/// The length of a part of binary data that is looked at by itself, in bytes: an even number, for UTF-16.
const PART: usize = 1024;

/// The least number of bytes in a row that are a text.
const SHORTEST: usize = 8;

impl ToolOutput {
    /// Writes all of its texts, each on a line of its own: also those that are data of images and resources, types and names.
    pub(crate) fn write_texts(&self, to: &mut dyn Write) -> fmt::Result {
        if let Some(value) = &self.structured {
            writeln!(to, "{value}")?;
        }
        for content in &self.content {
            match content {
                ToolContent::Resource { uri, media_type, body } => {
                    writeln!(to, "{uri}\n{}", media_type.as_deref().unwrap_or_default())?;
                    match body {
                        ResourceBody::Text(text) => writeln!(to, "{text}"),
                        ResourceBody::Bytes(data) => write_data(data, to),
                    }
                }
                ToolContent::Image { media_type, data } | ToolContent::Audio { media_type, data } => {
                    writeln!(to, "{media_type}")?;
                    write_data(data, to)
                }
                ToolContent::Link(resource) => {
                    writeln!(to, "{}", serde_json::to_string(resource).unwrap_or_default())
                }
                ToolContent::Text(_) | ToolContent::Unusable(_) => writeln!(to, "{content}"),
            }?;
        }
        Ok(())
    }
}

/// Writes the texts in binary data, in each encoding in which they look like any.
fn write_data(data: &[u8], to: &mut dyn Write) -> fmt::Result {
    if let Ok(text) = std::str::from_utf8(data)
        && !text.contains('\0')
    {
        return writeln!(to, "{text}");
    }
    write_runs(data, to, |run, to| {
        for chunk in run.utf8_chunks() {
            to.write_str(chunk.valid())?;
        }
        Ok(())
    })?;
    if std::str::from_utf8(data).is_err() {
        write_runs(data, to, |run, to| run.iter().try_for_each(|byte| to.write_char(windows_1252(*byte))))?;
    }
    for first in 0..2 {
        write_utf16(&data[first.min(data.len())..], u16::from_le_bytes, to)?;
        write_utf16(&data[first.min(data.len())..], u16::from_be_bytes, to)?;
    }
    Ok(())
}

/// Writes the runs of bytes that look like a text of one or more bytes a letter.
fn write_runs(
    data: &[u8],
    to: &mut dyn Write,
    write: impl Fn(&[u8], &mut dyn Write) -> fmt::Result,
) -> fmt::Result {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 11 | 12 | 14..=31 | 127);
    let runs = data.split(is_control).filter(|run| run.len() >= SHORTEST);
    for run in runs.filter(|run| is_text(run)) {
        write(run, to)?;
        to.write_char('\n')?;
    }
    Ok(())
}

/// Whether half of it is what most texts have, or nearly all of it is UTF-8.
fn is_text(run: &[u8]) -> bool {
    let common = run.iter().filter(|byte| byte.is_ascii_alphanumeric() || **byte == b' ').count();
    let broken: usize = run.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    common * 2 >= run.len() || broken * 16 <= run.len()
}

/// Writes the parts that look like UTF-16. Nearly all of a text is in a few scripts; in other data, each is as likely.
fn write_utf16(data: &[u8], unit: impl Fn([u8; 2]) -> u16, to: &mut dyn Write) -> fmt::Result {
    for part in data.chunks(PART) {
        let units = || part.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let is_common = |unit: &u16| matches!(unit >> 8, 0..=0x06 | 0x09..=0x0e | 0x20 | 0x30 | 0x4e..=0x9f | 0xac..=0xd7 | 0xff);
        // Of ASCII, two letters together look like a sign of Chinese.
        let is_ascii = part.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'));
        let count = units().count();
        let common = units().filter(is_common).count();
        if !is_ascii && count >= SHORTEST && common * 20 >= count * 19 {
            // Of four bytes a letter, two are nothing.
            for letter in char::decode_utf16(units().filter(|unit| *unit != 0)) {
                to.write_char(letter.unwrap_or(' '))?;
            }
        }
    }
    to.write_char('\n')
}

/// The meaning of a byte in the encoding of western Europe, which has Latin-1 in it.
fn windows_1252(byte: u8) -> char {
    match byte {
        // Signs but for these, which are no letters or digits.
        0x8a => 'Š',
        0x8c => 'Œ',
        0x8e => 'Ž',
        0x9a => 'š',
        0x9c => 'œ',
        0x9e => 'ž',
        0x9f => 'Ÿ',
        0x83 => 'ƒ',
        0x80..=0x9f => ' ',
        _ => char::from(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LETTER: &str = "Sehr geehrte Frau Müller, die Übernahme der Firma wird am Freitag bekannt; bis dahin weiß es niemand.";

    fn written(data: &[u8]) -> String {
        let content =
            vec![ToolContent::Image { media_type: "image/x-ticket-4711".to_owned(), data: data.to_vec() }];
        let mut text = String::new();
        ToolOutput { structured: None, content }.write_texts(&mut text).unwrap();
        text
    }

    fn utf16(text: &str, bytes: impl Fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn texts_in_binary_data_are_found_in_each_encoding() {
        let latin: Vec<u8> = LETTER.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect();
        let noise: Vec<u8> = (0..2_000_u32).map(|number| (number * number * 7 / 3) as u8).collect();
        let chinese = "会议将于星期五举行，在此之前任何人都不得知道价格和日期。".repeat(4);
        for (how, expected, data) in [
            ("UTF-8", LETTER, LETTER.as_bytes().to_vec()),
            ("UTF-8 with a bad byte", LETTER, [LETTER.as_bytes(), b"\xff"].concat()),
            ("Latin-1", LETTER, latin.clone()),
            ("UTF-16", LETTER, utf16(LETTER, u16::to_le_bytes)),
            ("UTF-16 with a mark", LETTER, [&b"\xff\xfe"[..], &utf16(LETTER, u16::to_le_bytes)].concat()),
            ("UTF-16, the other way round", LETTER, utf16(LETTER, u16::to_be_bytes)),
            ("UTF-32", LETTER, LETTER.chars().flat_map(|letter| u32::from(letter).to_le_bytes()).collect()),
            ("Chinese in UTF-8", &chinese, [chinese.as_bytes(), b"\xff"].concat()),
            ("Chinese in UTF-16", &chinese, utf16(&chinese, u16::to_le_bytes)),
            ("in a picture", LETTER, [&noise[..], &[0], LETTER.as_bytes(), &[0], &noise].concat()),
        ] {
            let written = written(&data);
            assert!(written.contains(expected), "{how}: {written}");
        }
        assert!(written(b"").contains("image/x-ticket-4711"));
        assert!(windows_1252(0x9c).is_alphabetic() && !windows_1252(0x93).is_alphanumeric());
    }

    #[test]
    fn what_is_no_text_is_left_out() {
        let mut random = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        })
        .take(100_000)
        .collect();
        let written = written(&noise);
        assert!(written.len() < 30_000, "{} bytes", written.len());
    }
}
