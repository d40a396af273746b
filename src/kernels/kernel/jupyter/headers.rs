//! The headers that a user wants in each request to a Jupyter server. Names are checked, values are secrets.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::access_error::AccessError;

/// Headers that describe a message or its connection: requests have their own.
#[rustfmt::skip]
const OF_REQUESTS: [&str; 11] = [
    "accept", "connection", "content-length", "content-type", "expect", "host", "keep-alive", "te", "trailer",
    "transfer-encoding", "upgrade",
];
/// The beginning of the names of headers that open a WebSocket.
const OF_WEBSOCKETS: &str = "sec-websocket-";

/// Headers for one server. No output has their values.
#[derive(Clone, Default)]
pub(crate) struct JupyterHeaders(HeaderMap);

impl JupyterHeaders {
    /// Adds the header `Authorization` with a token, or with a text with a blank, which contains its own scheme. Jupyter's is
    /// `token`.
    ///
    /// # Errors
    /// There is such a header, or a header cannot hold the token.
    pub(crate) fn add_token(&mut self, token: &str) -> Result<(), AccessError> {
        let token = token.trim();
        let text = if token.contains(' ') { token.to_owned() } else { format!("token {token}") };
        let value = HeaderValue::from_str(&text).ok().filter(|_| !token.is_empty());
        if self.0.contains_key(AUTHORIZATION) {
            return Err(AccessError::TwoTokens);
        }
        self.insert(AUTHORIZATION, value.ok_or(AccessError::Token)?);
        Ok(())
    }

    /// Adds a header.
    ///
    /// # Errors
    /// The name is none, belongs to the requests themselves, or was added before; or a header cannot hold the value.
    pub(crate) fn add(&mut self, name: &str, value: &str) -> Result<(), AccessError> {
        let header = header_name(name)?;
        let name = || header.to_string();
        if self.0.contains_key(&header) {
            return Err(AccessError::RepeatedHeader { name: name() });
        }
        let value = value.trim();
        let value = HeaderValue::from_str(value).ok().filter(|_| !value.is_empty());
        let value = value.ok_or_else(|| AccessError::HeaderValue { name: name() })?;
        self.insert(header, value);
        Ok(())
    }

    fn insert(&mut self, name: HeaderName, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.0.insert(name, value);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts them into a request, in the place of others of the same names.
    pub(super) fn put_into(&self, request: &mut HeaderMap) {
        for (name, value) in &self.0 {
            request.insert(name, value.clone());
        }
    }

    pub(super) fn all(&self) -> HeaderMap {
        self.0.clone()
    }
}

/// The name of a header that a user may give.
///
/// # Errors
/// It is none, or that of a header that requests have in any case.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, AccessError> {
    let Ok(header) = name.parse::<HeaderName>() else {
        // What follows is no part of a name, and may be of a secret.
        let is_of_name = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let beginning = name.chars().take_while(is_of_name).collect();
        return Err(AccessError::HeaderName { beginning });
    };
    if OF_REQUESTS.contains(&header.as_str()) || header.as_str().starts_with(OF_WEBSOCKETS) {
        return Err(AccessError::OwnHeader { name: header.to_string() });
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, value: &str) -> String {
        let mut headers = JupyterHeaders::default();
        headers.add("x-first", "1").unwrap();
        headers.add(name, value).unwrap_err().to_string()
    }

    #[test]
    fn headers_are_refused_by_name_and_without_their_values() {
        for (name, value, expected) in [
            ("X-Key: secret", "v", "`X-Key…` is no name"),
            ("", "v", "`…` is no name"),
            ("Host", "secret", "`host`"),
            ("Sec-WebSocket-Key", "secret", "`sec-websocket-key`"),
            ("X-First", "secret", "`x-first` twice"),
            ("X-Key", " \n", "`x-key` to the Jupyter server: its value is empty"),
            ("X-Key", "a\nsecret", "`x-key` to the Jupyter server: its value is empty"),
        ] {
            let error = refusal(name, value);
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_token_and_a_header_with_another_contradict_each_other() {
        let mut headers = JupyterHeaders::default();
        headers.add("authorization", "Bearer router-secret").unwrap();
        let error = headers.add_token("jupyter-secret").unwrap_err().to_string();
        assert!(error.contains("`--kernel-gateway-token-env`") && !error.contains("secret"), "{error}");
        assert!(!format!("{:?}", headers.all()).contains("secret"));
    }
}
