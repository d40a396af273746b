//! Which requests are answered at all: those of the page itself, in a browser on this machine.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// The header with the key that the page's script keeps.
pub(super) const KEY: HeaderName = HeaderName::from_static("x-ipybox-key");

/// The origin of the request, as the browser says.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The purpose of the answer, as the browser says.
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The headers of every answer: nothing from other sites is loaded, nobody else sees or frames it, nothing is kept.
const HEADERS: [(HeaderName, &str); 9] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob:; connect-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The name by which browsers know the page. Not `localhost`, which may be `[::1]` too, where somebody else can listen.
#[derive(Debug, Clone)]
pub(super) struct PageHost {
    host: String,
    origin: String,
}

impl PageHost {
    pub(super) fn of(address: SocketAddr) -> Self {
        Self { host: address.to_string(), origin: format!("http://{address}") }
    }

    /// That of a page with this origin, as `https://ipybox.example`.
    pub(super) fn at(origin: &str) -> Self {
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        Self { host: host.to_owned(), origin: origin.to_owned() }
    }

    /// Why a request is not answered.
    pub(super) fn refusal(&self, request: &Request) -> Option<(StatusCode, &'static str)> {
        let headers = request.headers();
        // Against DNS rebinding: a page whose name leads here still sends that name.
        if only(headers, &header::HOST) != Some(&self.host) {
            return Some((StatusCode::MISDIRECTED_REQUEST, "This is not the address of the page."));
        }
        let is_of_others = |site: &HeaderValue| site != "same-origin";
        if request.method() == Method::GET {
            let is_framed = headers
                .get(&DESTINATION)
                .is_some_and(|to| to != "document" && to != "script" && to != "style");
            let is_part = request.uri().path() != "/";
            return (is_framed || is_part && headers.get(&SITE).is_some_and(is_of_others))
                .then_some((StatusCode::FORBIDDEN, "Other pages do not get this one."));
        }
        // Requests that change something or return data. Browsers always send the origin of such a request.
        let is_ours = only(headers, &header::ORIGIN) == Some(&self.origin);
        if !is_ours || headers.get(&SITE).is_some_and(is_of_others) {
            return Some((StatusCode::FORBIDDEN, "Only the page itself can ask for this."));
        }
        // A form of another page cannot send it.
        if only(headers, &header::CONTENT_TYPE) != Some("application/json") {
            return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body has to be application/json."));
        }
        None
    }
}

/// A header that is there once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok()).flatten()
}

/// The values of the cookies of a name: whatever listens on another port of this machine can set one, too.
pub(super) fn cookies<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).filter_map(move |cookie| {
        let (its_name, value) = cookie.trim().split_once('=')?;
        (its_name == name).then_some(value)
    })
}

/// Adds what every answer says.
pub(super) fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A refusal.
pub(super) fn refused(status: StatusCode, why: &'static str) -> Response {
    with_headers((status, why).into_response())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[track_caller]
    fn check(method: &str, path: &str, headers: &[(&str, &str)], expected: Option<u16>) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let host = PageHost::of(([127, 0, 0, 1], 4000).into());
        let refusal = host.refusal(&request.body(Body::empty()).unwrap());
        assert_eq!(refusal.map(|(status, _)| status.as_u16()), expected, "{method} {path} {headers:?}");
    }

    #[test]
    fn only_the_page_itself_is_answered() {
        const JSON: (&str, &str) = ("content-type", "application/json");
        let (host, origin) = (("host", "127.0.0.1:4000"), ("origin", "http://127.0.0.1:4000"));
        check("GET", "/", &[host], None);
        check("GET", "/", &[], Some(421));
        for other in ["127.0.0.1", "127.0.0.1:4001", "evil.example:4000", "[::1]:4000", "localhost:4000"] {
            check("GET", "/", &[("host", other)], Some(421));
        }
        check("GET", "/", &[host, host], Some(421));
        check("GET", "/", &[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document")], None);
        check("GET", "/", &[host, ("sec-fetch-dest", "iframe")], Some(403));
        check("GET", "/page.js", &[host, ("sec-fetch-site", "same-site")], Some(403));
        check(
            "GET",
            "/page.js",
            &[host, ("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "script")],
            None,
        );

        check("POST", "/answer", &[host, origin, JSON], None);
        check("POST", "/answer", &[host, origin, JSON, ("sec-fetch-site", "same-origin")], None);
        check("POST", "/answer", &[host, JSON], Some(403));
        for other in [
            "null",
            "http://127.0.0.1:4001",
            "https://127.0.0.1:4000",
            "http://localhost:4000",
            "http://evil",
        ] {
            check("POST", "/answer", &[host, ("origin", other), JSON], Some(403));
        }
        check("POST", "/answer", &[host, origin, origin, JSON], Some(403));
        check("POST", "/answer", &[host, origin, JSON, ("sec-fetch-site", "same-site")], Some(403));
        check("POST", "/answer", &[host, origin], Some(415));
        check("POST", "/answer", &[host, origin, ("content-type", "text/plain")], Some(415));
    }

    #[test]
    fn every_cookie_of_the_name_is_looked_at() {
        let check = |sent: &[&str], expected: &[&str]| {
            let mut headers = HeaderMap::new();
            for cookie in sent {
                headers.append(header::COOKIE, cookie.parse().unwrap());
            }
            assert_eq!(cookies(&headers, "a").collect::<Vec<_>>(), expected, "{sent:?}");
        };
        check(&["a=1"], &["1"]);
        check(&["b=2; a=1;c=3"], &["1"]);
        check(&["a=1; a=2", "a=3"], &["1", "2", "3"]);
        check(&["aa=1"], &[]);
        check(&[], &[]);
    }
}
