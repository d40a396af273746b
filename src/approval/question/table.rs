//! Calls of one tool as a table for a user: what differs is in columns, what is the same in all is said once.

use serde_json::Value;

use crate::approval::action::Action;
use crate::approval::action::as_python::{TooLong, is_identifier, literal};
use crate::ground::text::visible::QuotedName;

/// The greatest length of a table, in characters. Those of more calls are asked in several questions.
const MOST_CHARS: usize = 32_000;

/// The numbers of characters of a long text in a table; the largest value that fits is used. The last leaves no doubt
/// what a text is about.
const SHARES: [usize; 4] = [450, 220, 100, 60];

/// The most calls of a table. A person does not read more with care.
pub(crate) const MOST_ROWS: usize = 250;

/// The widest column whose cells are filled up with blanks, in characters.
const PADDED: usize = 32;

/// The calls of `actions`, which are of one tool, as a table whose first row has the number `first`.
///
/// # Errors
/// It is longer than a user can be expected to read.
pub(crate) fn table(actions: &[&Action], first: usize) -> Result<String, TooLong> {
    if actions.len() > MOST_ROWS {
        return Err(TooLong);
    }
    let smallest = SHARES.last().copied().unwrap_or_default();
    for share in SHARES {
        // Room for a larger share is better left to fewer words.
        let room = if share == smallest { MOST_CHARS } else { MOST_CHARS / 3 };
        let text = render(actions, first, share);
        if text.chars().count() <= room {
            return Ok(text);
        }
    }
    Err(TooLong)
}

fn render(actions: &[&Action], first: usize, share: usize) -> String {
    let names = names(actions);
    let is_same = |name: &str| {
        let mut values = actions.iter().map(|action| action.tool_args.get(name));
        let first = values.next().flatten();
        first.is_some() && values.all(|value| value == first)
    };
    let (same, varying): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| is_same(name));
    let mut text = String::new();
    if let (false, Some(action)) = (same.is_empty(), actions.first()) {
        let same = same.iter().map(|name| format!("{}={}", shown_name(name), cell(action, name, share)));
        text.push_str(&format!("The same in all: {}\n", same.collect::<Vec<_>>().join(", ")));
    }
    let mut rows = vec![vec!["#".to_owned()]];
    rows[0].extend(varying.iter().map(|name| shown_name(name)));
    for (number, action) in (first..).zip(actions) {
        let mut row = vec![number.to_string()];
        row.extend(varying.iter().map(|name| cell(action, name, share)));
        rows.push(row);
    }
    text.push_str(&aligned(&rows));
    text
}

/// The names of all arguments, in the order in which they come.
fn names<'a>(actions: &[&'a Action]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in actions.iter().flat_map(|action| action.tool_args.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// A name as it is written in a call; quoted if it could be misread.
fn shown_name(name: &str) -> String {
    if is_identifier(name) { name.to_owned() } else { QuotedName(name).to_string() }
}

/// A value as Python would write it; a dash for none. No value looks like a dash or a line between columns, since texts are
/// quoted.
fn cell(action: &Action, name: &str, share: usize) -> String {
    action.tool_args.get(name).map_or_else(|| "–".to_owned(), |value: &Value| literal(action, value, share))
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        // One wide cell must not fill the others with blanks.
        if widest > PADDED { 0 } else { widest }
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join(" | ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::approval::action::Target;

    fn call(arguments: Value) -> Action {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        Action::new("mail".to_owned(), "send".to_owned(), arguments, Target::Command("m".to_owned()))
    }

    fn shown(calls: &[Value], first: usize) -> String {
        let actions: Vec<Action> = calls.iter().cloned().map(call).collect();
        table(&actions.iter().collect::<Vec<_>>(), first).unwrap()
    }

    #[test]
    fn what_differs_is_in_columns() {
        let calls = [
            json!({"to": "ann@example.com", "subject": "Hi", "copies": 1}),
            json!({"to": "bo@example.com", "subject": "Hi", "copies": 12}),
            json!({"to": "c", "subject": "Hi", "urgent": true}),
        ];
        assert_eq!(
            shown(&calls, 9),
            "The same in all: subject='Hi'\n\
             #  | to                | copies | urgent\n\
             9  | 'ann@example.com' | 1      | –\n\
             10 | 'bo@example.com'  | 12     | –\n\
             11 | 'c'               | –      | True\n"
        );
        assert_eq!(shown(&[json!({}), json!({})], 1), "#\n1\n2\n");
    }

    #[test]
    fn no_value_looks_like_something_else() {
        let calls = [
            json!({"a": "x | '–'\n2 | 'y'", "odd name": "\u{202e}b", "n": null}),
            json!({"a": "–", "odd name": 1, "n": "None"}),
        ];
        let shown = shown(&calls, 1);
        assert_eq!(shown.lines().count(), 3, "{shown}");
        assert!(shown.contains(r"x | '–'\n2 | 'y'") && shown.contains(r"\u202e"), "{shown}");
        assert!(shown.contains("'–'") && shown.contains("'None'") && shown.contains("'odd name'"), "{shown}");
    }

    #[test]
    fn long_texts_show_both_ends_and_too_many_calls_are_refused() {
        let call_with =
            |number: usize| json!({"path": format!("/w/{number}.txt"), "text": "long ".repeat(2000)});
        let rows = |count: usize| (0..count).map(|number| call(call_with(number))).collect::<Vec<_>>();
        let actions = rows(100);
        let text = table(&actions.iter().collect::<Vec<_>>(), 1).unwrap();
        assert!(text.chars().count() <= MOST_CHARS && text.contains("'/w/99.txt'"), "{text}");
        let varied: Vec<Action> = (0..200)
            .map(|number| {
                call(json!({"path": format!("/w/{number}"), "text": format!("{number} ").repeat(3000)}))
            })
            .collect();
        let text = table(&varied.iter().collect::<Vec<_>>(), 1).unwrap();
        assert!(text.lines().count() == 201 && text.contains("not shown"), "{}", &text[..500]);
        let many = rows(MOST_ROWS + 1);
        assert_eq!(table(&many.iter().collect::<Vec<_>>(), 1), Err(TooLong));
    }
}
