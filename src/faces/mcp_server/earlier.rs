//! An answer that may not have reached the client, as the next answer repeats it.

use std::time::Duration;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde_json::Value;

use crate::kernels::output::{OutputFile, excerpt};
use crate::session::Session;

/// How many characters of a lost answer are repeated: the output of a cell with its default limit, and the
/// text around it.
const LOST_CHARS: usize = 6_000;

/// How many characters of an answer that the client probably has are repeated.
const DOUBTFUL_CHARS: usize = 500;

/// How many characters of an answer that the model requests again are repeated: there may be several.
const AGAIN_CHARS: usize = 2_000;

/// How many characters of a call's code or name are shown.
const SUBJECT_CHARS: usize = 60;

/// Why an answer may not have reached the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It probably has; the model may request it again anyway.
    Sent,
    /// The client cancelled the request, and ignores its answer.
    Cancelled,
    /// The client was asked for approval, and has not come back.
    NotTakenUp,
    /// It is the result of a task, about which the client has not asked.
    NotFetched,
    /// The client went away before it had the answer.
    ClientGone,
    /// The client may have given up without a cancellation.
    InDoubt,
}

/// An answer to send with the next one.
#[derive(Debug)]
pub(super) struct Earlier {
    heading: String,
    excerpt: String,
    /// The file with the whole answer, or why there is none.
    rest: String,
    /// How often it was sent with an answer that may itself be lost.
    pub(super) times_repeated: u32,
}

/// An answer that no request will fetch.
pub(super) struct Done {
    pub(super) call: String,
    pub(super) text: String,
    pub(super) why: Why,
    pub(super) after: Duration,
}

impl Earlier {
    /// The answer to `call`, which came `after` this time. Of a long answer only the excerpt is kept.
    pub(super) fn new(call: &str, text: &str, why: Why, after: Duration) -> Self {
        let seconds = after.as_secs();
        let heading = match why {
            Why::Sent => format!("Answer of an earlier call, after {seconds} s: {call}"),
            Why::Cancelled => format!("Answer of an earlier call, cancelled after {seconds} s: {call}"),
            Why::ClientGone => format!(
                "Answer of an earlier call, whose client was gone before it ended, after {seconds} s: {call}"
            ),
            Why::NotFetched => format!("Answer of an earlier call, which became a task: {call}"),
            Why::NotTakenUp => format!("Answer of an earlier call that waited for approval: {call}"),
            Why::InDoubt => {
                format!(
                    "Answer of an earlier call, after {seconds} s, which may not have reached you: {call}"
                )
            }
        };
        Self { heading, excerpt: excerpt(text, chars_of(why)), rest: String::new(), times_repeated: 0 }
    }

    /// The same, but the whole of a long answer is written to a file.
    pub(super) async fn with_file(
        call: &str,
        text: &str,
        why: Why,
        after: Duration,
        session: &Session,
    ) -> Self {
        let mut earlier = Self::new(call, text, why, after);
        if text.chars().nth(chars_of(why)).is_some() {
            earlier.rest = match OutputFile::keep(session.workspace(), text).await {
                Ok(path) => format!("; the whole is in {}", path.display()),
                Err(error) => format!("; the whole could not be saved: {error}"),
            };
        }
        earlier
    }

    /// Says that it may not have reached the client; in short if that is not likely.
    pub(super) fn doubt(&mut self, in_short: bool) {
        self.heading = self.heading.replacen(": ", ", which may not have reached you: ", 1);
        if in_short {
            self.excerpt = excerpt(&self.excerpt, DOUBTFUL_CHARS);
        }
    }

    /// The text for the next answer.
    pub(super) fn text(&self) -> String {
        self.with(&self.excerpt)
    }

    /// The text for an answer to a recall.
    pub(super) fn short_text(&self) -> String {
        self.with(&excerpt(&self.excerpt, AGAIN_CHARS))
    }

    fn with(&self, text: &str) -> String {
        format!("[{}]\n{text}\n[End of the earlier answer{}]", self.heading, self.rest)
    }
}

fn chars_of(why: Why) -> usize {
    match why {
        Why::Sent | Why::Cancelled | Why::NotTakenUp | Why::NotFetched | Why::ClientGone => LOST_CHARS,
        Why::InDoubt => DOUBTFUL_CHARS,
    }
}

/// The name of a call: its tool, and the beginning of its code, or its server or package.
pub(super) fn name_of(tool: &str, arguments: Option<&JsonObject>) -> String {
    let subject =
        ["code", "server_name", "package_name"].iter().find_map(|name| arguments?.get(*name)?.as_str());
    let line = subject.and_then(|subject| subject.trim().lines().next()).unwrap_or_default();
    let begin: String = line.chars().take(SUBJECT_CHARS).collect();
    let is_cut = subject.is_some_and(|subject| subject.trim().len() > begin.len());
    match (begin.is_empty(), is_cut) {
        (true, _) => format!("`{tool}`"),
        (false, true) => format!("`{tool}`, {} …", Value::from(begin)),
        (false, false) => format!("`{tool}`, {}", Value::from(begin)),
    }
}

/// The text of an answer.
pub(super) fn text_of(result: &CallToolResult) -> String {
    let texts: Vec<&str> =
        result.content.iter().filter_map(|block| block.as_text()).map(|block| block.text.as_str()).collect();
    texts.join("\n")
}

/// Puts earlier answers at the beginning of `result`: into its first text, since some clients read no other.
pub(super) fn prepend(earlier: &[String], result: &mut CallToolResult) {
    if earlier.is_empty() {
        return;
    }
    let mut texts = earlier.to_vec();
    if let Some(place) = result.content.iter().position(|block| block.as_text().is_some()) {
        let own = result.content.remove(place).as_text().map(|block| block.text.clone());
        texts.extend(own.filter(|own| !own.is_empty()));
    }
    result.content.insert(0, ContentBlock::text(texts.join("\n\n")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_name(arguments: Value, expected: &str) {
        assert_eq!(name_of("tool", arguments.as_object()), expected);
    }

    #[test]
    fn a_call_is_named_by_the_beginning_of_its_code() {
        check_name(json!({"code": "\nx = \"é\"\n", "timeout": 5}), r#"`tool`, "x = \"é\"""#);
        check_name(json!({"code": "import time\ntime.sleep(9)"}), "`tool`, \"import time\" …");
        check_name(json!({"code": "é".repeat(61)}), &format!("`tool`, \"{}\" …", "é".repeat(60)));
        check_name(json!({"code": ""}), "`tool`");
        check_name(json!({"code": 5}), "`tool`");
        check_name(json!({"server_params": {}, "server_name": "time"}), "`tool`, \"time\"");
        check_name(json!({}), "`tool`");
    }

    #[test]
    fn an_answer_in_doubt_is_repeated_shorter_than_one_that_is_lost() {
        let repeated = |why| Earlier::new("`tool`", &"x".repeat(7_000), why, Duration::from_secs(61)).text();
        let (lost, doubtful) = (repeated(Why::Cancelled), repeated(Why::InDoubt));
        assert!(lost.starts_with("[Answer of an earlier call, cancelled after 61 s: `tool`]\nxxx"), "{lost}");
        assert!(doubtful.contains("which may not have reached you: `tool`]\nxxx"), "{doubtful}");
        assert_eq!((lost.matches('x').count(), doubtful.matches('x').count()), (6_000, 500));
        assert!(lost.contains("1000 characters left out"), "{lost}");
    }

    #[test]
    fn earlier_answers_come_first_in_the_first_text() {
        let earlier = [Earlier::new("`tool`", "lost", Why::NotTakenUp, Duration::ZERO).text()];
        let repeated =
            "[Answer of an earlier call that waited for approval: `tool`]\nlost\n[End of the earlier answer]";
        let image = ContentBlock::image("AAAA", "image/png");
        for (own, expected) in [
            (vec![ContentBlock::text("own"), image.clone()], format!("{repeated}\n\nown")),
            (vec![image.clone(), ContentBlock::text("")], repeated.to_owned()),
            (vec![image], repeated.to_owned()),
        ] {
            let mut result = CallToolResult::success(own);
            prepend(&earlier, &mut result);
            assert_eq!(result.content[0].as_text().unwrap().text, expected);
            assert!(result.content.len() <= 2);
        }
        let mut result = CallToolResult::success(Vec::new());
        prepend(&[], &mut result);
        assert!(result.content.is_empty());
    }
}
