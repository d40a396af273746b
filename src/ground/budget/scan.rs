//! Weighs a JSON document without parsing it, piece by piece. Pure.

use super::{BudgetExcess, DEPTH, MESSAGE_BYTES, POOL_BYTES};

/// The number of bytes of a member's name or value that are kept.
const KEPT_BYTES: usize = 256;

/// The scan of a document so far.
///
/// It counts the memory that parsing would take. It does not validate the JSON.
#[derive(Debug, Default)]
pub(crate) struct JsonScan {
    bytes: usize,
    values_bytes: usize,
    depth: usize,
    deepest: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// Whether the next text in the outermost object is a member's name.
    is_name_next: bool,
    kept: KeptText,
    name: Vec<u8>,
    id: Vec<u8>,
    method: Vec<u8>,
}

/// The name or value that is being kept.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum KeptText {
    #[default]
    Nothing,
    Name,
    Id,
    Method,
}

impl JsonScan {
    /// Scans the next piece.
    pub(crate) fn read(&mut self, piece: &[u8]) {
        self.bytes = self.bytes.saturating_add(piece.len());
        let mut rest = piece;
        while !rest.is_empty() {
            let taken = if self.is_in_string { self.read_text(rest) } else { self.read_structure(rest) };
            rest = &rest[taken..];
        }
    }

    /// Its length, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most memory that it takes, in bytes, while it is parsed and passed on: its text, the texts in it as values,
    /// and a third time, unescaped or written anew; and the values themselves.
    pub(crate) fn weight(&self) -> usize {
        self.bytes.saturating_mul(3).saturating_add(self.values_bytes)
    }

    /// Why it is refused, if it is.
    pub(crate) fn excess(&self) -> Option<BudgetExcess> {
        if self.bytes > MESSAGE_BYTES {
            Some(BudgetExcess::Long)
        } else if self.deepest > DEPTH {
            Some(BudgetExcess::Deep)
        } else {
            (self.weight() > POOL_BYTES).then_some(BudgetExcess::Heavy)
        }
    }

    /// The member `id` of the outermost object, as JSON; empty if there is none, cut if it is long.
    pub(crate) fn id(&self) -> &[u8] {
        self.id.trim_ascii()
    }

    /// The same of the member `method`.
    pub(crate) fn method(&self) -> &[u8] {
        self.method.trim_ascii()
    }

    /// Reads on in a string; returns how much of `rest` it has read.
    fn read_text(&mut self, rest: &[u8]) -> usize {
        let mut read = usize::from(std::mem::take(&mut self.is_escaped));
        loop {
            match memchr::memchr2(b'"', b'\\', rest.get(read..).unwrap_or_default()) {
                Some(end) if rest[read + end] == b'"' => {
                    read += end;
                    self.end_text(&rest[..read]);
                    return read + 1;
                }
                // The next character is part of the text, whatever it is.
                Some(escape) => read += escape + 2,
                None => {
                    self.is_escaped = read > rest.len();
                    self.keep(rest);
                    return rest.len();
                }
            }
        }
    }

    /// Ends a string. The quotes belong to a value, not to a name.
    fn end_text(&mut self, last: &[u8]) {
        self.is_in_string = false;
        self.keep(last);
        match self.kept {
            KeptText::Name => self.kept = KeptText::Nothing,
            _ => self.keep(b"\""),
        }
    }

    /// Reads on outside of strings, up to the next one.
    fn read_structure(&mut self, rest: &[u8]) -> usize {
        for (index, &byte) in rest.iter().enumerate() {
            match byte {
                b'"' => {
                    self.begin_text();
                    return index + 1;
                }
                b'{' | b'[' => self.open(byte),
                b'}' | b']' => self.close(),
                b',' | b':' => self.separate(byte),
                _ => self.keep(&[byte]),
            }
        }
        rest.len()
    }

    fn begin_text(&mut self) {
        self.is_in_string = true;
        if self.depth == 1 && self.is_name_next {
            self.kept = KeptText::Name;
            self.name.clear();
        } else {
            self.keep(b"\"");
        }
    }

    /// The smallest allocations of serde_json with `preserve_order`, on 64 bits: an array of four values has 288 bytes; an
    /// object of three members 312, and the index of them 60.
    fn open(&mut self, byte: u8) {
        self.values_bytes = self.values_bytes.saturating_add(if byte == b'{' { 448 } else { 320 });
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        self.is_name_next = self.depth == 1 && byte == b'{';
        self.kept = KeptText::Nothing;
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0 {
            self.kept = KeptText::Nothing;
        }
    }

    /// A value has 72 bytes in an array; a member of an object 112 with its place in the index, and a name with its own
    /// allocation.
    fn separate(&mut self, byte: u8) {
        self.values_bytes = self.values_bytes.saturating_add(if byte == b',' { 96 } else { 80 });
        if self.depth != 1 {
            return;
        }
        self.kept = KeptText::Nothing;
        if byte == b',' {
            self.is_name_next = true;
        } else if std::mem::take(&mut self.is_name_next) {
            self.begin_value();
        }
    }

    fn begin_value(&mut self) {
        match self.name.as_slice() {
            b"id" => {
                self.kept = KeptText::Id;
                self.id.clear();
            }
            b"method" => {
                self.kept = KeptText::Method;
                self.method.clear();
            }
            _ => {}
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        let kept = match self.kept {
            KeptText::Nothing => return,
            KeptText::Name => &mut self.name,
            KeptText::Id => &mut self.id,
            KeptText::Method => &mut self.method,
        };
        let room = KEPT_BYTES.saturating_sub(kept.len()).min(piece.len());
        kept.extend_from_slice(&piece[..room]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scan of `text`, whole and byte by byte.
    fn scans(text: &str) -> [JsonScan; 2] {
        let (mut whole, mut pieces) = (JsonScan::default(), JsonScan::default());
        whole.read(text.as_bytes());
        text.as_bytes().chunks(1).for_each(|piece| pieces.read(piece));
        [whole, pieces]
    }

    #[track_caller]
    fn check_members(text: &str, id: &str, method: &str) {
        for scan in scans(text) {
            let found = [scan.id(), scan.method()].map(|kept| String::from_utf8_lossy(kept).into_owned());
            assert_eq!(found, [id, method], "{text}");
        }
    }

    #[test]
    fn the_id_and_the_method_are_found_wherever_they_stand() {
        check_members(r#"{"jsonrpc":"2.0","id":7,"result":{"id":8,"method":"x"}}"#, "7", "");
        check_members(r#"{"result":{"a":["id",{"id":8}]}, "id" : "a\"b" }"#, r#""a\"b""#, "");
        check_members(r#"{"id":null,"method":"ping","params":[1,2]}"#, "null", r#""ping""#);
        check_members(r#"{"text":"\"id\":5,","x":"id"}"#, "", "");
        check_members(r#"[{"id":1}]"#, "", "");
        check_members(r#"{"id":1,"#, "1", "");
        check_members("", "", "");
    }

    #[track_caller]
    fn check_excess(text: &str, expected: Option<BudgetExcess>) {
        let mut scan = JsonScan::default();
        text.as_bytes().chunks(64 * 1024).for_each(|piece| scan.read(piece));
        assert_eq!(scan.excess(), expected, "{} bytes", text.len());
    }

    #[test]
    fn what_is_long_deep_or_heavy_is_not_taken() {
        check_excess(&format!("[{}[]]", "[],".repeat(100_000)), None);
        check_excess(&format!("[{}[]]", "[],".repeat(1_000_000)), Some(BudgetExcess::Heavy));
        check_excess(&format!("[{}0]", "0,".repeat(500_000)), None);
        check_excess(&"[".repeat(DEPTH), None);
        check_excess(&"[".repeat(DEPTH + 1), Some(BudgetExcess::Deep));
        check_excess(&r#"{"":"#.repeat(100_000), Some(BudgetExcess::Deep));
        check_excess(&format!("\"{}\"", "[".repeat(MESSAGE_BYTES - 2)), None);
        check_excess(&format!("\"{}\"", "[".repeat(MESSAGE_BYTES)), Some(BudgetExcess::Long));
    }

    #[test]
    fn what_serde_json_reads_is_not_too_deep() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        // Also within other messages.
        assert!(serde_json::from_str::<serde_json::Value>(&nested(DEPTH + 7)).is_ok());
        assert!(serde_json::from_str::<serde_json::Value>(&nested(DEPTH + 8)).is_err());
    }
}
