//! ECMAScript regular expressions (the dialect of JSON Schema) in Python's syntax.
//!
//! Python compiles patterns when a module is imported, so what comes out of here must always compile: everything is
//! parsed, and what Python's `re` cannot say is an error with a reason.

use std::fmt::Write as _;

/// Patterns longer than this are not translated: matching them costs more than it is worth.
const MAX_LENGTH: usize = 10_000;

/// Python refuses deeper nesting of groups at some point; nobody writes it.
const MAX_GROUPS: usize = 90;

/// Python's limit on repetition counts.
const MAX_REPEAT: u64 = 4_294_967_294;

/// ECMAScript's `\s`, for inside a class.
const SPACE: &str = r"\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff";

/// The characters with a meaning outside a class.
const SPECIAL: &str = r"\.^$*+?{}[]|()";

/// The characters with a meaning in a class.
const SPECIAL_IN_CLASS: &str = r"\]^-[&~|";

/// `pattern` in Python's syntax, or why there is none.
pub(super) fn to_python(pattern: &str) -> Result<String, &'static str> {
    if pattern.len() > MAX_LENGTH {
        return Err("too long");
    }
    let characters: Vec<char> = pattern.chars().collect();
    let mut translation = Translation {
        rest: &characters,
        python: String::new(),
        depth: 0,
        groups: 0,
        names: Vec::new(),
        complete: Vec::new(),
    };
    translation.alternatives()?;
    if !translation.rest.is_empty() {
        return Err("unbalanced parenthesis");
    }
    Ok(translation.python)
}

struct Translation<'p> {
    rest: &'p [char],
    python: String,
    depth: usize,
    groups: usize,
    names: Vec<String>,
    /// The numbers and names of the groups that have ended.
    complete: Vec<String>,
}

/// The part that was read last, as far as a quantifier may follow it.
#[derive(PartialEq)]
enum Last {
    /// A quantifier may follow.
    Atom,
    /// Nothing to repeat.
    Nothing,
}

impl Translation<'_> {
    fn next(&mut self) -> Option<char> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn peek(&self) -> Option<char> {
        self.rest.first().copied()
    }

    fn skip(&mut self, text: &str) -> bool {
        let matches =
            text.chars().count() <= self.rest.len() && text.chars().zip(self.rest).all(|(a, b)| a == *b);
        if matches {
            self.rest = &self.rest[text.chars().count()..];
        }
        matches
    }

    /// A group's content: everything up to its closing parenthesis or the end.
    fn alternatives(&mut self) -> Result<(), &'static str> {
        let mut last = Last::Nothing;
        while let Some(character) = self.peek() {
            if character == ')' {
                return Ok(());
            }
            self.next();
            last = match character {
                '|' | '^' => {
                    self.python.push(character);
                    Last::Nothing
                }
                // Python's `$` also matches before a line feed at the end.
                '$' => {
                    self.python.push_str(r"\Z");
                    Last::Nothing
                }
                '.' => {
                    self.python.push_str(r"[^\n\r\u2028\u2029]");
                    Last::Atom
                }
                '(' => self.group()?,
                '[' => self.class()?,
                '\\' => self.escape()?,
                '*' | '+' | '?' => self.quantifier(character.to_string(), &last)?,
                '{' => match self.counts() {
                    Some(counts) => self.quantifier(counts?, &last)?,
                    None => self.literal('{'),
                },
                _ => self.literal(character),
            };
        }
        Ok(())
    }

    fn literal(&mut self, character: char) -> Last {
        push_literal(&mut self.python, character, SPECIAL);
        Last::Atom
    }

    fn quantifier(&mut self, text: String, last: &Last) -> Result<Last, &'static str> {
        if *last == Last::Nothing {
            return Err("nothing to repeat");
        }
        self.python.push_str(&text);
        if self.skip("?") {
            self.python.push('?');
        }
        Ok(Last::Nothing)
    }

    /// `{2}`, `{2,}`, `{2,3}` after the opening brace; anything else is a literal brace.
    fn counts(&mut self) -> Option<Result<String, &'static str>> {
        let end = self.rest.iter().position(|c| *c == '}')?;
        let inner: String = self.rest[..end].iter().collect();
        let (least, most) = inner.split_once(',').unwrap_or((&inner, &inner));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(least) || !(most.is_empty() || is_number(most)) {
            return None;
        }
        self.rest = &self.rest[end + 1..];
        let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n <= MAX_REPEAT);
        let (Some(lower), upper) = (number(least), number(most)) else {
            return Some(Err("repeated too often"));
        };
        if !most.is_empty() && upper.is_none_or(|upper| upper < lower) {
            return Some(Err("repetition bounds out of order"));
        }
        Some(Ok(format!("{{{inner}}}")))
    }

    fn group(&mut self) -> Result<Last, &'static str> {
        self.depth += 1;
        if self.depth > MAX_GROUPS {
            return Err("nested too deeply");
        }
        let mut is_assertion = false;
        let mut complete = Vec::new();
        if self.skip("?:") {
            self.python.push_str("(?:");
        } else if self.skip("?=") {
            is_assertion = true;
            self.python.push_str("(?=");
        } else if self.skip("?!") {
            is_assertion = true;
            self.python.push_str("(?!");
        } else if self.skip("?<=") || self.skip("?<!") {
            return Err("Python wants a fixed width for looking behind");
        } else if self.skip("?<") || self.skip("?P<") {
            let name = self.until('>').filter(|name| is_group_name(name)).ok_or("group name")?;
            if self.names.contains(&name) {
                return Err("group name used twice");
            }
            self.groups += 1;
            let _ = write!(self.python, "(?P<{name}>");
            self.names.push(name.clone());
            complete = vec![self.groups.to_string(), name];
        } else if self.peek() == Some('?') {
            return Err("group syntax that Python does not share");
        } else {
            self.groups += 1;
            self.python.push('(');
            complete.push(self.groups.to_string());
        }
        self.alternatives()?;
        if self.next() != Some(')') {
            return Err("unbalanced parenthesis");
        }
        self.python.push(')');
        self.complete.append(&mut complete);
        self.depth -= 1;
        Ok(if is_assertion { Last::Nothing } else { Last::Atom })
    }

    fn until(&mut self, end: char) -> Option<String> {
        let length = self.rest.iter().position(|c| *c == end)?;
        let text = self.rest[..length].iter().collect();
        self.rest = &self.rest[length + 1..];
        Some(text)
    }

    /// An escape outside a class.
    fn escape(&mut self) -> Result<Last, &'static str> {
        let character = self.next().ok_or("ends in a backslash")?;
        match character {
            'b' | 'B' => {
                // ASCII word boundaries, as in ECMAScript.
                let _ = write!(self.python, r"(?a:\{character})");
                return Ok(Last::Nothing);
            }
            'd' => self.python.push_str("[0-9]"),
            'D' => self.python.push_str("[^0-9]"),
            'w' => self.python.push_str("[A-Za-z0-9_]"),
            'W' => self.python.push_str("[^A-Za-z0-9_]"),
            's' => drop(write!(self.python, "[{SPACE}]")),
            'S' => drop(write!(self.python, "[^{SPACE}]")),
            // Python's own anchors, which people write although ECMAScript has none.
            'A' | 'Z' | 'z' => {
                self.python.push_str(if character == 'A' { r"\A" } else { r"\Z" });
                return Ok(Last::Nothing);
            }
            'k' => {
                let name = if self.skip("<") { self.until('>') } else { None };
                let name = name.unwrap_or_default();
                self.back_reference(&name, &format!("(?P={name})"))?;
            }
            '1'..='9' => {
                let mut number = character.to_digit(10).unwrap_or_default() as usize;
                while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)).filter(|_| number < 100) {
                    number = number * 10 + digit as usize;
                    self.next();
                }
                self.back_reference(&number.to_string(), &format!(r"\{number}"))?;
            }
            other => {
                let literal = self.escaped(other)?;
                return Ok(self.literal(literal));
            }
        }
        Ok(Last::Atom)
    }

    /// A reference to a group, which `python` writes. Where the group has matched nothing it matches the empty text, as in
    /// ECMAScript.
    fn back_reference(&mut self, group: &str, python: &str) -> Result<(), &'static str> {
        if !self.complete.iter().any(|complete| complete == group) {
            return Err("reference to a group that has not ended there");
        }
        let _ = write!(self.python, "(?:(?({group}){python}))");
        Ok(())
    }

    /// The character that an escape means, in a class or outside.
    fn escaped(&mut self, character: char) -> Result<char, &'static str> {
        Ok(match character {
            't' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            '0' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => '\0',
            'x' => self.hexadecimal(2)?,
            'u' if self.skip("{") => {
                let digits = self.until('}').ok_or("unfinished escape")?;
                u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).ok_or("no such character")?
            }
            'u' => self.hexadecimal(4)?,
            'p' | 'P' => return Err("Python has no Unicode property classes"),
            'c' => {
                let letter = self.next().filter(char::is_ascii_alphabetic).ok_or("unfinished escape")?;
                char::from(letter as u8 % 32)
            }
            letter if letter.is_ascii_alphanumeric() => return Err("escape that Python does not share"),
            other => other,
        })
    }

    fn hexadecimal(&mut self, length: usize) -> Result<char, &'static str> {
        let code =
            |rest: &[char]| u32::from_str_radix(&rest.get(..length)?.iter().collect::<String>(), 16).ok();
        let high = code(self.rest).ok_or("unfinished escape")?;
        self.rest = &self.rest[length..];
        if let (0xd800..0xdc00, ['\\', 'u', low @ ..]) = (high, self.rest)
            && let Some(low @ 0xdc00..0xe000) = code(low)
        {
            self.rest = &self.rest[6..];
            return char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
                .ok_or("no such character");
        }
        char::from_u32(high).ok_or("half of a surrogate pair")
    }

    /// A character class, after its opening bracket.
    fn class(&mut self) -> Result<Last, &'static str> {
        let is_negated = self.skip("^");
        let mut items = String::new();
        let mut range_start: Option<char> = None;
        loop {
            let character = self.next().ok_or("unfinished character class")?;
            if character == ']' {
                break;
            }
            let is_hyphen = character == '-';
            let character = match self.class_item(character)? {
                Item::Set(set) => {
                    items.push_str(set);
                    range_start = None;
                    continue;
                }
                Item::Character(character) => character,
            };
            let is_range = is_hyphen && range_start.is_some() && self.peek().is_some_and(|next| next != ']');
            if !is_range {
                push_literal(&mut items, character, SPECIAL_IN_CLASS);
                range_start = Some(character);
                continue;
            }
            let mark = self.rest;
            let end = self.next().ok_or("unfinished character class")?;
            match (range_start.take(), self.class_item(end)?) {
                (Some(start), Item::Character(end)) if start <= end => {
                    items.push('-');
                    push_literal(&mut items, end, SPECIAL_IN_CLASS);
                }
                (_, Item::Character(_)) => return Err("range out of order"),
                // `[a-\d]`: the hyphen is itself.
                (_, Item::Set(_)) => {
                    self.rest = mark;
                    push_literal(&mut items, '-', SPECIAL_IN_CLASS);
                }
            }
        }
        match (items.as_str(), is_negated) {
            // ECMAScript's way to say "nothing" and "anything".
            ("", false) => self.python.push_str(r"(?!)"),
            ("", true) => self.python.push_str(r"[\x00-\U0010ffff]"),
            (_, true) => drop(write!(self.python, "[^{items}]")),
            (_, false) => drop(write!(self.python, "[{items}]")),
        }
        Ok(Last::Atom)
    }

    /// A part of a character class, whose first character is `character`.
    fn class_item(&mut self, character: char) -> Result<Item, &'static str> {
        if character != '\\' {
            return Ok(Item::Character(character));
        }
        Ok(match self.next().ok_or("ends in a backslash")? {
            'd' => Item::Set("0-9"),
            'w' => Item::Set("A-Za-z0-9_"),
            's' => Item::Set(SPACE),
            'D' => Item::Set(r"\x00-/:-\U0010ffff"),
            'W' => Item::Set(r"\x00-/:-@\[-\^`{-\U0010ffff"),
            'S' => return Err("not-a-space inside a character class"),
            'b' => Item::Character('\u{8}'),
            '-' => Item::Character('-'),
            other => Item::Character(self.escaped(other)?),
        })
    }
}

/// A part of a character class.
enum Item {
    Character(char),
    /// Several characters, in Python's syntax.
    Set(&'static str),
}

fn is_group_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Adds a character that matches itself, although it may be one of the `special` ones.
fn push_literal(python: &mut String, character: char, special: &str) {
    if character.is_control() {
        let _ = write!(python, r"\x{:02x}", character as u32);
        return;
    }
    if special.contains(character) {
        python.push('\\');
    }
    python.push(character);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_share_is_left_alone() {
        for pattern in [r"^[a-z]+\Z", "(a|b)*?c{2,3}", r"^(?:x|y)?\Z"] {
            let ecma = pattern.replace(r"\Z", "$");
            assert_eq!(to_python(&ecma).as_deref(), Ok(pattern));
        }
    }

    #[test]
    fn what_differs_is_translated() {
        for (pattern, expected) in [
            (r"^\d+$", r"^[0-9]+\Z"),
            (r"[\d\w-]", r"[0-9A-Za-z0-9_\-]"),
            (r"a\/b", "a/b"),
            (r"[.\-A-Z\-]", r"[.\-A-Z\-]"),
            (r"[a-c-e]", r"[a-c\-e]"),
            (r"(?<year>\d{4})", "(?P<year>[0-9]{4})"),
            (r"x{", r"x\{"),
            (r"\u0041\x42\u{43}", "ABC"),
            (r"[^]", r"[\x00-\U0010ffff]"),
            (r"\cA", r"\x01"),
            (r"(a)?\1b", r"(a)?(?:(?(1)\1))b"),
            (r"(?<a>x)\k<a>", "(?P<a>x)(?:(?(a)(?P=a)))"),
        ] {
            assert_eq!(to_python(pattern).as_deref(), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn what_python_cannot_say_has_a_reason() {
        let unknown = [r"\2(a)", r"\2(a)(b)", r"(a\1)", r"(?<n>a\k<n>)", r"\k<no>"];
        for pattern in [r"\p{L}", "(", ")", "a**", "[a", r"(?<=a+)b", "(?i)a", "[z-a]"].iter().chain(&unknown)
        {
            assert!(to_python(pattern).is_err(), "{pattern}");
        }
    }
}
