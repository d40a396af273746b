//! The sheet that a user is asked at once: one approval request, or a table of several that wait at the same time.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema,
    PrimitiveSchemaDefinition, StringSchema,
};
use serde_json::Value;

use super::question;
use crate::approval::{
    Action, ApprovalRequest, EXPIRED, InBatch, MOST_ROWS, RequestFate, Target, TooLong, UserAnswer,
    named_rows, provenance, table,
};
use crate::ground::text::visible::line;

/// The times that a table is shown again because its rows were not named rightly.
const TRIES: usize = 3;

/// The fields of the form for a table.
const DECISION: &str = "decision";
const ROWS: &str = "rows";

/// The choices for a table and their meaning: those of a single request, for all rows, and one more. An acceptance without a
/// choice means the first, unless rows are named.
const CHOICES: [(&str, SheetChoice); 4] = [
    ("allow once", SheetChoice::All(UserAnswer::Once)),
    ("allow only the rows named below", SheetChoice::Rows),
    ("allow for this session", SheetChoice::All(UserAnswer::Session)),
    ("deny", SheetChoice::All(UserAnswer::No)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SheetChoice {
    All(UserAnswer),
    Rows,
}

/// Requests that are asked together; at least one. Those of one tool follow each other.
pub(in crate::faces::mcp_server) struct QuestionSheet {
    requests: Vec<ApprovalRequest>,
    /// The fault of the rows that the user has named.
    note: Option<String>,
    tries: usize,
    /// The address of a page is a part of the text, since the client does not open it.
    names_pages: bool,
    /// Another place where the requests can be decided, in words.
    elsewhere: Option<String>,
}

/// The effect of an answer.
pub(in crate::faces::mcp_server) enum GivenAnswers {
    /// All requests have their answers.
    All,
    /// None has: it does not say which rows are meant, or a page was not opened. The sheet is to be shown again.
    Unclear(QuestionSheet),
}

/// The state of approval requests after the question.
pub(in crate::faces::mcp_server) enum AskedRequests {
    /// The user answered.
    Answered,
    /// The user did not: it is rejected, or has expired.
    Unanswered,
    /// It can be asked again.
    TakenBack(QuestionSheet),
}

impl QuestionSheet {
    /// The next requests to be asked together, in the order in which they came: those of a batch, or all that are of none.
    pub(in crate::faces::mcp_server) fn next(waiting: &mut VecDeque<ApprovalRequest>) -> Option<Self> {
        // A grant may have answered some meanwhile.
        waiting.retain(|request| !request.is_closed());
        let first = waiting.pop_front()?;
        if !can_be_joined(&first) {
            return Some(Self::of(vec![first]));
        }
        let batch = batch_of(&first).map(str::to_owned);
        let mut joined = vec![first];
        let mut others = VecDeque::new();
        for request in waiting.drain(..) {
            if can_be_joined(&request) && batch_of(&request) == batch.as_deref() {
                joined.push(request)
            } else {
                others.push_back(request)
            }
        }
        // They have come in any order.
        joined.sort_by_key(|request| request.action().batch.as_ref().map(InBatch::index));
        let mut count = joined.len().min(MOST_ROWS);
        while count > 1 && tables(&joined[..count]).is_err() {
            count = count.div_ceil(2);
        }
        waiting.extend(joined.drain(count..));
        waiting.append(&mut others);
        Some(Self::of(grouped(joined)))
    }

    fn of(requests: Vec<ApprovalRequest>) -> Self {
        Self { requests, note: None, tries: 0, names_pages: false, elsewhere: None }
    }

    pub(in crate::faces::mcp_server) fn into_requests(self) -> Vec<ApprovalRequest> {
        self.requests
    }

    /// The decisions about its requests, if they were not by this one's answer.
    pub(in crate::faces::mcp_server) fn fates(&self) -> Vec<RequestFate> {
        self.requests.iter().map(ApprovalRequest::fate).collect()
    }

    /// Whether it can be decided on a page.
    pub(in crate::faces::mcp_server) fn is_for_page(&self) -> bool {
        !self.requests.iter().any(|request| request.action().is_of_client())
    }

    /// Says whether the client is asked to open a page.
    pub(in crate::faces::mcp_server) fn opens_page(&self) -> bool {
        !self.names_pages && matches!(&self.requests[..], [request] if question::is_page(request))
    }

    /// From now on a page is named in the text of a form, for users to open it themselves.
    pub(in crate::faces::mcp_server) fn name_pages(&mut self) {
        self.names_pages = true;
    }

    /// Names a place where the requests can be decided too.
    pub(in crate::faces::mcp_server) fn name_place(&mut self, words: String) {
        self.elsewhere = Some(words);
    }

    /// Whether its answer may be a grant, which may answer others that wait.
    pub(in crate::faces::mcp_server) fn may_give_grant(&self) -> bool {
        matches!(&self.requests[..], [request] if request.proposed_grant().is_some())
    }

    /// Starts the approval timeout of its requests, or starts it anew.
    pub(in crate::faces::mcp_server) fn hand_out(&self) {
        self.requests.iter().for_each(ApprovalRequest::hand_out);
    }

    /// Whether every answer would be too late.
    pub(in crate::faces::mcp_server) fn is_closed(&self) -> bool {
        self.requests.iter().all(ApprovalRequest::is_closed)
    }

    /// Waits until every answer would be too late.
    pub(in crate::faces::mcp_server) async fn closed(&mut self) {
        for request in &mut self.requests {
            request.closed().await;
        }
    }

    /// The form that asks. `round` is how often the client has been asked for one call, if clients limit that.
    pub(in crate::faces::mcp_server) fn form(
        &self,
        round: Option<u32>,
    ) -> Result<ElicitRequestParams, String> {
        let mut form = match &self.requests[..] {
            [request] => question::form(request, round, self.names_pages)?,
            _ => self.table_form(round)?,
        };
        if let (ElicitRequestParams::FormElicitationParams { message, .. }, Some(words)) =
            (&mut form, &self.elsewhere)
        {
            message.push_str(&format!("\n\n{words}"));
        }
        Ok(form)
    }

    fn table_form(&self, round: Option<u32>) -> Result<ElicitRequestParams, String> {
        let mut message = self.text().map_err(|TooLong| "the question is too long".to_owned())?;
        if let Some(note) = &self.note {
            message = format!("{note}\n\n{message}");
        }
        question::add_late_round(&mut message, round);
        let values = CHOICES.map(|(words, _)| words.to_owned()).to_vec();
        let choice = EnumSchema::builder(values)
            .title("Decision")
            .description("For all rows. For this session: any call of these tools of these servers, whatever its arguments")
            .with_default(CHOICES[0].0.to_owned())
            .map_err(|error| error.to_string())?
            .build();
        let rows = StringSchema::new().title("Rows").description(
            "The rows to allow, such as `1-3, 7`; all others are denied. Leave it empty to decide about all.",
        );
        let schema = ElicitationSchema::builder()
            .property(DECISION, PrimitiveSchemaDefinition::Enum(choice))
            .property(ROWS, PrimitiveSchemaDefinition::String(rows));
        let requested_schema = schema.build().map_err(str::to_owned)?;
        Ok(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
    }

    /// Whether several requests are asked.
    pub(in crate::faces::mcp_server) fn is_table(&self) -> bool {
        self.requests.len() > 1
    }

    /// The text of a table, as the user reads it.
    pub(in crate::faces::mcp_server) fn text(&self) -> Result<String, TooLong> {
        Ok(format!("{}\n\n{}", self.heading(), tables(&self.requests)?))
    }

    fn heading(&self) -> String {
        let count = self.requests.len();
        match self.requests.first().and_then(ApprovalRequest::batch) {
            None => {
                format!("Code in the kernel wants to make these {count} calls at the same time. Allow them?")
            }
            Some(batch) => {
                let others = match batch.size() - count.min(batch.size()) {
                    0 => String::new(),
                    others => format!(" of {}; {others} need no answer here", count + others),
                };
                format!(
                    "Code in the kernel wants to make these {count} calls{others}. Allow them?\n\nIt says what they are for: {}",
                    question::title(batch)
                )
            }
        }
    }

    /// Answers its requests by a client's response. An answer that comes too late has no effect: the code has got its refusal.
    pub(in crate::faces::mcp_server) fn give(mut self, result: &ElicitResult) -> GivenAnswers {
        if self.opens_page() && result.action != ElicitationAction::Accept {
            // Clients cancel by themselves what they cannot open.
            self.name_pages();
            return GivenAnswers::Unclear(self);
        }
        if self.requests.len() == 1 {
            for request in self.requests.drain(..) {
                question::give(request, result);
            }
            return GivenAnswers::All;
        }
        let allowed = match chosen(result) {
            SheetChoice::All(answer) => {
                for request in self.requests.drain(..) {
                    request.answer(answer);
                }
                return GivenAnswers::All;
            }
            SheetChoice::Rows => rows(result, self.requests.len()),
        };
        match allowed {
            Ok(allowed) => {
                for (number, request) in (1..).zip(self.requests.drain(..)) {
                    let answer = if allowed.contains(&number) { UserAnswer::Once } else { UserAnswer::No };
                    request.answer(answer);
                }
                GivenAnswers::All
            }
            Err(_) if self.tries + 1 >= TRIES => {
                self.reject();
                GivenAnswers::All
            }
            Err(why) => {
                self.note = Some(why);
                self.tries += 1;
                GivenAnswers::Unclear(self)
            }
        }
    }

    /// Rejects all requests.
    pub(in crate::faces::mcp_server) fn reject(self) {
        for request in self.requests {
            request.reject();
        }
    }
}

/// Tells whether a request may be asked together with others. Logins and forms are asked alone. So is what ipybox does for
/// its client, but for a batch of it: several packages of one installation.
fn can_be_joined(request: &ApprovalRequest) -> bool {
    let action = request.action();
    !action.is_of_client() && (*request.target() != Target::Host || action.batch.is_some())
}

fn batch_of(request: &ApprovalRequest) -> Option<&str> {
    request.batch().map(crate::approval::ApprovalBatch::id)
}

/// Whether two requests are rows of one table.
fn is_of_one_tool(one: &Action, other: &Action) -> bool {
    one.server_name == other.server_name
        && one.tool_name == other.tool_name
        && one.target == other.target
        && one.definition == other.definition
        && one.changes == other.changes
        && one.annotations == other.annotations
}

/// The requests, those of one tool after each other.
fn grouped(requests: Vec<ApprovalRequest>) -> Vec<ApprovalRequest> {
    let mut groups: Vec<Vec<ApprovalRequest>> = Vec::new();
    for request in requests {
        let group = groups.iter_mut().find(|group| is_of_one_tool(group[0].action(), request.action()));
        match group {
            Some(group) => group.push(request),
            None => groups.push(vec![request]),
        }
    }
    groups.into_iter().flatten().collect()
}

/// A table for each tool, and what is known of it. The numbers of the rows run on.
fn tables(requests: &[ApprovalRequest]) -> Result<String, TooLong> {
    let mut text = String::new();
    let mut rest = requests;
    let mut number = 1;
    while let [first, ..] = rest {
        let is_other = |request: &ApprovalRequest| !is_of_one_tool(first.action(), request.action());
        let end = rest.iter().position(is_other).unwrap_or(rest.len());
        let (group, others) = rest.split_at(end);
        let actions: Vec<&Action> = group.iter().map(ApprovalRequest::action).collect();
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        let server = line(first.server_name());
        let tool = line(first.tool_name());
        let _infallible = write!(text, "{server}.{tool}\n{}", table(&actions, number)?.trim_end());
        text.push_str(&provenance(&actions, Some(number)));
        text.push_str(&question::facts(first));
        (rest, number) = (others, number + end);
    }
    Ok(text)
}

/// The user's choice for a table. Everything but a clear yes is a no.
fn chosen(result: &ElicitResult) -> SheetChoice {
    const NO: SheetChoice = SheetChoice::All(UserAnswer::No);
    if result.action != ElicitationAction::Accept {
        return NO;
    }
    let content = match &result.content {
        None | Some(Value::Null) => return CHOICES[0].1,
        Some(Value::Object(content)) => content,
        Some(_) => return NO,
    };
    let choice = match content.get(DECISION) {
        Some(chosen) => {
            CHOICES.iter().find(|(words, _)| chosen.as_str() == Some(words)).map_or(NO, |known| known.1)
        }
        None if content.keys().all(|name| name == ROWS) => CHOICES[0].1,
        None => NO,
    };
    // Whoever names rows does not mean all of them.
    let names_rows =
        content.get(ROWS).is_some_and(|rows| rows.as_str().is_none_or(|rows| !rows.trim().is_empty()));
    if choice != NO && names_rows { SheetChoice::Rows } else { choice }
}

/// The rows that the user has named.
///
/// # Errors
/// It is not clear which ones; the text is for the user.
fn rows(result: &ElicitResult, count: usize) -> Result<BTreeSet<usize>, String> {
    let text = result.content.as_ref().and_then(|content| content.get(ROWS)?.as_str()).unwrap_or_default();
    named_rows(text, count)
}

/// The end of requests that this client has not answered: maybe somebody else has.
pub(in crate::faces::mcp_server) fn ended(fates: &[RequestFate]) -> AskedRequests {
    let is_expired = fates.iter().any(|fate| fate.get() == Some(&EXPIRED));
    if is_expired { AskedRequests::Unanswered } else { AskedRequests::Answered }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::approval::{ELICITATION, OURSELVES};

    #[test]
    fn only_a_clear_yes_is_one_and_named_rows_limit_it() {
        const ONCE: SheetChoice = SheetChoice::All(UserAnswer::Once);
        const NO: SheetChoice = SheetChoice::All(UserAnswer::No);
        let check = |result: Value, expected: SheetChoice| {
            let parsed: ElicitResult = serde_json::from_value(result.clone()).unwrap();
            assert_eq!(chosen(&parsed), expected, "{result}");
        };
        let accept = |content: Value| json!({"action": "accept", "content": content});
        check(json!({"action": "accept"}), ONCE);
        check(accept(json!({})), ONCE);
        check(accept(json!({"rows": " "})), ONCE);
        check(accept(json!({"decision": "allow once", "rows": ""})), ONCE);
        check(accept(json!({"decision": "allow for this session"})), SheetChoice::All(UserAnswer::Session));
        check(accept(json!({"rows": "1"})), SheetChoice::Rows);
        check(accept(json!({"decision": "allow once", "rows": "1"})), SheetChoice::Rows);
        check(accept(json!({"decision": "allow once", "rows": 1})), SheetChoice::Rows);
        check(accept(json!({"decision": "allow only the rows named below"})), SheetChoice::Rows);
        check(accept(json!({"decision": "deny", "rows": "1"})), NO);
        check(accept(json!({"decision": "always allow"})), NO);
        check(accept(json!({"decision": null})), NO);
        check(accept(json!({"other": 1})), NO);
        check(accept(json!("allow once")), NO);
        check(json!({"action": "decline", "content": {"decision": "allow once"}}), NO);
    }

    fn request(server: &str, tool: &str, number: usize) -> ApprovalRequest {
        let arguments = serde_json::Map::from_iter([("n".to_owned(), json!(number))]);
        let target = if server == OURSELVES { Target::Host } else { Target::Command("c".to_owned()) };
        ApprovalRequest::for_tests(Action::new(server.to_owned(), tool.to_owned(), arguments, target))
    }

    fn sheets(requests: Vec<ApprovalRequest>) -> Vec<Vec<String>> {
        let mut waiting = VecDeque::from(requests);
        let words = |sheet: QuestionSheet| sheet.into_requests().iter().map(ToString::to_string).collect();
        std::iter::from_fn(|| QuestionSheet::next(&mut waiting)).map(words).collect()
    }

    #[test]
    fn what_waits_is_asked_together_by_tools_and_some_things_alone() {
        let waiting = vec![
            request("a", "t", 1),
            request(OURSELVES, "install_package", 2),
            request("b", "t", 3),
            request("a", ELICITATION, 4),
            request("a", "t", 5),
        ];
        assert_eq!(
            sheets(waiting),
            [
                vec!["a.t(n=1)", "a.t(n=5)", "b.t(n=3)"],
                vec!["ipybox.install_package(n=2)"],
                vec!["a.elicitation/create(n=4)"],
            ]
        );
        let many = (0..600).map(|number| request("a", "t", number)).collect();
        let lengths: Vec<usize> = sheets(many).iter().map(Vec::len).collect();
        assert_eq!(lengths, [250, 250, 100]);
    }
}
