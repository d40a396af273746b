//! Binary data in answers: Base64 in its variants, `data:` URLs, and the types that data begin with. Pure.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

/// With padding or without.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The type of data of which nothing is known.
pub(super) const UNKNOWN: &str = "application/octet-stream";

/// The beginning of a text that is searched for the element of SVG, in bytes.
const SVG_BYTES: usize = 1_000;

/// The first bytes of sounds and documents. The crate `image` knows those of images.
const BEGINNINGS: [(&[u8], &str); 9] = [
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", "audio/webm"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
];

/// Decoded data.
#[derive(Debug, PartialEq)]
pub(super) struct DecodedData {
    pub(crate) data: Vec<u8>,
    /// The type in a `data:` URL.
    named: Option<String>,
}

impl DecodedData {
    /// Decodes Base64, with padding or without, possibly in lines or in the alphabet of URLs, and `data:` URLs.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let Some((head, body)) = data_url(text) else {
            return Some(Self { data: decode(text)?, named: None });
        };
        let plain = percent_decode_str(body);
        let data = if head.to_ascii_lowercase().contains(";base64") {
            decode(&plain.decode_utf8().ok()?)?
        } else {
            plain.collect()
        };
        let named = head.split(';').next().map(str::trim).filter(|kind| kind.contains('/'));
        Some(Self { data, named: named.map(str::to_owned) })
    }

    /// The type of the data: as it is `given`, or as the URL names it, or as they begin.
    pub(crate) fn media_type(&self, given: Option<&str>) -> Option<String> {
        let given = given.map(str::trim).filter(|kind| kind.contains('/') && *kind != UNKNOWN);
        given.or(self.named.as_deref()).or_else(|| beginning(&self.data)).map(str::to_owned)
    }

    /// The same, with a name for what is not known.
    pub(super) fn certain_type(&self, given: &str) -> String {
        let default = || if given.is_empty() { UNKNOWN } else { given }.to_owned();
        self.media_type(Some(given)).unwrap_or_else(default)
    }
}

/// The parts before and after the comma of a `data:` URL.
fn data_url(text: &str) -> Option<(&str, &str)> {
    const SCHEME: &str = "data:";
    let text = text.trim_start();
    let scheme = text.get(..SCHEME.len())?;
    text[SCHEME.len()..].split_once(',').filter(|_| scheme.eq_ignore_ascii_case(SCHEME))
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let standard = |character: char| match character {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    // Other forms are rare, and a copy is as large as the data.
    let copy = || text.split_ascii_whitespace().flat_map(str::chars).map(standard).collect::<String>();
    LENIENT.decode(text).or_else(|_| LENIENT.decode(copy())).ok()
}

/// The type of data that begin so.
fn beginning(data: &[u8]) -> Option<&'static str> {
    let image = image::guess_format(data).ok().map(|format| format.to_mime_type());
    let is_svg = || {
        let text = String::from_utf8_lossy(&data[..data.len().min(SVG_BYTES)]);
        text.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']).starts_with('<') && text.contains("<svg")
    };
    let boxed = || match (data.get(..4), data.get(4..8), data.get(8..12)) {
        (Some(b"RIFF"), _, Some(b"WAVE")) => Some("audio/wav"),
        (_, Some(b"ftyp"), Some(b"M4A ")) => Some("audio/mp4"),
        _ => None,
    };
    let other = || BEGINNINGS.iter().find(|(begin, _)| data.starts_with(begin)).map(|(_, kind)| *kind);
    image.or_else(|| is_svg().then_some("image/svg+xml")).or_else(boxed).or_else(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\xfb\xff\xfe";

    fn written(data: &[u8]) -> String {
        base64::engine::general_purpose::STANDARD.encode(data)
    }

    #[test]
    fn data_in_every_spelling_of_base64_are_the_same() {
        let standard = written(PNG);
        let of_urls = standard.replace('+', "-").replace('/', "_");
        assert_ne!(standard, of_urls);
        for text in [
            standard.clone(),
            standard.trim_end_matches('=').to_owned(),
            of_urls.clone(),
            of_urls.trim_end_matches('=').to_owned(),
            format!("{}\r\n {}\n", &standard[..4], &standard[4..]),
            format!("data:image/png;base64,{standard}"),
            format!("DATA:image/png;charset=utf-8;BASE64,{of_urls}"),
            format!("data:;base64,{}", standard.replace('+', "%2B").replace('=', "%3D")),
        ] {
            let read = DecodedData::read(&text).unwrap();
            assert_eq!(read.data, PNG, "{text}");
            assert_eq!(read.media_type(None).as_deref(), Some("image/png"), "{text}");
        }
        assert_eq!(DecodedData::read("data:text/plain,a%20b").unwrap().data, b"a b");
        for text in ["no Base64!", "data:image/png;base64,?", "https://a/b.png"] {
            assert_eq!(DecodedData::read(text), None, "{text}");
        }
    }

    #[test]
    fn the_type_is_the_given_one_or_that_of_the_url_or_of_the_data() {
        let of_url = DecodedData::read(&format!("data:image/webp;base64,{}", written(PNG))).unwrap();
        let bare = DecodedData::read(&written(PNG)).unwrap();
        for (given, expected_of_url, expected) in [
            (Some("image/jpeg"), "image/jpeg", "image/jpeg"),
            (Some(""), "image/webp", "image/png"),
            (Some("png"), "image/webp", "image/png"),
            (Some(UNKNOWN), "image/webp", "image/png"),
            (None, "image/webp", "image/png"),
        ] {
            assert_eq!(of_url.media_type(given).as_deref(), Some(expected_of_url), "{given:?}");
            assert_eq!(bare.media_type(given).as_deref(), Some(expected), "{given:?}");
        }
    }

    #[test]
    fn data_show_their_type_by_how_they_begin() {
        for (data, expected) in [
            (&b"\xff\xd8\xff\xe0"[..], Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF....WEBPVP8 ", Some("image/webp")),
            (b"<?xml version='1.0'?>\n<svg xmlns='x'/>", Some("image/svg+xml")),
            (b"RIFF....WAVEfmt ", Some("audio/wav")),
            (b"ID3\x04", Some("audio/mpeg")),
            (b"OggS\0", Some("audio/ogg")),
            (b"....ftypM4A ", Some("audio/mp4")),
            (b"%PDF-1.7", Some("application/pdf")),
            (b"<html>", None),
            (b"", None),
        ] {
            assert_eq!(beginning(data), expected, "{}", String::from_utf8_lossy(data));
        }
    }
}
