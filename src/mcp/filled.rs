//! Parameters with their placeholders filled, and the secrets that came in with them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};

use super::parameters::check_url;
use super::{Error, HttpParameters, HttpTransport, ParametersError, StdioParameters};
use crate::env::{Secrets, Variables};

/// A stdio server, ready to be started. It has no `Debug`: it holds secrets.
pub(super) struct FilledStdio {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: Option<PathBuf>,
}

/// An HTTP server, ready to be connected to. It has no `Debug`: it holds secrets.
pub(super) struct FilledHttp {
    pub(super) url: Url,
    pub(super) transport: HttpTransport,
    pub(super) headers: HeaderMap,
}

impl FilledStdio {
    pub(super) fn fill(
        parameters: &StdioParameters,
        variables: &Variables,
    ) -> Result<(Self, Secrets), Error> {
        let mut filler = Filler { variables, used: BTreeMap::new() };
        let command = filler.fill("command", &parameters.command)?;
        let mut args = Vec::with_capacity(parameters.args.len());
        for (index, argument) in parameters.args.iter().enumerate() {
            args.push(filler.fill(&format!("args[{index}]"), argument)?);
        }
        let env = filler.fill_values("env", &parameters.env)?;
        let cwd = parameters.cwd.as_deref().map(|cwd| filler.fill("cwd", cwd)).transpose()?;
        let filled = Self { command, args, env, cwd: cwd.map(PathBuf::from) };
        Ok((filled, filler.into_secrets()))
    }
}

impl FilledHttp {
    pub(super) fn fill(parameters: &HttpParameters, variables: &Variables) -> Result<(Self, Secrets), Error> {
        let mut filler = Filler { variables, used: BTreeMap::new() };
        let text = filler.fill("url", &parameters.url)?;
        let url = check_url(&text)?;
        let transport = parameters.transport.or_else(|| HttpTransport::from_url(&text));
        let transport = transport.ok_or(ParametersError::UndecidedTransport)?;
        let mut headers = HeaderMap::new();
        for (name, value) in filler.fill_values("headers", &parameters.headers)? {
            let unusable = || Error::HeaderValue { name: name.clone() };
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| unusable())?;
            value.set_sensitive(true);
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable())?;
            // Configurations often repeat what the transport asks for; ours accepts both forms anyway.
            if key != ACCEPT {
                headers.insert(key, value);
            }
        }
        Ok((Self { url, transport, headers }, filler.into_secrets()))
    }
}

/// Fills text after text and notes what it filled in.
struct Filler<'a> {
    variables: &'a Variables,
    used: BTreeMap<String, String>,
}

impl Filler<'_> {
    fn fill(&mut self, key: &str, text: &str) -> Result<String, Error> {
        let filled = self.variables.fill_noting(text, &mut self.used);
        filled.map_err(|missing| Error::Placeholder { key: key.to_owned(), missing })
    }

    fn fill_values(
        &mut self,
        key: &str,
        values: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, Error> {
        values
            .iter()
            .map(|(name, value)| Ok((name.clone(), self.fill(&format!("{key}.{name}"), value)?)))
            .collect()
    }

    fn into_secrets(self) -> Secrets {
        let inherited = self.variables.credentials();
        let used = self.used.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Secrets::new(used.chain(inherited.iter().map(|(name, secret)| (*name, secret.as_str()))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::{Reach, ServerParameters};

    fn variables() -> Variables {
        let pairs =
            [("HOST", "localhost:1"), ("KEY", "secret"), ("LONG_KEY", "secret-and-more"), ("BAD", "a\nb")];
        Variables::from_pairs(pairs.into_iter().chain([("NO", "no"), ("PLACE", "http://localhost/")]))
    }

    fn fill(value: Value) -> Result<(FilledHttp, Secrets), Error> {
        match ServerParameters::parse(value.as_object().unwrap()).unwrap().reach {
            Reach::Http(parameters) => FilledHttp::fill(&parameters, &variables()),
            Reach::Stdio(_) => panic!("{value} is a stdio server"),
        }
    }

    fn check_error(value: Value, expected: &str) {
        let error = fill(value.clone()).err().unwrap().to_string();
        assert!(error.contains(expected) && !error.contains("secret"), "{value}: {error}");
    }

    #[test]
    fn placeholders_may_stand_anywhere() {
        let parameters = json!({"url": "http://${HOST}/sse?k=${KEY}", "headers": {"X-Key": "Bearer ${KEY}"}});
        let (filled, _) = fill(parameters).unwrap();
        assert_eq!(filled.url.as_str(), "http://localhost:1/sse?k=secret");
        assert_eq!(filled.transport, HttpTransport::Sse);
        assert_eq!(filled.headers["x-key"], "Bearer secret");
        assert!(!format!("{:?}", filled.headers).contains("secret"));
    }

    #[test]
    fn what_is_wrong_once_filled_is_told_without_the_value() {
        check_error(json!({"url": "http://a/mcp", "headers": {"X": "${BAD}"}}), "the header `X`");
        check_error(
            json!({"url": "http://a/mcp", "headers": {"X": "${GONE}"}}),
            "(asked for by `headers.X`)",
        );
        check_error(json!({"url": "${KEY}"}), "not an http or https URL");
        check_error(json!({"url": "${PLACE}"}), "the transport is unknown");
    }

    #[test]
    fn secrets_are_replaced_by_their_placeholders() {
        let (_, secrets) =
            fill(json!({"url": "http://a/mcp", "headers": {"X": "${KEY}${LONG_KEY}${NO}"}})).unwrap();
        assert_eq!(secrets.redact("no secret-and-more, secret!"), "no ${LONG_KEY}, ${KEY}!");
    }
}
