//! An answer that may not have reached the client, as the next answer repeats it.

use std::path::PathBuf;
use std::time::Duration;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde_json::Value;

use crate::kernels::output::{OutputFile, excerpt};
use crate::session::Session;

/// The number of characters of a lost answer that are repeated: the output of a cell with its default limit, and the
/// text around it.
const LOST_CHARS: usize = 6_000;

/// The number of characters of an answer that are repeated if its client has probably given up, but may have it.
const DOUBTFUL_CHARS: usize = 500;

/// The number of characters that are repeated of an answer that the model requests again: there may be several.
const AGAIN_CHARS: usize = 2_000;

/// The times that an answer is repeated with answers that may be lost as well.
const MOST_REPEATS: u32 = 2;

/// The number of characters of a call's code or name that are shown.
const SUBJECT_CHARS: usize = 60;

/// Why an answer may not have reached the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::faces::mcp_server) enum UndeliveredReason {
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
    /// The client has sent another call meanwhile, as one does that has given up without a cancellation.
    Overtaken,
    /// The client may have given up without a cancellation, but probably has not.
    InDoubt,
}

/// An answer to send with the next one.
#[derive(Debug)]
pub(super) struct RepeatedAnswer {
    heading: String,
    excerpt: String,
    /// The number of characters that the next answer repeats; `None` for a line that says where the answer is.
    shown: Option<usize>,
    /// Whether the call has failed.
    pub(super) has_failed: bool,
    /// The file with the whole answer.
    file: Option<PathBuf>,
    /// Why there is no such file.
    trouble: String,
    /// The times that it was sent with an answer that may itself be lost.
    times_repeated: u32,
}

/// An answer that no request will fetch.
pub(in crate::faces::mcp_server) struct UnfetchedAnswer {
    pub(in crate::faces::mcp_server) call: String,
    pub(in crate::faces::mcp_server) text: String,
    pub(in crate::faces::mcp_server) why: UndeliveredReason,
    pub(in crate::faces::mcp_server) after: Duration,
}

impl RepeatedAnswer {
    /// The answer to `call`, which came `after` this time. Of a long answer only the excerpt is kept.
    pub(super) fn new(call: &str, text: &str, why: UndeliveredReason, after: Duration) -> Self {
        let seconds = after.as_secs();
        let heading = match why {
            UndeliveredReason::Sent => format!("Answer of an earlier call, after {seconds} s: {call}"),
            UndeliveredReason::Cancelled => {
                format!("Answer of an earlier call, cancelled after {seconds} s: {call}")
            }
            UndeliveredReason::ClientGone => format!(
                "Answer of an earlier call, whose client was gone before it ended, after {seconds} s: {call}"
            ),
            UndeliveredReason::NotFetched => {
                format!("Answer of an earlier call, which became a task: {call}")
            }
            UndeliveredReason::NotTakenUp => {
                format!("Answer of an earlier call that waited for approval: {call}")
            }
            UndeliveredReason::Overtaken | UndeliveredReason::InDoubt => {
                format!(
                    "Answer of an earlier call, after {seconds} s, which may not have reached you: {call}"
                )
            }
        };
        let shown = shown_chars(why);
        let excerpt = excerpt(text, shown.unwrap_or(AGAIN_CHARS));
        let trouble = String::new();
        Self { heading, excerpt, shown, has_failed: false, file: None, trouble, times_repeated: 0 }
    }

    /// The same, but what the next answer does not repeat is in a file.
    pub(super) async fn with_file(
        call: &str,
        text: &str,
        why: UndeliveredReason,
        after: Duration,
        session: &Session,
    ) -> Self {
        let mut earlier = Self::new(call, text, why, after);
        if earlier.shown.is_none_or(|shown| text.chars().nth(shown).is_some()) {
            match OutputFile::keep(session.workspace(), text).await {
                Ok(path) => earlier.file = Some(path),
                Err(error) => earlier.trouble = format!("; the whole could not be saved: {error}"),
            }
        }
        earlier
    }

    /// Says that it may not have reached the client; in short if that is not likely.
    pub(super) fn doubt(&mut self, in_short: bool) {
        if self.is_line() {
            return;
        }
        self.heading = self.heading.replacen(": ", ", which may not have reached you: ", 1);
        if in_short {
            self.excerpt = excerpt(&self.excerpt, DOUBTFUL_CHARS);
        }
    }

    /// Notes that its client has not got it, which was in doubt.
    pub(super) fn lose(&mut self) {
        self.shown.get_or_insert(AGAIN_CHARS);
    }

    /// Whether the next answer only says where it is.
    pub(super) fn is_line(&self) -> bool {
        self.shown.is_none()
    }

    /// Whether it is repeated once more after an answer that may be lost has repeated it. A line is not: two answers in
    /// doubt are rarely both lost.
    pub(super) fn is_to_be_repeated(&mut self) -> bool {
        self.times_repeated += 1;
        !self.is_line() && self.times_repeated < MOST_REPEATS
    }

    /// The text for the next answer.
    pub(super) fn text(&self) -> String {
        if self.shown.is_some() { self.with(&self.excerpt) } else { self.line() }
    }

    /// One line that says how the call ended, and where its answer is: the file, unless code has removed it.
    fn line(&self) -> String {
        let end = if self.has_failed { "it failed" } else { "it succeeded" };
        let place = match self.file.as_ref().filter(|file| file.is_file()) {
            Some(file) => format!("; its answer is in {}", file.display()),
            None => "; a cell without code repeats its answer".to_owned(),
        };
        format!("[{}; {end}{place}]", self.heading)
    }

    /// The text for an answer to a recall.
    pub(super) fn short_text(&self) -> String {
        self.with(&excerpt(&self.excerpt, AGAIN_CHARS))
    }

    fn with(&self, text: &str) -> String {
        let rest = match &self.file {
            Some(file) => format!("; the whole is in {}", file.display()),
            None => self.trouble.clone(),
        };
        format!("[{}]\n{text}\n[End of the earlier answer{rest}]", self.heading)
    }
}

fn shown_chars(why: UndeliveredReason) -> Option<usize> {
    match why {
        UndeliveredReason::Sent
        | UndeliveredReason::Cancelled
        | UndeliveredReason::NotTakenUp
        | UndeliveredReason::NotFetched
        | UndeliveredReason::ClientGone => Some(LOST_CHARS),
        UndeliveredReason::Overtaken => Some(DOUBTFUL_CHARS),
        UndeliveredReason::InDoubt => None,
    }
}

/// The name of a call: its tool, and the beginning of its code, or its server or package.
pub(in crate::faces::mcp_server) fn name_of(tool: &str, arguments: Option<&JsonObject>) -> String {
    let text_of = |value: &Value| match value {
        Value::Array(items) => Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        value => value.as_str().map(str::to_owned),
    };
    let subject =
        ["code", "server_name", "package_name"].iter().find_map(|name| text_of(arguments?.get(*name)?));
    let subject = subject.as_deref();
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
pub(in crate::faces::mcp_server) fn text_of(result: &CallToolResult) -> String {
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
        check_name(json!({"package_name": ["six", "rich"]}), "`tool`, \"six rich\"");
        check_name(json!({}), "`tool`");
    }

    #[test]
    fn an_answer_that_probably_arrived_is_named_in_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("0a1b2c3d.txt");
        std::fs::write(&file, "").unwrap();
        let text = format!("first\n{}", "x".repeat(7_000));
        let mut earlier =
            RepeatedAnswer::new("`tool`", &text, UndeliveredReason::InDoubt, Duration::from_secs(171));
        earlier.file = Some(file.clone());
        let begin = "[Answer of an earlier call, after 171 s, which may not have reached you: `tool`; it";
        assert_eq!(earlier.text(), format!("{begin} succeeded; its answer is in {}]", file.display()));
        let again = earlier.short_text();
        assert!(again.contains("]\nfirst\nxxx") && again.chars().count() < AGAIN_CHARS + 300, "{again}");
        std::fs::remove_file(file).unwrap();
        earlier.has_failed = true;
        assert_eq!(earlier.text(), format!("{begin} failed; a cell without code repeats its answer]"));
    }

    #[test]
    fn an_answer_that_was_overtaken_is_repeated_shorter_than_one_that_is_lost() {
        let text = "x".repeat(7_000);
        let repeated = |why| RepeatedAnswer::new("`tool`", &text, why, Duration::from_secs(61)).text();
        let (lost, doubtful) =
            (repeated(UndeliveredReason::Cancelled), repeated(UndeliveredReason::Overtaken));
        assert!(lost.starts_with("[Answer of an earlier call, cancelled after 61 s: `tool`]\nxxx"), "{lost}");
        assert!(doubtful.contains("which may not have reached you: `tool`]\nxxx"), "{doubtful}");
        assert_eq!((lost.matches('x').count(), doubtful.matches('x').count()), (6_000, 500));
        assert!(lost.contains("1000 characters left out"), "{lost}");
    }

    #[test]
    fn earlier_answers_come_first_in_the_first_text() {
        let earlier =
            [RepeatedAnswer::new("`tool`", "lost", UndeliveredReason::NotTakenUp, Duration::ZERO).text()];
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
