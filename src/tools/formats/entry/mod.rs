//! The configuration of a server as other MCP clients write it → our own keys, and notes on what is left out: pure.

mod command;
mod keys;
mod login;
#[cfg(test)]
mod tests;
mod wrapped;

use serde_json::{Map, Value, json};

pub(super) use self::keys::{DISABLED, ENABLED, is_comment_entry};
use self::keys::{EntryKey, IgnoredKey};
pub(super) use self::wrapped::all as servers_in;
use crate::connections::mcp_client::{
    HttpTransport, ParametersError, ServerParameters, WORKSPACE, wrong_type,
};
use crate::ground::text::{backticked, nearest};

/// Reads parameters that a user may have copied from another client's configuration. Returns notes on parts that were left out
/// or reinterpreted, too. `name` is the server's name, `has_program` says whether a command exists.
///
/// # Errors
/// As for [`ServerParameters::parse`], and for contradictions.
pub(crate) fn adopt(
    name: &str,
    object: &Map<String, Value>,
    has_program: &dyn Fn(&str) -> bool,
) -> Result<(ServerParameters, Vec<String>), ParametersError> {
    let mut adopting = Adopting::default();
    let entry = wrapped::find(name, object, &mut adopting.ignored)?;
    adopting.take_all(entry)?;
    command::adopt(&mut adopting.object, has_program, &mut adopting.notes)?;
    for (key, value) in &mut adopting.object {
        translate_placeholders(key, value)?;
    }
    adopting.leave_out_empty();
    adopting.literals();
    adopting.settle_transport();
    adopting.note_ignored();
    Ok((ServerParameters::parse(&adopting.object)?, adopting.notes))
}

/// Values of `auth` that say how to log in, or that nobody does. Others are tokens, as FastMCP has it.
const LOGIN_WORDS: [&str; 10] =
    ["", "oauth", "oauth2", "none", "bearer", "basic", "dynamic", "auto", "required", "optional"];

#[derive(Default)]
struct Adopting {
    object: Map<String, Value>,
    /// The client's key for each of ours.
    origins: Map<String, Value>,
    ignored: Vec<(String, IgnoredKey)>,
    notes: Vec<String>,
    /// Whether the transport is named by a word that means all of them.
    has_any_transport: bool,
}

impl Adopting {
    fn take_all(&mut self, entry: &Map<String, Value>) -> Result<(), ParametersError> {
        for (key, value) in entry.iter().filter(|(_, value)| !value.is_null()) {
            match keys::meaning(key) {
                Some(EntryKey::Text(own)) => self.put(own, key, value.clone())?,
                Some(EntryKey::Transport { url_key }) => self.take_transport(key, value, url_key)?,
                Some(EntryKey::Texts(own)) => self.merge(own, key, value.clone())?,
                Some(EntryKey::FromVariables(own)) => self.take_variables(own, key, value)?,
                Some(EntryKey::Bearer) => self.take_bearer(key, value)?,
                Some(EntryKey::Start { per_second }) => self.take_timeout(key, value, per_second)?,
                Some(EntryKey::Timeout) => self.take_ambiguous_timeout(entry, value)?,
                Some(EntryKey::Login) => self.take_login(key, value)?,
                Some(EntryKey::Scopes) => self.take_login(key, &json!({"scopes": value}))?,
                Some(EntryKey::Nested) => self.take_nested(key, value)?,
                Some(EntryKey::Ignored(why)) => self.ignored.push((key.clone(), why)),
                None => self.refuse_misspelt(key)?,
            }
        }
        Ok(())
    }

    /// Takes `value` as that of our key `own`.
    fn put(&mut self, own: &str, key: &str, value: Value) -> Result<(), ParametersError> {
        match self.object.get(own) {
            Some(before) if keys::is_empty(&value) && !keys::is_empty(before) => Ok(()),
            Some(before) if *before != value && !keys::is_empty(before) => {
                let first = self.origins[own].as_str().unwrap_or(own).to_owned();
                Err(ParametersError::Contradiction { first, second: key.to_owned() })
            }
            _ => {
                self.object.insert(own.to_owned(), value);
                self.origins.insert(own.to_owned(), json!(key));
                Ok(())
            }
        }
    }

    /// Adds texts by name to those of our key `own`. Numbers and booleans become texts, as other clients have it.
    fn merge(&mut self, own: &str, key: &str, value: Value) -> Result<(), ParametersError> {
        let Value::Object(texts) = value else { return self.put(own, key, value) };
        let object = self.object.entry(own).or_insert_with(|| json!({}));
        let Some(object) = object.as_object_mut() else {
            return Err(ParametersError::Contradiction { first: own.to_owned(), second: key.to_owned() });
        };
        let is_remark = |name: &str| name.starts_with("//") || name.starts_with('#');
        let texts = texts.into_iter().filter(|(name, value)| !value.is_null() && !is_remark(name));
        for (name, value) in texts {
            let is_scalar = value.is_number() || value.is_boolean();
            let value = if is_scalar { json!(value.to_string()) } else { value };
            if object.get(&name).is_some_and(|before| *before != value) {
                let second = format!("{key}.{name}");
                return Err(ParametersError::Contradiction { first: format!("{own}.{name}"), second });
            }
            object.insert(name, value);
        }
        self.origins.insert(own.to_owned(), json!(key));
        Ok(())
    }

    /// The transport's name, or an object with the transport's name and the rest.
    fn take_transport(
        &mut self,
        key: &str,
        value: &Value,
        url_key: Option<&'static str>,
    ) -> Result<(), ParametersError> {
        if let Some(transport) = url_key {
            // The key names the transport: its value is the URL.
            self.put("url", key, value.clone())?;
            return self.put("type", key, json!(transport));
        }
        match value {
            Value::Object(inner) => self.take_all(inner),
            Value::String(name) if name.trim().is_empty() => Ok(()),
            Value::String(name) if keys::ANY_TRANSPORT.contains(&name.as_str()) => {
                self.has_any_transport = true;
                Ok(())
            }
            Value::String(name) => {
                let own = keys::transport(name).ok_or_else(|| ParametersError::UnknownTransport {
                    found: name.clone(),
                    expected: "`stdio`, `streamable_http` or `sse`",
                })?;
                self.put("type", key, json!(own))
            }
            other => self.put("type", key, other.clone()),
        }
    }

    /// Names of variables, or names with the variables that have their values.
    fn take_variables(&mut self, own: &str, key: &str, value: &Value) -> Result<(), ParametersError> {
        let filled: Map<String, Value> = match value {
            Value::Array(names) => {
                let names = names.iter().map(|name| name.as_str().or_else(|| name["name"].as_str()));
                names.flatten().map(|name| (name.to_owned(), json!(format!("${{{name}}}")))).collect()
            }
            Value::Object(names) => names
                .iter()
                .filter_map(|(name, variable)| {
                    Some((name.clone(), json!(format!("${{{}}}", variable.as_str()?))))
                })
                .collect(),
            other => return Err(wrong_type(key, "a list of names of variables", other)),
        };
        self.merge(own, key, Value::Object(filled))
    }

    /// The name of the variable that has the token, or the token.
    fn take_bearer(&mut self, key: &str, value: &Value) -> Result<(), ParametersError> {
        let Some(text) = value.as_str() else {
            return Err(wrong_type(key, "a string", value));
        };
        let token = if key.ends_with("var") { format!("${{{text}}}") } else { text.trim().to_owned() };
        if token.is_empty() {
            return Ok(());
        }
        // Some write the whole header.
        let is_whole = token.split_once(' ').is_some_and(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        let header = if is_whole { token } else { format!("Bearer {token}") };
        self.merge("headers", key, json!({"Authorization": header}))
    }

    fn take_timeout(&mut self, key: &str, value: &Value, per_second: f64) -> Result<(), ParametersError> {
        let Some(number) = value.as_f64() else {
            return Err(wrong_type(key, "a number", value));
        };
        self.put("timeout", key, json!(number / per_second))
    }

    /// `timeout` is in seconds for some clients, and in milliseconds for others.
    fn take_ambiguous_timeout(
        &mut self,
        entry: &Map<String, Value>,
        value: &Value,
    ) -> Result<(), ParametersError> {
        let has_own = |key: &String| matches!(keys::meaning(key), Some(EntryKey::Start { .. }));
        match value.as_f64() {
            _ if entry.keys().any(has_own) => {
                self.ignored.push(("timeout".to_owned(), IgnoredKey::NoMeaning));
                Ok(())
            }
            Some(number) if number > keys::MOST_SECONDS => {
                self.notes.push(format!("`timeout` {number} is taken as milliseconds."));
                self.put("timeout", "timeout", json!(number / 1000.0))
            }
            _ => self.put("timeout", "timeout", value.clone()),
        }
    }

    /// Parameters of a login, added to those of another key. A word alone in `auth` is a token, unless it says how to log
    /// in.
    fn take_login(&mut self, key: &str, value: &Value) -> Result<(), ParametersError> {
        let mut ignored = Vec::new();
        match login::adopt(value, &mut ignored) {
            Value::String(word) if key != "auth" || LOGIN_WORDS.contains(&word.to_lowercase().as_str()) => {}
            Value::String(token) => self.take_bearer(key, &json!(token))?,
            Value::Object(mut login) => {
                for name in ["token", "bearer_token", "access_token"] {
                    if let Some(token) = login.remove(name) {
                        self.take_bearer(&format!("{key}.{name}"), &token)?;
                    }
                }
                if login.is_empty() {
                    return Ok(());
                }
                let own = self.object.entry("oauth").or_insert_with(|| json!({}));
                let Some(own) = own.as_object_mut() else { return Ok(()) };
                for (name, value) in login {
                    if own.get(&name).is_some_and(|before| *before != value) {
                        let first = format!("oauth.{name}");
                        let second = format!("{key}.{name}");
                        return Err(ParametersError::Contradiction { first, second });
                    }
                    own.insert(name, value);
                }
            }
            other => self.put("oauth", key, other)?,
        }
        self.ignored.extend(ignored.into_iter().map(|key| (key, IgnoredKey::NoMeaning)));
        Ok(())
    }

    /// Leaves out what is empty and belongs to the other transport.
    fn leave_out_empty(&mut self) {
        let is_given = |key: &str| self.object.get(key).is_some_and(|value| !keys::is_empty(value));
        let others: &[&str] = match (is_given("command"), is_given("url")) {
            (true, false) => &["url", "headers", "oauth"],
            (false, true) => &["command", "args", "env", "cwd"],
            _ => &[],
        };
        self.object.retain(|key, value| !others.contains(&key.as_str()) || !keys::is_empty(value));
    }

    fn take_nested(&mut self, key: &str, value: &Value) -> Result<(), ParametersError> {
        let Value::Object(inner) = value else {
            self.ignored.push((key.to_owned(), IgnoredKey::NoMeaning));
            return Ok(());
        };
        for (name, value) in inner {
            match name.as_str() {
                "headers" => self.merge("headers", key, value.clone())?,
                _ => self.ignored.push((format!("{key}.{name}"), IgnoredKey::NoMeaning)),
            }
        }
        Ok(())
    }

    /// An unknown key is left out, unless it is likely a misspelt one of ours, whose loss would change the
    /// meaning.
    fn refuse_misspelt(&mut self, key: &str) -> Result<(), ParametersError> {
        match nearest(key, keys::OWN.iter().copied()).first() {
            Some(known) => Err(ParametersError::Misspelt { key: key.to_owned(), known: (*known).to_owned() }),
            None => {
                self.ignored.push((key.to_owned(), IgnoredKey::NoMeaning));
                Ok(())
            }
        }
    }

    /// Values that other clients fill and we do not.
    fn literals(&mut self) {
        for own in ["env", "headers"] {
            let Some(Value::Object(texts)) = self.object.get(own) else { continue };
            for (name, value) in texts {
                let variable = value.as_str().and_then(|text| text.strip_prefix('$'));
                if let Some(variable) = variable.filter(|name| crate::ground::env::is_variable_name(name)) {
                    let note = format!(
                        "`{own}.{name}` is the text `${variable}`: write `${{{variable}}}` for the variable."
                    );
                    self.notes.push(note);
                }
            }
        }
    }

    /// A word that means all transports leaves the newer one, unless the URL decides.
    fn settle_transport(&mut self) {
        let url = self.object.get("url").and_then(Value::as_str);
        let is_undecided = url.is_some_and(|url| HttpTransport::from_url(url).is_none());
        if self.has_any_transport && is_undecided {
            self.object.entry("type").or_insert_with(|| json!(HttpTransport::Streamable.name()));
        }
    }

    fn note_ignored(&mut self) {
        for why in IgnoredKey::ALL {
            let keys = self.ignored.iter().filter(|(_, reason)| *reason == why);
            let keys = backticked(keys.map(|(key, _)| key));
            if !keys.is_empty() {
                self.notes.push(format!("Ignored: {keys}{}.", why.words()));
            }
        }
    }
}

/// The beginnings of placeholders that only another client can fill.
const FOREIGN: &[&str] = &["${input:", "${command:", "${config:", "${workspace", "${file", "${extensionPath"];

/// Writes the placeholders of other clients as ours.
fn translate_placeholders(key: &str, value: &mut Value) -> Result<(), ParametersError> {
    match value {
        Value::String(text) => {
            for asked in FOREIGN {
                let foreign =
                    text.match_indices(asked).find(|(start, _)| !text[*start..].starts_with(WORKSPACE));
                if let Some((start, _)) = foreign {
                    let end = text[start..].find('}').map_or(text.len(), |end| start + end + 1);
                    let placeholder = text[start..end].to_owned();
                    return Err(ParametersError::ForeignPlaceholder { key: key.to_owned(), placeholder });
                }
            }
            *text = text.replace("${env:", "${").replace("{env:", "${").replace("${userHome}", "${HOME}");
            Ok(())
        }
        Value::Array(values) => values.iter_mut().try_for_each(|value| translate_placeholders(key, value)),
        Value::Object(values) => values
            .iter_mut()
            .try_for_each(|(name, value)| translate_placeholders(&format!("{key}.{name}"), value)),
        _ => Ok(()),
    }
}
