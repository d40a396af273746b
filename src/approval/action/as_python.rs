//! An action as text for a user: the call as Python would write it.
//!
//! Long texts in it can be shortened, each for itself, so that code cannot choose what is hidden: names,
//! numbers and short texts are always shown, and of a long text both ends and its length.

use std::fmt::{self, Formatter, Write};

use serde_json::Value;

use super::{Action, OURSELVES, REGISTER, Target};
use crate::ground::text::visible::{PythonLiteral, QuotedName, TextUse};

/// The length of a call, in characters, up to which its long texts are not shortened. Dialogs are small, and arguments may hold
/// whole files.
const COMFORTABLE_CHARS: usize = 4_000;

/// The length that it may have after that. Users approve longer ones without reading them.
const MOST_CHARS: usize = 16_000;

/// The numbers of characters of a long text that may be left; the largest value that fits is used.
const SHARES: [usize; 6] = [3_500, 1_800, 900, 450, 220, 100];

/// The question about what ipybox does itself; `None` if it is another call.
pub(crate) fn question_of_ours(server_name: &str, tool_name: &str) -> Option<&'static str> {
    match (server_name, tool_name) {
        (OURSELVES, "shell" | "shell_magic") => Some("Run this shell command in the kernel?"),
        (OURSELVES, REGISTER) => Some("Register this MCP server? It is started at once."),
        (OURSELVES, "save_action") => {
            Some("Save this action? Code finds it, and runs it with its own rights.")
        }
        (OURSELVES, "publish_action") => {
            Some("Publish this action? Everybody finds it, and it runs with the rights of who calls it.")
        }
        (OURSELVES, "install_package") => Some("Install this Python package? Its code may run at once."),
        _ => None,
    }
}

/// The action is too long for an approval request, even if shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Writes all of `server.tool(name=value)`, the values as Python literals. Names that are no Python
/// identifiers are quoted, since they could be misread: `server.tool(**{'odd name': value})`.
pub(in crate::approval) fn call(action: &Action, formatter: &mut Formatter<'_>) -> fmt::Result {
    PythonWriter { to: formatter, used: used(action), longest: usize::MAX }.call(action)
}

/// The same for an approval request. ipybox's own actions (commands, registrations, packages) are not
/// shortened.
///
/// # Errors
/// It, or the command line behind it, is longer than a user can be expected to read.
pub(crate) fn question(action: &Action) -> Result<String, TooLong> {
    if let Target::Command(words) | Target::Url(words) = &action.target
        && words.chars().nth(MOST_CHARS).is_some()
    {
        return Err(TooLong);
    }
    let shares: &[usize] = if action.server_name == OURSELVES { &[MOST_CHARS] } else { &SHARES };
    let smallest = shares.last().copied().unwrap_or_default();
    for &longest in shares {
        let room = if longest == smallest { MOST_CHARS } else { COMFORTABLE_CHARS };
        let mut page = LimitedText { text: String::new(), room };
        if (PythonWriter { to: &mut page, used: used(action), longest }).call(action).is_ok() {
            return Ok(page.text);
        }
    }
    Err(TooLong)
}

/// An argument as a row of a page shows it: of texts that are longer than `longest` both ends, unless the call is one of
/// ipybox's own.
pub(crate) fn argument(value: &Value, is_ours: bool, longest: usize) -> String {
    let (used, longest) = if is_ours { (TextUse::Code, usize::MAX) } else { (TextUse::Text, longest) };
    written(used, longest, MOST_CHARS, |writer| writer.value(value, used))
}

/// A value of an action's arguments, with at most `longest` characters of each text if they may be shortened.
pub(in crate::approval) fn literal(action: &Action, value: &Value, longest: usize) -> String {
    let longest = if action.server_name == OURSELVES { usize::MAX } else { longest };
    let used = used(action);
    written(used, longest, usize::MAX, |writer| writer.value(value, used))
}

/// The length up to which names are shown whole, in characters.
const NAME_CHARS: usize = 100;

/// Whether [`name`] shows all of a name.
pub(in crate::approval) fn is_shown_whole(name: &str) -> bool {
    name.len() <= NAME_CHARS
}

/// The name of a server, tool or argument as a call shows it: unchanged if it looks like one, else quoted.
pub(in crate::approval) fn name(name: &str) -> String {
    written(TextUse::Text, NAME_CHARS, MOST_CHARS, |writer| writer.name(name))
}

/// An argument's value as a call shows it: of texts that are longer than `longest` both ends, and of all of it the first
/// `most` characters.
pub(in crate::approval) fn value(value: &Value, longest: usize, most: usize) -> String {
    written(TextUse::Text, longest, most, |writer| writer.value(value, TextUse::Text))
}

fn written(
    used: TextUse,
    longest: usize,
    room: usize,
    write: impl FnOnce(&mut PythonWriter<'_, LimitedText>) -> fmt::Result,
) -> String {
    let mut page = LimitedText { text: String::new(), room };
    if write(&mut PythonWriter { to: &mut page, used, longest }).is_err() {
        // There is no more room.
        page.text.push_str("[…]");
    }
    page.text
}

/// The escapes of texts: a command, a command line or a package name as code; arguments of a tool as text in
/// any language.
fn used(action: &Action) -> TextUse {
    if action.server_name == OURSELVES { TextUse::Code } else { TextUse::Text }
}

/// A text with a limit of its length, in characters.
struct LimitedText {
    text: String,
    room: usize,
}

impl Write for LimitedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.room = self.room.checked_sub(text.chars().count()).ok_or(fmt::Error)?;
        self.text.push_str(text);
        Ok(())
    }
}

struct PythonWriter<'a, W> {
    to: &'a mut W,
    used: TextUse,
    /// The number of characters of a text that are shown.
    longest: usize,
}

impl<W: Write> PythonWriter<'_, W> {
    fn call(&mut self, action: &Action) -> fmt::Result {
        self.name(&action.server_name)?;
        self.to.write_str(".")?;
        self.name(&action.tool_name)?;
        self.to.write_str("(")?;
        for (index, (name, value)) in action.tool_args.iter().enumerate() {
            self.separator(index)?;
            if is_identifier(name) && name.len() <= self.longest {
                write!(self.to, "{name}=")?;
                self.value(value, self.used)?;
            } else {
                self.to.write_str("**{")?;
                self.text(name, &|part| QuotedName(part).to_string())?;
                self.to.write_str(": ")?;
                self.value(value, self.used)?;
                self.to.write_str("}")?;
            }
        }
        self.to.write_str(")")
    }

    /// The name of a server or tool: unchanged if it looks like one, else quoted.
    fn name(&mut self, name: &str) -> fmt::Result {
        let is_usual = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
        if !name.is_empty() && name.len() <= self.longest && name.chars().all(is_usual) {
            self.to.write_str(name)
        } else {
            self.text(name, &|part| QuotedName(part).to_string())
        }
    }

    fn value(&mut self, value: &Value, used: TextUse) -> fmt::Result {
        let part = if used == TextUse::Text { TextUse::Part } else { used };
        match value {
            Value::Null => self.to.write_str("None"),
            Value::Bool(true) => self.to.write_str("True"),
            Value::Bool(false) => self.to.write_str("False"),
            Value::Number(number) => write!(self.to, "{number}"),
            Value::String(text) => self.text(text, &|text| PythonLiteral(text, used).to_string()),
            Value::Array(items) => {
                self.to.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    self.separator(index)?;
                    self.value(item, part)?;
                }
                self.to.write_str("]")
            }
            Value::Object(members) => {
                self.to.write_str("{")?;
                for (index, (key, member)) in members.iter().enumerate() {
                    self.separator(index)?;
                    self.text(key, &|text| PythonLiteral(text, part).to_string())?;
                    self.to.write_str(": ")?;
                    self.value(member, part)?;
                }
                self.to.write_str("}")
            }
        }
    }

    fn separator(&mut self, index: usize) -> fmt::Result {
        if index == 0 { Ok(()) } else { self.to.write_str(", ") }
    }

    /// A text as `literal` writes it; of a long one both ends. The mark between them is outside of the
    /// quotes, where no text can imitate it.
    fn text(&mut self, text: &str, literal: &dyn Fn(&str) -> String) -> fmt::Result {
        if self.longest == usize::MAX {
            return self.to.write_str(&literal(text));
        }
        // No text becomes shorter by being escaped.
        if text.chars().nth(self.longest).is_none() {
            let whole = literal(text);
            if whole.chars().count() <= self.longest + 2 {
                return self.to.write_str(&whole);
            }
        }
        let half = self.longest / 2;
        let all = text.chars().count();
        let begin = fitting(half, all, |count| {
            let end = text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
            literal(&text[..end])
        });
        let end = fitting(half, all, |count| {
            let start = text.char_indices().nth_back(count.saturating_sub(1)).map_or(0, |(at, _)| at);
            literal(if count == 0 { "" } else { &text[start..] })
        });
        match all.checked_sub(begin.0 + end.0) {
            // The mark begins with letters: beside right-to-left text a number would be displayed in that
            // direction.
            Some(hidden @ 1..) => {
                write!(self.to, "{} [… not shown: {hidden} of {all} characters …] {}", begin.1, end.1)
            }
            _ => self.to.write_str(&literal(text)),
        }
    }
}

/// The longest literal of at most `room` characters, without its quotes, and how many characters of the text
/// it contains.
fn fitting(room: usize, all: usize, literal: impl Fn(usize) -> String) -> (usize, String) {
    let fits = |count: usize| {
        let literal = literal(count);
        (literal.chars().count() <= room + 2).then_some((count, literal))
    };
    // An escaped character takes at most ten.
    let mut low = (room / 10).min(all);
    let mut high = (room + 1).min(all);
    let mut found = fits(low).unwrap_or_else(|| (0, literal(0)));
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        match fits(middle) {
            Some(fitting) => (low, found) = (middle, fitting),
            None => high = middle,
        }
    }
    found
}

pub(in crate::approval) fn is_identifier(name: &str) -> bool {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    name.chars().all(is_word) && name.starts_with(|first: char| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::approval::question::ApprovalRequest;

    fn action(tool_args: Value) -> Action {
        let Value::Object(tool_args) = tool_args else { panic!("an object") };
        Action::new("s".to_owned(), "t".to_owned(), tool_args, Target::Kernel)
    }

    #[track_caller]
    fn check(tool_args: Value, expected: &str) {
        let action = action(tool_args);
        assert_eq!(question(&action).as_deref(), Ok(expected));
        let (request, _) = ApprovalRequest::new(Arc::new(action), Arc::default());
        assert_eq!(request.to_string(), expected);
    }

    #[test]
    fn a_call_is_shown_as_python_writes_it() {
        check(json!({}), "s.t()");
        check(json!({"a": "b", "c": 1.5}), "s.t(a='b', c=1.5)");
        check(json!({"a": [null, true, {"k": "it's"}]}), r#"s.t(a=[None, True, {'k': "it's"}])"#);
        check(json!({"a": "'\"\\\n"}), r#"s.t(a='\'"\\\n')"#);
    }

    #[test]
    fn nothing_in_it_can_mislead() {
        check(
            json!({"a": "\u{1b}[2J\u{200b}\u{202e}\u{e0041}é"}),
            r"s.t(a='\x1b[2J\u200b\u202e\U000e0041é')",
        );
        check(
            json!({"path": "/x", "dry_run=True, note": "x", "p\u{430}th": 1, "it's": 2}),
            r"s.t(path='/x', **{'dry_run=True, note': 'x'}, **{'p\u0430th': 1}, **{'it\'s': 2})",
        );
    }

    #[test]
    fn padding_hides_itself_alone() {
        let pad = "x".repeat(1_000_000);
        let around =
            json!({"a": pad, "path": "/etc/passwd", "mode": "delete", "z": pad, "é".repeat(9_000): 1});
        let shown = question(&action(around)).unwrap();
        assert!(shown.contains(", path='/etc/passwd', mode='delete', z="), "{shown}");
        assert!(shown.contains("xxx' [… not shown: 999100 of 1000000 characters …] 'xxx"), "{shown}");
        assert!(shown.chars().count() <= COMFORTABLE_CHARS, "{shown}");
        let within = json!({"args": [pad, "--allow", pad, {"deep": [pad, "--really", pad]}]});
        let shown = question(&action(within)).unwrap();
        assert!(shown.contains(", '--allow', ") && shown.contains(", '--really', "), "{shown}");
    }

    #[test]
    fn a_text_cannot_say_that_something_is_not_shown() {
        let fake = "x' [… not shown: 1 of 2 characters …] 'y";
        let shown = question(&action(json!({"a": fake}))).unwrap();
        assert_eq!(shown, format!("s.t(a=\"{fake}\")"));
    }

    #[test]
    fn escapes_take_their_room() {
        let shown = question(&action(json!({"a": "\u{1bca0}".repeat(3_000), "b": 1}))).unwrap();
        assert!(shown.ends_with(", b=1)") && shown.chars().count() <= COMFORTABLE_CHARS, "{shown}");
        let shown = question(&action(json!({"a": "ж".repeat(1_000) + &"\u{1bca0}".repeat(400)}))).unwrap();
        assert!(shown.chars().count() <= COMFORTABLE_CHARS, "{shown}");
    }

    #[test]
    fn what_cannot_be_shown_is_not_asked() {
        let many: serde_json::Map<_, _> =
            (0..10_000).map(|number| (format!("a{number}"), json!(1))).collect();
        assert_eq!(question(&action(many.into())), Err(TooLong));
        assert_eq!(question(&action(json!({"a": vec!["short"; 10_000]}))), Err(TooLong));
        let some: Vec<u32> = (0..2_000).collect();
        assert!(question(&action(json!({"a": some}))).unwrap().ends_with(", 1998, 1999])"));
        let target = Target::Command("x".repeat(MOST_CHARS + 1));
        assert_eq!(question(&Action { target, ..action(json!({})) }), Err(TooLong));
    }

    #[test]
    fn commands_and_registrations_are_shown_whole_or_not_at_all() {
        let ours =
            |text: String| Action { server_name: OURSELVES.to_owned(), ..action(json!({"cmd": text})) };
        let command = format!("echo {}; rm x; echo {}", "a".repeat(6_000), "b".repeat(6_000));
        assert_eq!(question(&ours(command.clone())), Ok(format!("ipybox.t(cmd='{command}')")));
        assert_eq!(question(&ours("x".repeat(MOST_CHARS))), Err(TooLong));
    }
}
