//! An approval request as an elicitation form, and the client's response to it: pure.

use std::borrow::Cow;
use std::fmt::Write as _;

use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema,
    PrimitiveSchemaDefinition,
};
use serde_json::{Map, Value};

use crate::approval::provenance::{Label, UnknownLabel};
use crate::approval::{
    ApprovalBatch, ApprovalRequest, ELICITATION, LOGIN, OURSELVES, Target, TooLong, ToolAnnotations,
    UserAnswer, grant_choice, grant_offer, provenance, question, question_of_ours,
};
use crate::connections::mcp_client::TRUST_WORKSPACE;
use crate::ground::text::shortened;
use crate::ground::text::visible::{PythonLiteral, TextUse, line};

/// The number of questions that the official SDKs let a server ask during one call, by default (MCP 2026-07-28).
const CLIENTS_ROUNDS: u32 = 10;
/// From this round on the form mentions the limit.
const LATE_ROUND: u32 = 7;

/// The greatest length of a call, in bytes, that is shown whole at a prompt, where there is room to scroll.
const PROMPT_BYTES: usize = 32 * 1024;

/// The part of a batch's title that is shown.
const TITLE_CHARS: usize = 300;

/// The form's one field.
const FIELD: &str = "decision";

/// The field for what the data of a registered server is, which may be left out.
const LABEL: &str = "label";
const LABEL_HELP: &str = "Optional, for questions and policies: untrusted if strangers write there, confidential if it must \
     not be passed on. The label of a policy goes before";

/// The field of a form that names a page, and its one choice.
const PAGE: &str = "page";
const OPENED: &str = "it is open";

/// The choices and their meaning. An acceptance without a choice means the first.
const CHOICES: [(&str, UserAnswer); 4] = [
    ("allow once", UserAnswer::Once),
    ("allow for this session", UserAnswer::Session),
    ("always allow", UserAnswer::Always),
    ("deny", UserAnswer::No),
];

/// The choices for a request, with the proposed grant, if there is one.
fn choices(request: &ApprovalRequest) -> Vec<(Cow<'static, str>, UserAnswer)> {
    let mut choices = CHOICES.map(|(words, answer)| (Cow::Borrowed(words), answer)).to_vec();
    if let Some(grant) = request.proposed_grant() {
        choices.insert(1, (grant_choice(grant).into(), UserAnswer::Grant));
    }
    choices
}

/// Says whether the user is to visit a page, for a login or a server's question.
pub(super) fn is_page(request: &ApprovalRequest) -> bool {
    let is_of_client = request.action().is_of_client();
    is_of_client && request.tool_args().get("url").is_some_and(Value::is_string)
}

/// The form that asks for an answer.
///
/// `round` is how often the client has been asked for one call, if clients limit that. With `names_pages`, a page is named in
/// the text of a form; otherwise the client is asked to open it.
pub(super) fn form(
    request: &ApprovalRequest,
    round: Option<u32>,
    names_pages: bool,
) -> Result<ElicitRequestParams, String> {
    match login(request).or_else(|| of_server(request)) {
        Some(page) if names_pages => return in_words(page),
        Some(of_server) => return Ok(of_server),
        None => {}
    }
    let values = choices(request).into_iter().map(|(words, _)| words.into_owned()).collect();
    let choice = EnumSchema::builder(values)
        .title("Decision")
        .description(scope(request))
        .with_default(CHOICES[0].0.to_owned())
        .map_err(|error| error.to_string())?
        .build();
    let mut schema = ElicitationSchema::builder().property(FIELD, PrimitiveSchemaDefinition::Enum(choice));
    if request.action().registers().is_some() {
        let labels = EnumSchema::builder(Label::ALL.map(|label| label.word().to_owned()).to_vec())
            .title("Its data")
            .description(LABEL_HELP)
            .build();
        schema = schema.property(LABEL, PrimitiveSchemaDefinition::Enum(labels));
    }
    let message = question(request.action()).map(|call| text(request, &call));
    let mut message = message.map_err(|TooLong| "the question is too long".to_owned())?;
    add_late_round(&mut message, round);
    let requested_schema = schema.build().map_err(str::to_owned)?;
    Ok(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// Mentions the limit of rounds if it is near.
pub(super) fn add_late_round(message: &mut String, round: Option<u32>) {
    if let Some(round) = round.filter(|round| *round >= LATE_ROUND) {
        let _infallible = write!(
            message,
            "\n\nThis call has asked {round} times. Many MCP clients give it up after {CLIENTS_ROUNDS}: an answer that \
             holds for the session saves questions."
        );
    }
}

/// The purpose of a batch, as code states it.
pub(super) fn title(batch: &ApprovalBatch) -> String {
    PythonLiteral(&shortened(batch.title(), TITLE_CHARS), TextUse::Text).to_string()
}

/// The page of a login, which the user is sent to; `None` if it is another request.
fn login(request: &ApprovalRequest) -> Option<ElicitRequestParams> {
    if (request.server_name(), request.tool_name()) != (OURSELVES, LOGIN) {
        return None;
    }
    let text = |key: &str| request.tool_args().get(key).and_then(Value::as_str);
    let message = format!(
        "The MCP server `{}` asks for a login. Open the page of its authorization server?",
        line(text("server_name")?)
    );
    let elicitation_id = uuid::Uuid::new_v4().to_string();
    let url = text("url")?.to_owned();
    Some(ElicitRequestParams::UrlElicitationParams { meta: None, message, url, elicitation_id })
}

/// The same question with the address of its page in the text, for clients that open none.
fn in_words(page: ElicitRequestParams) -> Result<ElicitRequestParams, String> {
    let ElicitRequestParams::UrlElicitationParams { message, url, .. } = page else { return Ok(page) };
    let message =
        format!("{message}\n\nTo do so, open this address in a browser, and accept here:\n{}", line(&url));
    // Codex accepts a form without fields by itself where nobody can be asked, and declines others.
    let choice = EnumSchema::builder(vec![OPENED.to_owned()])
        .title("Page")
        .with_default(OPENED.to_owned())
        .map_err(|error| error.to_string())?
        .build();
    let schema = ElicitationSchema::builder().property(PAGE, PrimitiveSchemaDefinition::Enum(choice));
    let requested_schema = schema.build().map_err(str::to_owned)?;
    Ok(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// The question of a server to the user, with its name; `None` if it is another request.
fn of_server(request: &ApprovalRequest) -> Option<ElicitRequestParams> {
    if request.tool_name() != ELICITATION {
        return None;
    }
    let arguments = request.tool_args();
    let message = arguments.get("message").and_then(Value::as_str)?;
    let server = line(request.server_name());
    let message = format!("The MCP server `{server}` asks:\n\n{message}");
    match arguments.get("url").and_then(Value::as_str) {
        Some(url) => Some(ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message,
            url: url.to_owned(),
            elicitation_id: uuid::Uuid::new_v4().to_string(),
        }),
        None => {
            let requested_schema = serde_json::from_value(arguments.get("requestedSchema")?.clone()).ok()?;
            Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
        }
    }
}

/// Answers `request` by a client's response. Returns whether the answer came in time.
pub(super) fn give(request: ApprovalRequest, result: &ElicitResult) -> bool {
    let is_accepted = result.action == ElicitationAction::Accept;
    if is_page(&request) {
        return if is_accepted { request.accept_with(Map::new()) } else { request.reject() };
    }
    match (request.tool_name() == ELICITATION, is_accepted) {
        (true, true) => {
            let content = result.content.as_ref().and_then(Value::as_object);
            request.accept_with(content.cloned().unwrap_or_default())
        }
        (true, false) => request.reject(),
        (false, _) => {
            let answer = answer(&choices(&request), result);
            match label(&request, result) {
                Ok(label) => request.answer_with_label(answer, label),
                Err(error) => {
                    tracing::warn!(%error, "the answer to a registration");
                    request.reject()
                }
            }
        }
    }
}

/// The label in a client's response to a registration.
fn label(request: &ApprovalRequest, result: &ElicitResult) -> Result<Option<Label>, UnknownLabel> {
    let given = result.content.as_ref().and_then(|content| content.get(LABEL));
    match given.filter(|_| request.action().registers().is_some()) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) if word.is_empty() => Ok(None),
        Some(Value::String(word)) => word.parse().map(Some),
        Some(other) => other.to_string().parse().map(Some),
    }
}

/// The answer in a client's response. Everything but a clear yes is a no.
fn answer(choices: &[(Cow<'static, str>, UserAnswer)], result: &ElicitResult) -> UserAnswer {
    if result.action != ElicitationAction::Accept {
        return UserAnswer::No;
    }
    let chosen = match &result.content {
        None | Some(Value::Null) => None,
        Some(content) => match content.get(FIELD) {
            Some(chosen) => Some(chosen),
            None if content.as_object().is_some_and(Map::is_empty) => None,
            None => return UserAnswer::No,
        },
    };
    let Some(chosen) = chosen else { return CHOICES[0].1 };
    let known = choices.iter().find(|(words, _)| chosen.as_str() == Some(words));
    known.map_or(UserAnswer::No, |(_, answer)| *answer)
}

/// The text for a person at a prompt: with all of the arguments, unless they are very long.
pub(in crate::faces::mcp_server) fn for_prompt(request: &ApprovalRequest) -> Result<String, TooLong> {
    let whole = request.to_string();
    let call = if whole.len() <= PROMPT_BYTES { whole } else { question(request.action())? };
    Ok(format!("{}\n\n{}", text(request, &call), scope(request)))
}

/// The text that the user reads, with the call as it is shown.
fn text(request: &ApprovalRequest, call: &str) -> String {
    let of_ours = question_of_ours(request.server_name(), request.tool_name());
    let mut text = of_ours.unwrap_or("Code in the kernel wants to call this tool. Allow it?").to_owned();
    let _infallible = write!(text, "\n\n{call}");
    if let Some(batch) = request.batch() {
        let _infallible = write!(text, "\n\nThe code says what it is for: {}", title(batch));
    }
    text.push_str(&provenance(&[request.action()], None));
    text.push_str(&facts(request));
    text
}

/// The facts beside the arguments.
pub(super) fn facts(request: &ApprovalRequest) -> String {
    let mut text = String::new();
    if request.server_name() == OURSELVES && request.tool_args().values().any(trusts_workspace) {
        text.push_str(
            "\n\n`trust_workspace`: the server may take its program and its settings from where code in the sandbox can \
             write. That code can then run programs on this machine.",
        );
    }
    match request.target() {
        Target::Command(command) => {
            let _infallible = write!(text, "\n\nThe server is a program on this machine: {}", line(command));
        }
        Target::Url(url) => {
            let _infallible = write!(text, "\n\nThe server is behind a URL: {}", line(url));
        }
        Target::Kernel | Target::Host => {}
    }
    if let Some(changes) = request.changes() {
        let _infallible =
            write!(text, "\n\nSince you allowed this tool, its server has changed it:\n{changes}");
    }
    let hints = request.annotations().map(hints).unwrap_or_default();
    if !hints.is_empty() {
        let _infallible = write!(text, "\n\nThe server says of the tool: {hints}. Nothing enforces that.");
    }
    text.push_str(&grant_offer(request));
    text
}

/// Whether the parameters of a server set `trust_workspace`, in any of their forms.
fn trusts_workspace(parameters: &Value) -> bool {
    match parameters {
        Value::Object(members) => {
            members.get(TRUST_WORKSPACE) == Some(&Value::Bool(true)) || members.values().any(trusts_workspace)
        }
        Value::Array(items) => items.iter().any(trusts_workspace),
        _ => false,
    }
}

/// The actions that a standing answer covers.
pub(in crate::faces::mcp_server) fn scope(request: &ApprovalRequest) -> &'static str {
    match request.target() {
        Target::Kernel => "Longer than once: the very same command",
        Target::Host => "Longer than once: the very same request",
        _ => "Longer than once: any call of this tool of this server, whatever its arguments",
    }
}

fn hints(annotations: &ToolAnnotations) -> String {
    let hint = |value: Option<bool>, yes: &'static str, no: &'static str| {
        value.map(|is_so| if is_so { yes } else { no })
    };
    let hints = [
        hint(annotations.read_only, "it only reads", "it changes something"),
        // These hints have no meaning for a read-only tool (MCP, `ToolAnnotations`).
        hint(annotations.destructive, "it may destroy something", "it destroys nothing")
            .filter(|_| annotations.read_only != Some(true)),
        hint(annotations.idempotent, "calling it twice is calling it once", "calling it twice does more")
            .filter(|_| annotations.read_only != Some(true)),
        hint(annotations.open_world, "it reaches the outside world", "it stays in its own domain"),
    ];
    hints.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::approval::Action;

    fn request(server: &str, tool: &str, arguments: Value, target: Target) -> ApprovalRequest {
        let Value::Object(tool_args) = arguments else { panic!("an object") };
        let annotations =
            ToolAnnotations { read_only: Some(false), destructive: Some(true), ..ToolAnnotations::default() };
        let annotations = (server != OURSELVES).then_some(annotations);
        let (server_name, tool_name) = (server.to_owned(), tool.to_owned());
        ApprovalRequest::for_tests(Action {
            annotations,
            ..Action::new(server_name, tool_name, tool_args, target)
        })
    }

    fn shown(request: &ApprovalRequest) -> String {
        text(request, &question(request.action()).unwrap())
    }

    #[test]
    fn a_prompt_shows_all_arguments_unless_they_are_very_long() {
        let text = |length: usize| {
            let arguments = json!({"body": "x".repeat(length)});
            for_prompt(&request("mail", "send", arguments, Target::Command("m".to_owned()))).unwrap()
        };
        assert!(text(20_000).contains(&"x".repeat(20_000)));
        assert!(!text(100_000).contains(&"x".repeat(20_000)) && text(100_000).contains("Longer than once"));
    }

    #[test]
    fn a_question_shows_the_call_what_stands_behind_it_and_the_hints() {
        let target = Target::Command("npx -y server".to_owned());
        assert_eq!(
            shown(&request("mail", "send", json!({"to": "a@b"}), target)),
            "Code in the kernel wants to call this tool. Allow it?\n\nmail.send(to='a@b')\n\n\
             The server is a program on this machine: npx -y server\n\n\
             The server says of the tool: it changes something, it may destroy something. Nothing enforces that."
        );
        assert_eq!(
            shown(&request(OURSELVES, "shell", json!({"cmd": "rm -r x"}), Target::Kernel)),
            "Run this shell command in the kernel?\n\nipybox.shell(cmd='rm -r x')"
        );
    }

    #[test]
    fn trust_in_the_workspace_is_explained() {
        let text = |trust: Value| {
            let parameters = json!({"mcpServers": {"a": {"command": "a", "trust_workspace": trust}}});
            let arguments = json!({"server_name": "a", "server_params": parameters});
            shown(&request(OURSELVES, "register_mcp_server", arguments, Target::Host))
        };
        assert!(text(json!(true)).contains("can then run programs on this machine"));
        assert!(!text(json!(false)).contains("on this machine"));
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let check = |result: Value, expected: UserAnswer| {
            let parsed: ElicitResult = serde_json::from_value(result.clone()).unwrap();
            let choices = choices(&request("s", "t", json!({}), Target::Host));
            assert_eq!(answer(&choices, &parsed), expected, "{result}");
        };
        check(json!({"action": "accept", "content": {"decision": "allow once"}}), UserAnswer::Once);
        check(
            json!({"action": "accept", "content": {"decision": "allow for this session"}}),
            UserAnswer::Session,
        );
        check(json!({"action": "accept", "content": {"decision": "always allow"}}), UserAnswer::Always);
        check(json!({"action": "accept", "content": {"decision": "deny"}}), UserAnswer::No);
        check(json!({"action": "accept", "content": {}}), UserAnswer::Once);
        check(json!({"action": "accept"}), UserAnswer::Once);
        check(json!({"action": "accept", "content": {"decision": "yes"}}), UserAnswer::No);
        check(json!({"action": "accept", "content": {"decision": null}}), UserAnswer::No);
        check(json!({"action": "accept", "content": {"other": 1}}), UserAnswer::No);
        check(json!({"action": "accept", "content": "allow once"}), UserAnswer::No);
        check(json!({"action": "decline", "content": {"decision": "allow once"}}), UserAnswer::No);
        check(json!({"action": "cancel"}), UserAnswer::No);
    }

    #[test]
    fn the_form_is_what_clients_expect() {
        let request = request("s", "t", json!({}), Target::Host);
        let late = serde_json::to_value(form(&request, Some(8), false).unwrap()).unwrap();
        assert!(late["message"].as_str().unwrap().contains("asked 8 times"));
        let form = form(&request, None, false).unwrap();
        let form = serde_json::to_value(form).unwrap();
        assert_eq!(form["mode"], "form");
        assert_eq!(form["requestedSchema"]["type"], "object");
        let field = &form["requestedSchema"]["properties"]["decision"];
        assert_eq!(field["type"], "string");
        assert_eq!(field["default"], "allow once");
        assert_eq!(field["enum"].as_array().unwrap().len(), 4);
    }
}
