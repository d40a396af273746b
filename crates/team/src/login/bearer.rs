//! The token that a request shows.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use url::form_urlencoded;

use super::{RequestFault, TokenFault, TokenLoginError};

/// The longest token, in bytes: Entra's with 200 groups has about 8,000.
const LONGEST: usize = 16 * 1024;

/// The bearer token of the request.
///
/// # Errors
/// There is none, or not in one header `Authorization`.
pub(super) fn bearer_token<'h>(uri: &Uri, headers: &'h HeaderMap) -> Result<&'h str, TokenLoginError> {
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    if query.into_iter().any(|(name, _)| name == "access_token") {
        return Err(RequestFault::Query.into());
    }
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(TokenLoginError::Missing)?;
    if values.next().is_some() {
        return Err(RequestFault::Repeated.into());
    }
    let value = value.as_bytes();
    let (scheme, token) = value.split_at(value.iter().position(|byte| *byte == b' ').unwrap_or(value.len()));
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Err(TokenLoginError::Missing);
    }
    let token = token.trim_ascii();
    if token.len() > LONGEST {
        return Err(TokenFault::Long.into());
    }
    match std::str::from_utf8(token) {
        Ok(token) if is_token68(token) => Ok(token),
        _ => Err(TokenFault::Malformed.into()),
    }
}

/// Whether the text has the form of a bearer token (RFC 6750, 2.1).
fn is_token68(token: &str) -> bool {
    let begin = token.trim_end_matches('=');
    !begin.is_empty() && begin.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(uri: &str, headers: &[&str]) -> Result<String, TokenLoginError> {
        let headers = headers.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect();
        bearer_token(&uri.parse().unwrap(), &headers).map(str::to_owned)
    }

    #[test]
    fn a_token_comes_in_one_header() {
        assert_eq!(shown("/mcp?a=access_token", &["Bearer a.b-c_d~e+/=="]).unwrap(), "a.b-c_d~e+/==");
        assert_eq!(shown("/mcp", &["bEARER  a"]).unwrap(), "a");
        assert_eq!(shown("/mcp", &[]), Err(TokenLoginError::Missing));
        for other in ["Basic YTpi", "DPoP a", "Bearers a", "a"] {
            assert_eq!(shown("/mcp", &[other]), Err(TokenLoginError::Missing), "{other}");
        }
        assert_eq!(shown("/mcp", &["Bearer a", "Bearer a"]), Err(RequestFault::Repeated.into()));
        assert_eq!(shown("/mcp", &["Basic a", "Bearer a"]), Err(RequestFault::Repeated.into()));
    }

    #[test]
    fn a_token_in_the_url_is_refused() {
        for uri in ["/mcp?access_token=a", "/mcp?b&%61ccess_token=a", "/mcp?access_token"] {
            for headers in [&[][..], &["Bearer a"]] {
                assert_eq!(shown(uri, headers), Err(RequestFault::Query.into()), "{uri}");
            }
        }
    }

    #[test]
    fn a_token_has_the_form_of_one() {
        for value in ["Bearer", "Bearer ", "Bearer =", "Bearer a b", "Bearer a,b", "Bearer \u{e9}"] {
            assert_eq!(shown("/mcp", &[value]), Err(TokenFault::Malformed.into()), "{value}");
        }
        let long = |length| shown("/mcp", &[&format!("Bearer {}", "a".repeat(length))]);
        assert!(long(LONGEST).is_ok());
        assert_eq!(long(LONGEST + 1), Err(TokenFault::Long.into()));
    }
}
