//! The answer of an authorization server, as a browser brings it.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::{Error, foreign};

/// The answer that the browser brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallbackAnswer {
    pub(super) code: String,
    pub(super) state: String,
    pub(super) issuer: Option<String>,
}

/// An answer, and the sender of the login's result to the browser's page.
pub(super) struct ArrivedCallback {
    pub(super) answer: Result<CallbackAnswer, Error>,
    pub(super) page: oneshot::Sender<Result<(), String>>,
}

/// Reads the answer from the query of a redirect URI.
pub(super) fn read(query: &str, expected: &str) -> Result<CallbackAnswer, Option<Error>> {
    let pairs = || url::form_urlencoded::parse(query.as_bytes());
    let states: Vec<_> = pairs().filter(|(name, _)| name == "state").map(|(_, state)| state).collect();
    if states != [expected] {
        return Err(None);
    }
    let mut fields: HashMap<String, String> = HashMap::new();
    for (name, value) in pairs() {
        // RFC 6749 §3.1: parameters are not repeated.
        if fields.insert(name.clone().into_owned(), value.into_owned()).is_some() {
            return Err(Some(Error::Answer(format!("`{}` is in it twice", foreign(&name)))));
        }
    }
    if let Some(error) = fields.get("error") {
        let description = fields.get("error_description").filter(|text| !text.trim().is_empty());
        let text = description.map_or_else(|| error.clone(), |description| format!("{error}: {description}"));
        return Err(Some(Error::Refused(foreign(&text))));
    }
    match fields.remove("code").filter(|code| !code.is_empty()) {
        Some(code) => Ok(CallbackAnswer { code, state: expected.to_owned(), issuer: fields.remove("iss") }),
        None => Err(Some(Error::Answer("there is no `code` in it".to_owned()))),
    }
}
