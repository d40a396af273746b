//! Secrets that stand in the parameters of a server in clear text. Pure.
//!
//! They are known by the names beside them (variables, headers, options, parts of URLs), and by the beginnings that
//! services give their tokens. A secret without either is not found.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::connections::mcp_client::{HttpParameters, ServerParameters, ServerReach, StdioParameters};
use crate::ground::env::{is_for_a_secret, is_variable_name};

/// A secret in a text: what is shown of it, and its place.
pub(crate) struct FoundSecret<'a> {
    /// A name for it, such as `GITHUB_TOKEN`, `Authorization` or `args.2`.
    pub(crate) key: &'a str,
    /// The secret.
    pub(crate) value: &'a str,
}

/// Returns the placeholder that replaces a secret.
pub(crate) type SecretReplacer<'a> = &'a mut dyn FnMut(FoundSecret<'_>) -> String;

/// Tokens that are known by their beginnings.
static TOKENS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let patterns = [
        r"gh[opusr]_[A-Za-z0-9]{16,}",
        r"github_pat_[A-Za-z0-9_]{16,}",
        r"glpat-[A-Za-z0-9_.-]{16,}",
        r"sk-[A-Za-z0-9_-]{16,}",
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"xapp-[A-Za-z0-9-]{10,}",
        r"(?:AKIA|ASIA)[A-Z0-9]{16}",
        r"AIza[A-Za-z0-9_-]{30,}",
        r"ya29\.[A-Za-z0-9_-]{16,}",
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        r"npm_[A-Za-z0-9]{30,}",
        r"pypi-[A-Za-z0-9_-]{30,}",
        r"(?:hf|gsk|ntn|sbp|r8|glsa|figd|lin_api|dop_v1|shpat|whsec)_[A-Za-z0-9_-]{16,}",
        r"(?:tvly|ctx7sk|fc|pplx|nvapi|napi|pat|dckr_pat)-[A-Za-z0-9_-]{20,}",
        r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        r"secret_[A-Za-z0-9]{30,}",
        r"BSA[A-Za-z0-9_-]{24,}",
    ];
    // Without the tables of Unicode, which the crate has not been given.
    Regex::new(&format!(r"(?-u:\b)(?:{})", patterns.join("|"))).ok()
});

/// `name=value`, as in the query of a URL, an option, or a line for a shell.
static ASSIGNMENTS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r##"([A-Za-z][A-Za-z0-9_.-]*)(=|%3[Dd])("?)([^ \t\r\n&;'"#]+)"##).ok());

/// `name: value`, as an argument gives a header.
static HEADERS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^([A-Za-z][A-Za-z0-9-]*): *(.+)$").ok());

/// `"name": "value"`, as in JSON in a variable.
static MEMBERS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"("([A-Za-z][A-Za-z0-9_.-]*)" *: *")([^"]+)"#).ok());

/// `user:password@` in a URL.
static CREDENTIALS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"([A-Za-z][A-Za-z0-9+.-]*://)([^ \t\r\n/?#]*)@").ok());

/// Schemes of the header `Authorization`.
const SCHEMES: &[&str] = &["bearer", "basic", "token", "apikey", "api-key", "digest", "key"];

/// Names that `is_for_a_secret` does not know, since programs might act upon variables of such names.
const MORE_NAMES: &[&str] =
    &["AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "CREDENTIALS", "DSN", "JWT", "PWD", "SIG", "SIGNATURE"];

/// Values that are no secrets whatever their variable is called.
const NO_SECRETS: &[&str] = &["true", "false", "yes", "no", "on", "off", "none", "null", "0", "1"];

/// Shorter values hide nothing, and would be redacted everywhere.
const SHORTEST: usize = 3;

/// A part of a URL's path that looks random is a key from this length on.
const SHORTEST_KEY: usize = 20;

/// Replaces each secret in clear text.
pub(crate) fn replace(parameters: &mut ServerParameters, replace: SecretReplacer<'_>) {
    match &mut parameters.reach {
        ServerReach::Stdio(StdioParameters { command, args, env, .. }) => {
            *command = tokens("command", command, replace);
            for (name, value) in env.iter_mut() {
                *value = value_of(name, value, Naming::Variable, replace);
            }
            let mut option = None;
            for (index, argument) in args.iter_mut().enumerate() {
                let key = format!("args.{index}");
                // `-e GITHUB_TOKEN` and its like name a variable.
                let is_value = option.take().filter(|_| !argument.starts_with('-') && !is_constant(argument));
                let replaced = match is_value {
                    Some(()) => whole(&key, argument, replace),
                    None => text(&key, argument, replace),
                };
                let is_option = argument.starts_with('-') && !argument.contains(['=', ' ']);
                option = (is_option && is_secret_word(argument.trim_start_matches('-'))).then_some(());
                *argument = replaced;
            }
        }
        ServerReach::Http(HttpParameters { url, headers, login, .. }) => {
            *url = address(url, replace);
            for (name, value) in headers.iter_mut() {
                *value = value_of(name, value, Naming::Header, replace);
            }
            for (key, value) in login.secrets() {
                *value = whole(key, value, replace);
            }
        }
    }
}

/// A text about a server, without the secrets that it may quote.
pub(super) fn hide(text: &str) -> String {
    let hidden = &mut |_: FoundSecret<'_>| "…".to_owned();
    let mut is_value = false;
    let words = text.split(' ').map(|word| {
        let bare = word.trim_matches(['`', '\'', '"', ',', '.']);
        let shown = if is_value && !bare.starts_with('-') {
            whole("", word, hidden)
        } else {
            text_of_word(word, hidden)
        };
        is_value =
            bare.starts_with("--") && !bare.contains('=') && is_secret_word(bare.trim_start_matches('-'));
        shown
    });
    words.collect::<Vec<_>>().join(" ")
}

fn text_of_word(word: &str, replace: SecretReplacer<'_>) -> String {
    if word.contains("://") { address(word, replace) } else { assignments("", word, replace) }
}

/// The kind of name beside a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    Variable,
    Header,
}

/// The value of a variable or header.
fn value_of(name: &str, value: &str, naming: Naming, replace: SecretReplacer<'_>) -> String {
    let is_named = match naming {
        Naming::Variable => is_for_a_secret(name) || is_secret_word(name),
        Naming::Header => is_secret_word(name),
    };
    // `…_CREDENTIALS` is mostly a file.
    let is_path = value.starts_with(['/', '~', '.']) && !is_for_a_secret(name);
    if !is_named || is_path {
        return text(name, value, replace);
    }
    match naming {
        Naming::Header => with_scheme(name, value, replace),
        Naming::Variable => whole(name, value, replace),
    }
}

/// All of a value but its scheme: `Bearer …`.
fn with_scheme(key: &str, value: &str, replace: SecretReplacer<'_>) -> String {
    match value.split_once(' ') {
        Some((scheme, rest)) if SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) => {
            format!("{scheme} {}", whole(key, rest, replace))
        }
        _ => whole(key, value, replace),
    }
}

/// A value that is a secret, unless it is a placeholder, or says nothing. Of a value with placeholders and more each
/// part is looked at, and the default of a placeholder is a secret too.
fn whole(key: &str, value: &str, replace: SecretReplacer<'_>) -> String {
    let trimmed = value.trim();
    if trimmed.len() < SHORTEST || NO_SECRETS.contains(&trimmed.to_ascii_lowercase().as_str()) {
        return value.to_owned();
    }
    if !value.contains("${") {
        return replace(FoundSecret { key, value });
    }
    let mut replaced = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((placeholder, tail)) = after.split_once('}') else { break };
        replaced.push_str(&literal(key, before, replace));
        replaced.push_str(&match placeholder.split_once(":-") {
            // A placeholder cannot have another one as its default: the kept secret takes the place of both.
            Some((_, default)) if default.len() >= SHORTEST => replace(FoundSecret { key, value: default }),
            _ => format!("${{{placeholder}}}"),
        });
        rest = tail;
    }
    replaced + &literal(key, rest, replace)
}

/// Text beside a placeholder: punctuation and short words are no secrets.
fn literal(key: &str, part: &str, replace: SecretReplacer<'_>) -> String {
    let has_letters = part.chars().filter(char::is_ascii_alphanumeric).count() >= 8;
    let is_prose = part.trim().chars().any(char::is_whitespace);
    if has_letters && !is_prose {
        replace(FoundSecret { key, value: part })
    } else {
        tokens(key, part, replace)
    }
}

/// A text in which secrets may be named: an option, a header, a URL, a line for a shell.
fn text(key: &str, text: &str, replace: SecretReplacer<'_>) -> String {
    let is_credential = |scheme: &str| matches!(scheme.to_ascii_lowercase().as_str(), "bearer" | "basic");
    if text.split_once(' ').is_some_and(|(scheme, rest)| is_credential(scheme) && !rest.contains(' ')) {
        return with_scheme(key, text, replace);
    }
    if let Some((_, [name, value])) =
        HEADERS.as_ref().and_then(|headers| headers.captures(text)).map(|found| found.extract())
        && is_secret_word(name)
    {
        let start = text.len() - value.len();
        return format!("{}{}", &text[..start], with_scheme(key, value, replace));
    }
    if let Some((name, value)) = text.split_once('=')
        && !value.contains("://")
        // A line for a shell has more after the first value.
        && (name.starts_with('-') || !value.contains(char::is_whitespace))
        && !name.contains(|letter: char| letter.is_whitespace() || letter == '?')
        && is_secret_word(name.trim_start_matches('-'))
    {
        return format!("{name}={}", whole(key, value, replace));
    }
    if let Some((name, value)) = text.split_once('=')
        && name.starts_with('-')
        && !name.contains(char::is_whitespace)
    {
        return format!("{name}={}", self::text(key, value, replace));
    }
    if text.contains("://") {
        return address(text, replace);
    }
    assignments(key, text, replace)
}

/// A URL, or a text that has one.
fn address(text: &str, replace: SecretReplacer<'_>) -> String {
    let key = "url";
    let found = each(CREDENTIALS.as_ref(), text, |found| {
        let user_info = &found[2];
        let secret = user_info.split_once(':').map_or(user_info, |(_, password)| password);
        let user = &user_info[..user_info.len() - secret.len()];
        format!("{}{user}{}@", &found[1], whole(key, secret, replace))
    });
    let (before_query, query) = found.split_at(found.find(['?', '#']).unwrap_or(found.len()));
    let path = before_query.split('/').map(|part| {
        if looks_random(part) { replace(FoundSecret { key, value: part }) } else { part.to_owned() }
    });
    let path = path.collect::<Vec<_>>().join("/");
    assignments(key, &(path + query), replace)
}

fn assignments(key: &str, text: &str, replace: SecretReplacer<'_>) -> String {
    let assigned = each(ASSIGNMENTS.as_ref(), text, |found| {
        let [name, sign, quote, value] = [1, 2, 3, 4].map(|group| &found[group]);
        if is_secret_word(name) {
            format!("{name}{sign}{quote}{}", whole(key, value, replace))
        } else {
            found[0].to_owned()
        }
    });
    let named = each(MEMBERS.as_ref(), &assigned, |found| {
        if is_secret_word(&found[2]) {
            format!("{}{}", &found[1], with_scheme(key, &found[3], replace))
        } else {
            found[0].to_owned()
        }
    });
    tokens(key, &named, replace)
}

fn tokens(key: &str, text: &str, replace: SecretReplacer<'_>) -> String {
    each(TOKENS.as_ref(), text, |found| replace(FoundSecret { key, value: &found[0] }))
}

/// `text` with each match replaced.
fn each(pattern: Option<&Regex>, text: &str, mut replace: impl FnMut(&Captures<'_>) -> String) -> String {
    match pattern {
        Some(pattern) => pattern.replace_all(text, |found: &Captures<'_>| replace(found)).into_owned(),
        None => text.to_owned(),
    }
}

/// Whether a name says that it is one of a secret, however it is written: `apiKey`, `api-key`, `API_KEY`. Identifiers
/// and names of users, which variables for secrets may be, are shown.
fn is_secret_word(name: &str) -> bool {
    let upper = name.replace(['-', '.'], "_").to_ascii_uppercase();
    let last = upper.rsplit('_').next().unwrap_or_default();
    let is_identifier = matches!(last, "ID" | "USERNAME") && !upper.ends_with("ACCESS_KEY_ID");
    !is_identifier
        && (is_for_a_secret(&upper)
            || ["APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY"].iter().any(|end| last.ends_with(end))
            || MORE_NAMES.contains(&last))
}

/// Whether a word is the name of a variable.
fn is_constant(word: &str) -> bool {
    is_variable_name(word) && word.contains('_') && !word.contains(|letter: char| letter.is_ascii_lowercase())
}

/// Whether a part of a path is a key, as services put them into the URLs of servers.
fn looks_random(part: &str) -> bool {
    let count = |is_it: fn(&u8) -> bool| part.bytes().filter(is_it).count();
    let has_all = count(u8::is_ascii_digit) >= 2 && count(u8::is_ascii_alphabetic) >= 2;
    let is_one_word = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_=".contains(&byte));
    let is_uuid = part.len() == 36 && part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    part.len() >= SHORTEST_KEY && has_all && (is_one_word || is_uuid)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GITHUB: &str = "ghp_0123456789abcdefghij0123456789abcdef";

    /// Checks what is replaced, in order, and what is left.
    #[track_caller]
    fn check(server: Value, expected: Value, values: &[&str]) {
        let mut parameters = ServerParameters::parse(server.as_object().unwrap()).unwrap();
        let mut found = Vec::new();
        replace(&mut parameters, &mut |secret| {
            found.push(secret.value.to_owned());
            format!("<{}>", secret.key)
        });
        assert_eq!(found, values, "{server}");
        let left = Value::Object(parameters.to_json());
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&left[key], value, "{server}");
        }
    }

    #[test]
    fn variables_are_known_by_name_or_value() {
        let env = json!({"GITHUB_TOKEN": "x-y-z", "apiKey": "abcd", "LOG": "debug", "OTHER": GITHUB,
            "USE_TOKEN": "true", "REGION": "eu", "A_KEY": "${A_KEY}", "DATABASE_URL": "postgres://me:pw12@db/x"});
        check(
            json!({"command": "a", "env": env}),
            json!({"env": {"GITHUB_TOKEN": "<GITHUB_TOKEN>", "apiKey": "<apiKey>", "LOG": "debug", "OTHER": "<OTHER>",
                "USE_TOKEN": "true", "REGION": "eu", "A_KEY": "${A_KEY}", "DATABASE_URL": "postgres://me:<url>@db/x"}}),
            &["pw12", "x-y-z", GITHUB, "abcd"],
        );
    }

    #[test]
    fn variables_for_headers_are_known_by_their_values() {
        let env = json!({"AUTH_HEADER": "Bearer abcdef", "HEADERS": r#"{"Authorization": "Bearer n1n2n3", "Version": "2"}"#,
            "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json", "DB": "Server=x;Password=pw12;Port=5"});
        check(
            json!({"command": "npx", "args": ["mcp-remote", "--header=X-Auth: a1b2c3"], "env": env}),
            json!({"args": ["mcp-remote", "--header=X-Auth: <args.1>"], "env": {"AUTH_HEADER": "Bearer <AUTH_HEADER>",
                "HEADERS": r#"{"Authorization": "Bearer <HEADERS>", "Version": "2"}"#,
                "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json", "DB": "Server=x;Password=<DB>;Port=5"}}),
            &["abcdef", "pw12", "n1n2n3", "a1b2c3"],
        );
    }

    #[test]
    fn logins_have_secrets_too() {
        let login = json!({"client_id": "me", "client_secret": "s3cret", "scopes": ["a"]});
        let replaced = json!({"client_id": "me", "client_secret": "<client_secret>", "scopes": ["a"]});
        check(json!({"url": "https://a/mcp", "oauth": login}), json!({"oauth": replaced}), &["s3cret"]);
    }

    #[test]
    fn headers_keep_their_scheme() {
        let headers = json!({"Authorization": "Bearer abc.def", "X-Api-Key": "k1k2", "Accept": "text/html",
            "X-Team": "me", "Cookie": "session=1"});
        check(
            json!({"url": "https://a/mcp", "headers": headers}),
            json!({"headers": {"Authorization": "Bearer <Authorization>", "X-Api-Key": "<X-Api-Key>",
                "Accept": "text/html", "X-Team": "me", "Cookie": "<Cookie>"}}),
            &["abc.def", "session=1", "k1k2"],
        );
        let filled = json!({"Authorization": "Bearer ${TOKEN}"});
        check(json!({"url": "https://a/mcp", "headers": filled}), json!({"headers": filled}), &[]);
    }

    #[test]
    fn a_default_is_a_secret_too() {
        let env = json!({"API_KEY": format!("${{API_KEY:-{GITHUB}}}")});
        check(json!({"command": "a", "env": env}), json!({"env": {"API_KEY": "<API_KEY>"}}), &[GITHUB]);
        let mixed = json!({"API_KEY": "${A}-0123456789"});
        check(
            json!({"command": "a", "env": mixed}),
            json!({"env": {"API_KEY": "${A}<API_KEY>"}}),
            &["-0123456789"],
        );
    }

    #[test]
    fn arguments_are_known_by_the_option_before_them() {
        let args = json!([
            "-y",
            "server",
            "--api-key",
            "k1k2k3",
            "--token=t1t2t3",
            "-e",
            "X_TOKEN=e1e2",
            "--header",
            "Authorization: Bearer h1h2",
            "--verbose",
            "--project-id",
            "p1p2",
            "--key",
            "--flag",
            GITHUB,
            "/dir"
        ]);
        let left = json!([
            "-y",
            "server",
            "--api-key",
            "<args.3>",
            "--token=<args.4>",
            "-e",
            "X_TOKEN=<args.6>",
            "--header",
            "Authorization: Bearer <args.8>",
            "--verbose",
            "--project-id",
            "p1p2",
            "--key",
            "--flag",
            "<args.14>",
            "/dir"
        ]);
        check(
            json!({"command": "npx", "args": args}),
            json!({"args": left}),
            &["k1k2k3", "t1t2t3", "e1e2", "h1h2", GITHUB],
        );
        check(
            json!({"command": "sh", "args": ["-c", "API_KEY=abc1 MODE=x exec server"]}),
            json!({"args": ["-c", "API_KEY=<args.1> MODE=x exec server"]}),
            &["abc1"],
        );
    }

    #[test]
    fn texts_that_quote_a_configuration_do_not_quote_its_secrets() {
        let line = format!("`command` is taken as a command line: npx x --api-key k1k2k3 --t {GITHUB} a=b.");
        let hidden = "`command` is taken as a command line: npx x --api-key … --t … a=b.";
        assert_eq!(hide(&line), hidden);
        assert_eq!(hide("`https://u:pw12@a/` and API_KEY=k1k2"), "`https://u:…@a/` and API_KEY=…");
    }

    #[test]
    fn urls_have_secrets_in_every_part() {
        check(
            json!({"url": "https://u:pw12@a.example/s/ZTg3NHUyMm5tOGk4Tnkw/mcp?api_key=k1k2&region=eu&id=5"}),
            json!({"url": "https://u:<url>@a.example/s/<url>/mcp?api_key=<url>&region=eu&id=5"}),
            &["pw12", "ZTg3NHUyMm5tOGk4Tnkw", "k1k2"],
        );
        for url in [
            "https://mcp.context7.com/mcp",
            "https://a/mcp-server-with-a-long-name-2/mcp",
            "https://a/mcp?k=${K}",
        ] {
            check(json!({"url": url}), json!({"url": url}), &[]);
        }
    }
}
