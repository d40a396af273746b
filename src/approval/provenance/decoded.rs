//! Texts in a text that are encoded, as Base64 or in hexadecimal digits.

/// The shortest encoded run that is looked at, in characters.
const SHORTEST: usize = 48;

/// The part of a run that is decoded to see whether it is one, in characters: what is none costs no more.
const LOOK: usize = 128;

/// Calls `each` with every text that is encoded in `text`.
pub(super) fn decoded(text: &str, mut each: impl FnMut(&str)) {
    for (first, last) in runs(text.as_bytes()) {
        let run: Vec<u8> =
            text.as_bytes()[first..last].iter().copied().filter(|byte| is_sign(*byte)).collect();
        if run.iter().all(u8::is_ascii_hexdigit) {
            for first in 0..2 {
                give(&run[first..], from_hex, &mut each);
            }
        }
        for first in 0..4 {
            if give(&run[first..], from_base64, &mut each) {
                break;
            }
        }
    }
}

fn is_sign(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

/// The places of runs of signs of an encoding that are long enough. The lines of an encoded text follow each other.
fn runs(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    // Every run that is long enough has a sign at one of these places.
    let mut at = SHORTEST - 1;
    while at < bytes.len() {
        let first = bytes[..=at].iter().rposition(|byte| !is_sign(*byte)).map_or(0, |other| other + 1);
        let is_long = |end: usize| end - first >= SHORTEST;
        let mut end = at.max(first);
        while let Some(&byte) = bytes.get(end)
            && (is_sign(byte) || matches!(byte, b'\n' | b'\r') && is_long(end))
        {
            end += 1;
        }
        if is_long(end) {
            runs.push((first, end));
        }
        at = end.max(first) + SHORTEST;
    }
    runs
}

/// Gives what is encoded if it is text. Whether it was.
fn give(run: &[u8], decode: fn(&[u8]) -> Vec<u8>, each: &mut impl FnMut(&str)) -> bool {
    // A look at the beginning is enough to leave out what is none: programs, images.
    let beginning = decode(&run[..run.len().min(LOOK)]);
    let printable =
        beginning.iter().filter(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t' | 0x80..)).count();
    let ascii = beginning.iter().filter(|byte| byte.is_ascii_alphanumeric() || **byte == b' ').count();
    let is_text =
        !beginning.is_empty() && printable * 20 >= beginning.len() * 19 && ascii * 2 >= beginning.len();
    if is_text {
        each(&String::from_utf8_lossy(&decode(run)));
    }
    is_text
}

fn from_hex(digits: &[u8]) -> Vec<u8> {
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or_default() as u8;
    digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

fn from_base64(signs: &[u8]) -> Vec<u8> {
    let value = |sign: u8| {
        u32::from(match sign {
            b'A'..=b'Z' => sign - b'A',
            b'a'..=b'z' => sign - b'a' + 26,
            b'0'..=b'9' => sign - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        })
    };
    let mut bytes = Vec::with_capacity(signs.len() / 4 * 3);
    for four in signs.chunks_exact(4) {
        let bits = four.iter().fold(0, |bits, sign| bits << 6 | value(*sign));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    bytes
}
