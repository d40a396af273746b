//! Parameters of an MCP server, as the user wrote them: placeholders unresolved, shape checked.
//!
//! It does not fill placeholders and does not connect; `transport/filled` and `connector` do.

mod fields;
mod oauth_parameters;
mod parameters_error;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use self::fields::ParameterFields;
pub(crate) use self::fields::{kind, wrong_type};
pub(super) use self::oauth_parameters::{GrantKind, LoginMethod};
use self::parameters_error::LONGEST_TIMEOUT_SECS;
pub(crate) use self::parameters_error::ParametersError;
use crate::ground::env::SECRET;
use crate::ground::text::visible::{line, word};
use crate::ground::text::without_user;

/// The placeholder for the workspace.
pub(crate) const WORKSPACE: &str = "${workspace}";

/// The parameters of an MCP server; `${NAME}` placeholders are unfilled.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerParameters {
    /// The way to reach it.
    pub(crate) reach: ServerReach,
    /// The timeout for it to be ready. Default: the connector's.
    pub(crate) timeout: Option<Duration>,
}

/// The way to reach an MCP server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ServerReach {
    /// A program that we start and that speaks MCP on its stdin and stdout.
    Stdio(StdioParameters),
    /// A running server, behind a URL.
    Http(HttpParameters),
}

/// A program that speaks MCP on its stdin and stdout.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StdioParameters {
    /// The program: a name looked up in `PATH`, or a path.
    pub(crate) command: String,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// Variables on top of the default environment of MCP servers.
    pub(crate) env: BTreeMap<String, String>,
    /// Its working directory, absolute or relative to the workspace. Default: the workspace; beside a sandbox an empty
    /// directory of its own.
    pub(crate) cwd: Option<String>,
    /// Whether it may read code and configuration from exposed places. Default: `false`.
    pub(crate) trusts_workspace: bool,
}

/// An MCP server behind a URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpParameters {
    /// The URL of the MCP endpoint.
    pub(crate) url: String,
    /// The transport, if the user named it; else the URL decides when it is filled.
    pub(crate) transport: Option<HttpTransport>,
    /// Headers that every request carries.
    pub(crate) headers: BTreeMap<String, String>,
    /// The login of ipybox to it.
    pub(crate) login: LoginMethod,
}

/// The transport of MCP over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpTransport {
    /// Streamable HTTP, since protocol revision 2025-03-26.
    Streamable,
    /// HTTP+SSE of protocol revision 2024-11-05.
    Sse,
}

const STDIO_KEYS: &[&str] = &["command", "args", "env", "cwd", "type", "timeout", TRUST_WORKSPACE];
/// The key that allows a server to read code and configuration from exposed places.
pub(crate) const TRUST_WORKSPACE: &str = "trust_workspace";
const HTTP_KEYS: &[&str] = &["url", "headers", "type", "timeout", OAUTH];
/// The key that says how ipybox logs in to a server.
const OAUTH: &str = "oauth";

impl ServerParameters {
    /// Reads what the user wrote: `command` makes it a stdio server, `url` an HTTP server.
    ///
    /// An optional key whose value is `null` counts as absent.
    ///
    /// # Errors
    /// [`ParametersError`] for the first thing that is missing, wrong or unknown.
    pub(crate) fn parse(object: &Map<String, Value>) -> Result<Self, ParametersError> {
        let fields = ParameterFields::new(object);
        let reach = match (fields.has("command"), fields.has("url")) {
            (true, true) => return Err(ParametersError::Both),
            (false, false) => {
                return Err(ParametersError::Neither { found: object.keys().cloned().collect() });
            }
            (true, false) => ServerReach::Stdio(parse_stdio(&fields)?),
            (false, true) => ServerReach::Http(parse_http(&fields)?),
        };
        Ok(Self { reach, timeout: parse_timeout(&fields)? })
    }

    /// The object that [`parse`](Self::parse) reads as these parameters.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        match &self.reach {
            ServerReach::Stdio(StdioParameters { command, args, env, cwd, trusts_workspace }) => {
                object.insert("command".to_owned(), json!(command));
                object.insert("args".to_owned(), json!(args));
                object.insert("env".to_owned(), json!(env));
                if let Some(cwd) = cwd {
                    object.insert("cwd".to_owned(), json!(cwd));
                }
                if *trusts_workspace {
                    object.insert(TRUST_WORKSPACE.to_owned(), json!(true));
                }
            }
            ServerReach::Http(HttpParameters { url, transport, headers, login }) => {
                object.insert("url".to_owned(), json!(url));
                object.insert("headers".to_owned(), json!(headers));
                if let Some(transport) = transport {
                    object.insert("type".to_owned(), json!(transport.name()));
                }
                if let Some(login) = login.to_json() {
                    object.insert(OAUTH.to_owned(), login);
                }
            }
        }
        if let Some(timeout) = self.timeout {
            object.insert("timeout".to_owned(), json!(timeout.as_secs_f64()));
        }
        object
    }

    /// The same for people who decide about them, without what is empty.
    pub(crate) fn shown_json(&self) -> Map<String, Value> {
        let mut object = self.to_json();
        let is_empty = |value: &Value| match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        object.retain(|_, value| !is_empty(value));
        object
    }

    /// The names of the kept secrets that they refer to.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let text = Value::Object(self.to_json()).to_string();
        let names = text.split("${").skip(1).filter_map(|part| part.split_once('}'));
        names.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with(SECRET)).collect()
    }

    /// The target of the server, in one line: its command line, or its URL without user name and password.
    pub(crate) fn summary(&self) -> String {
        match &self.reach {
            ServerReach::Stdio(StdioParameters { command, args, .. }) => {
                let words = std::iter::once(command).chain(args);
                words.map(|each| word(each)).collect::<Vec<_>>().join(" ")
            }
            ServerReach::Http(HttpParameters { url, .. }) => without_user(&line(url)),
        }
    }
}

impl std::fmt::Debug for ServerParameters {
    /// The summary only: values of `env` and `headers` may be secrets.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ServerParameters").field(&self.summary()).finish()
    }
}

impl HttpTransport {
    /// The transport guessed from `url`: `/mcp` before `/sse`, as the reference implementation does.
    pub(crate) fn from_url(url: &str) -> Option<Self> {
        if url.contains("/mcp") {
            Some(Self::Streamable)
        } else if url.contains("/sse") {
            Some(Self::Sse)
        } else {
            None
        }
    }

    /// The value of `type` that names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Streamable => "streamable_http",
            Self::Sse => "sse",
        }
    }
}

fn parse_stdio(fields: &ParameterFields<'_>) -> Result<StdioParameters, ParametersError> {
    fields.only(STDIO_KEYS, "a stdio server")?;
    if let Some(found) = fields.text("type")?.filter(|found| found != "stdio") {
        return Err(ParametersError::UnknownTransport { found, expected: "`stdio`" });
    }
    let env = fields.texts_by_name("env")?;
    let refused = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
    if let Some(name) = env.keys().find(refused) {
        return Err(ParametersError::InvalidVariable { name: name.clone() });
    }
    Ok(StdioParameters {
        command: fields.required_text("command")?,
        args: fields.texts("args")?,
        env,
        cwd: fields.text("cwd")?,
        trusts_workspace: fields.flag(TRUST_WORKSPACE)?.unwrap_or_default(),
    })
}

fn parse_http(fields: &ParameterFields<'_>) -> Result<HttpParameters, ParametersError> {
    fields.only(HTTP_KEYS, "an HTTP server")?;
    let transport = match fields.text("type")?.as_deref() {
        None => None,
        Some("streamable_http" | "streamable-http" | "streamableHttp" | "http") => {
            Some(HttpTransport::Streamable)
        }
        Some("sse") => Some(HttpTransport::Sse),
        Some(found) => {
            let expected = "`streamable_http` or `sse`";
            return Err(ParametersError::UnknownTransport { found: found.to_owned(), expected });
        }
    };
    let headers = fields.texts_by_name("headers")?;
    if let Some(name) = headers.keys().find(|name| !is_free_header(name)) {
        return Err(ParametersError::InvalidHeader { name: name.clone() });
    }
    let url = fields.required_text("url")?;
    // Values of placeholders are known only when connecting; then both checks are made again.
    if !url.contains("${") {
        check_url(&url)?;
        if transport.or(HttpTransport::from_url(&url)).is_none() {
            return Err(ParametersError::UndecidedTransport);
        }
    }
    let login = LoginMethod::parse(fields.get(OAUTH))?;
    Ok(HttpParameters { url, transport, headers, login })
}

fn parse_timeout(fields: &ParameterFields<'_>) -> Result<Option<Duration>, ParametersError> {
    let Some(seconds) = fields.number("timeout")? else { return Ok(None) };
    let is_usable = seconds > 0.0 && seconds <= LONGEST_TIMEOUT_SECS;
    let timeout = Duration::try_from_secs_f64(seconds).ok().filter(|timeout| is_usable && !timeout.is_zero());
    timeout.map(Some).ok_or(ParametersError::Timeout { seconds: seconds.to_string() })
}

/// Parses `url`, which must be http or https.
pub(crate) fn check_url(url: &str) -> Result<reqwest::Url, ParametersError> {
    let invalid = |reason: String| ParametersError::InvalidUrl { reason };
    let parsed = reqwest::Url::parse(url).map_err(|error| invalid(error.to_string()))?;
    match parsed.scheme() {
        "http" | "https" => Ok(parsed),
        other => Err(invalid(format!("its scheme is `{other}`"))),
    }
}

/// Whether `name` is a header's name and not one that carries the protocol's own state.
fn is_free_header(name: &str) -> bool {
    const TAKEN: &[&str] =
        &["mcp-session-id", "last-event-id", "host", "content-length", "transfer-encoding"];
    reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| !TAKEN.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<ServerParameters, ParametersError> {
        ServerParameters::parse(value.as_object().unwrap())
    }

    fn check_error(value: Value, expected: &str) {
        let error = parse(value.clone()).unwrap_err().to_string();
        assert_eq!(error.lines().next(), Some(expected), "{value}");
    }

    fn check_transport(value: Value, expected: Option<HttpTransport>) {
        match parse(value.clone()).unwrap().reach {
            ServerReach::Http(parameters) => assert_eq!(parameters.transport, expected, "{value}"),
            ServerReach::Stdio(_) => panic!("{value} is a stdio server"),
        }
    }

    fn check_summary(value: Value, expected: &str) {
        let parameters = parse(value).unwrap();
        assert_eq!(parameters.summary(), expected);
        assert_eq!(ServerParameters::parse(&parameters.to_json()).unwrap(), parameters);
    }

    #[test]
    fn the_kind_of_server_is_decided_by_key() {
        let needed = "a stdio server needs `command`, an HTTP server needs `url`; the parameters have";
        check_error(json!({}), &format!("{needed} no keys"));
        check_error(json!({"mcpServers": {}}), &format!("{needed} `mcpServers`"));
        check_error(json!({"command": null}), &format!("{needed} `command`"));
        let both = "`command` (a stdio server) and `url` (an HTTP server) exclude each other";
        check_error(json!({"command": "a", "url": "http://a/mcp"}), both);
        let parameters = parse(json!({"command": "a", "url": null})).unwrap();
        assert!(matches!(parameters.reach, ServerReach::Stdio(_)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        check_error(json!({"command": 1}), "`command` must be a string, not a number");
        check_error(json!({"command": " "}), "`command` must not be empty");
        check_error(json!({"command": "a", "args": "b"}), "`args` must be a list of strings, not a string");
        check_error(json!({"command": "a", "args": ["b", 2]}), "`args[1]` must be a string, not a number");
        check_error(json!({"command": "a", "env": ["b"]}), "`env` must be an object of strings, not a list");
        check_error(json!({"command": "a", "env": {"B": true}}), "`env.B` must be a string, not a boolean");
        check_error(
            json!({"command": "a", "env": {"B=C": "d"}}),
            "`B=C` cannot be the name of an environment variable",
        );
        check_error(
            json!({"command": "a", "headers": {}}),
            "`headers` is not a parameter of a stdio server; known: command, args, env, cwd, type, timeout, trust_workspace",
        );
        check_error(
            json!({"url": "http://a/mcp", "cwd": "b"}),
            "`cwd` is not a parameter of an HTTP server; known: url, headers, type, timeout, oauth",
        );
        check_error(json!({"command": "a", "timeout": "b"}), "`timeout` must be a number, not a string");
        check_error(
            json!({"command": "a", "timeout": -1}),
            "`timeout` must be more than 0 and at most 86400 seconds, not -1",
        );
        check_error(json!({"command": "a", "type": "sse"}), "`type` must be `stdio` here, not `sse`");
        check_error(
            json!({"url": "http://a/mcp", "type": "stdio"}),
            "`type` must be `streamable_http` or `sse` here, not `stdio`",
        );
    }

    #[test]
    fn urls_and_headers_are_checked() {
        let unknown = "the transport is unknown: the URL contains neither `/mcp` nor `/sse`";
        check_error(json!({"url": "http://localhost/"}), unknown);
        check_error(
            json!({"url": "localhost/mcp"}),
            "`url` is not an http or https URL: relative URL without a base",
        );
        check_error(json!({"url": "ftp://a/mcp"}), "`url` is not an http or https URL: its scheme is `ftp`");
        check_error(
            json!({"url": "http://a/mcp", "headers": {"A B": "c"}}),
            "`A B` cannot be set as a header",
        );
        check_error(
            json!({"url": "http://a/mcp", "headers": {"Mcp-Session-Id": "c"}}),
            "`Mcp-Session-Id` cannot be set as a header",
        );
    }

    #[test]
    fn a_named_transport_is_kept_and_others_wait_for_the_filled_url() {
        let (streamable, sse) = (Some(HttpTransport::Streamable), Some(HttpTransport::Sse));
        check_transport(json!({"url": "http://a/x", "type": "http"}), streamable);
        check_transport(json!({"url": "http://a/x", "type": "streamable-http"}), streamable);
        check_transport(json!({"url": "http://a/mcp", "type": "sse"}), sse);
        check_transport(json!({"url": "${BASE}"}), None);
        assert_eq!(HttpTransport::from_url("http://a/sse/mcp"), streamable);
        assert_eq!(HttpTransport::from_url("http://a/sse"), sse);
    }

    #[test]
    fn a_summary_is_one_line_without_values_of_variables() {
        check_summary(json!({"command": "npx", "args": ["-y", "@a/b"]}), "npx -y @a/b");
        check_summary(
            json!({"command": "sh", "args": ["-c", "echo 'a'\nb", ""], "env": {"K": "v"}, "cwd": "d"}),
            r"sh -c $'echo \'a\'\nb' ''",
        );
        check_summary(
            json!({"url": "https://${HOST}/mcp?k=${K}", "headers": {"Authorization": "Bearer x"}}),
            "https://${HOST}/mcp?k=${K}",
        );
        check_summary(json!({"url": "http://a/", "type": "sse", "timeout": 1.5}), "http://a/");
        check_summary(json!({"url": "http://me:pass@a/mcp"}), "http://…@a/mcp");
    }
}
