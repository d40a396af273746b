//! W3C trace context in `_meta` of MCP's requests (SEP-414): `traceparent` and `tracestate`.
//!
//! `baggage` is neither taken nor passed on: it is data of the application, and servers are strangers.

use opentelemetry::propagation::{Extractor, Injector};
use serde_json::{Map, Value};

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// The longest `traceparent`: later versions may add fields.
const TRACEPARENT_BYTES: usize = 256;

/// The longest `tracestate` that the recommendation asks to pass on, in bytes.
const TRACESTATE_BYTES: usize = 512;

/// Reads from `_meta`, which a stranger may have written.
pub(super) struct MetaExtractor<'a>(pub(super) &'a Map<String, Value>);

impl Extractor for MetaExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let text = self.0.get(key)?.as_str()?;
        let is_valid = match key {
            TRACEPARENT => is_traceparent(text),
            TRACESTATE => text.len() <= TRACESTATE_BYTES && text.is_ascii(),
            _ => false,
        };
        is_valid.then_some(text)
    }

    fn keys(&self) -> Vec<&str> {
        [TRACEPARENT, TRACESTATE].into_iter().filter(|key| self.get(key).is_some()).collect()
    }
}

/// Writes to `_meta`.
pub(super) struct MetaInjector<'a>(pub(super) &'a mut Map<String, Value>);

impl Injector for MetaInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        if [TRACEPARENT, TRACESTATE].contains(&key) && !value.is_empty() {
            self.0.insert(key.to_owned(), value.into());
        }
    }
}

/// Whether this is a `traceparent` of W3C's recommendation: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits, all hexadecimal
/// and small; later versions may go on behind another `-`.
fn is_traceparent(text: &str) -> bool {
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, length: usize| is_hex(part, length) && part.bytes().any(|byte| byte != b'0');
    let mut parts = text.splitn(5, '-');
    let mut next = || parts.next().unwrap_or_default();
    let version = next();
    let trace = next();
    let span = next();
    let flags = next();
    let has_more = parts.next().is_some();
    text.len() <= TRACEPARENT_BYTES
        && is_hex(version, 2)
        && version != "ff"
        && is_id(trace, 32)
        && is_id(span, 16)
        && is_hex(flags, 2)
        && (version != "00" || !has_more)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa04c902b7-01";

    fn extracted(key: &str, value: &Value) -> Option<String> {
        let meta = Map::from_iter([(key.to_owned(), value.clone())]);
        MetaExtractor(&meta).get(key).map(str::to_owned)
    }

    #[test]
    fn a_traceparent_of_the_recommendation_is_taken() {
        let later = VALID.replacen("00", "01", 1) + "-more";
        for text in [VALID, &VALID.replace("-01", "-00"), &later] {
            assert_eq!(extracted("traceparent", &json!(text)).as_deref(), Some(text));
        }
    }

    #[test]
    fn anything_else_is_ignored() {
        let long = format!("01{}-{}", &VALID[2..], "x".repeat(TRACEPARENT_BYTES));
        for value in [
            json!(""),
            json!(1),
            json!(null),
            json!({"traceparent": VALID}),
            json!([VALID]),
            json!(format!("{VALID}-more")),
            json!(format!(" {VALID}")),
            json!(format!("{VALID}\n")),
            json!(VALID.to_uppercase()),
            json!(VALID.replacen("00", "ff", 1)),
            json!(VALID.replacen("00", "+1", 1)),
            json!(VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32))),
            json!(VALID.replace("00f067aa04c902b7", &"0".repeat(16))),
            json!(VALID.replace("00f067aa04c902b7", "00f067aa04c902bé")),
            json!(VALID.replace("-00f067aa04c902b7", "")),
            json!(long),
        ] {
            assert_eq!(extracted("traceparent", &value), None, "{value}");
        }
    }

    #[test]
    fn no_long_tracestate_and_no_other_key_is_taken() {
        assert_eq!(extracted("tracestate", &json!("a=1,b=2")).as_deref(), Some("a=1,b=2"));
        assert_eq!(extracted("tracestate", &json!("x".repeat(TRACESTATE_BYTES + 1))), None);
        assert_eq!(extracted("baggage", &json!("user=alice")), None);
        let mut meta = Map::new();
        let mut inject = MetaInjector(&mut meta);
        for (key, value) in [("baggage", "user=alice"), ("progressToken", "1"), ("tracestate", "")] {
            inject.set(key, value.to_owned());
        }
        inject.set("traceparent", VALID.to_owned());
        assert_eq!(Value::Object(meta), json!({"traceparent": VALID}));
    }
}
